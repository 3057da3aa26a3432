"""A server that answers /health and computes nothing: told from one long step by the time in which nothing moved."""

from __future__ import annotations

import math
from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import work
from slotune.diagnose.rules.placement import build_of
from slotune.diagnose.rules.settings import batch_size
from slotune.diagnose.rules.told_failures import quoted_end
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.llama.failures import FailureClass
from slotune.llama.server_answers import Metrics
from slotune.llama.watchdog import LIMIT_S

__all__ = ["WEDGED", "wedged"]

STILL_S: Final = LIMIT_S
"""Seconds in which nothing moved that prove a wedge: the watchdog's limit, five times the longest step it ever saw."""
STEPS: Final = 2.0
"""And so many times the longest step that its speed lets expect: no slow CPU is to be called wedged."""
UNKNOWN_S: Final = 600.0
"""The same of a server that has not counted how fast it reads: a step of 2,048 tokens at 7 tokens/s comes twice in
it."""
LARGEST_BATCH: Final = 2048
"""Prompt tokens in a step, where nobody says: the default of every build so far (``-b``)."""
ANSWERS_DURING_DECODE: Final = 10472
"""Oldest build that is known to answer /slots and /metrics while it decodes, at no cost (ggml-org/llama.cpp#27041,
#27133)."""
SILENT_S: Final = 3.0
"""Such a build answers within milliseconds, so both silent for this long is no work."""
_COUNTERS: Final = ("n_decode_total", "prompt_tokens_total", "tokens_predicted_total")

WEDGED: Final = Entry(
    id="SLT110",
    code="Wedged",
    item=Item.HEALTH,
    title="It holds requests and does nothing",
    cause="llama-server can stop in the middle of a decode: /health still says ok, since it never touches the thread "
    "that computes, while /slots hangs and not even SIGTERM ends it (ggml-org/llama.cpp#27388).",
    first="Kill it (SIGKILL; deleting the pod does that after its grace period), keep the end of its log for a report, "
    "and watch n_decode_total while requests are processed.",
    avoid="Do not rely on a liveness probe of /health, and do not raise time-outs: it does not come back by itself.",
    verify="In two looks at /metrics under load n_decode_total has grown.",
)


def wedged(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether it holds requests and does nothing."""
    log, server = symptoms.log, symptoms.server
    if log is not None and log.failure is not None and log.failure.failure_class is FailureClass.WEDGED:
        return Finding(WEDGED, log.failure.sentence, (quoted_end(log.failure, log.failure_line),), Severity.CRITICAL)
    if server is None:
        return Undecided("--url: a log cannot tell a server that hangs from one that is idle")
    if server.silent_s:
        return _silent(symptoms, server)
    return _still(symptoms, server)


def _silent(symptoms: Symptoms, server: ServerLook) -> Finding | Undecided:
    """It answers /health, and not what waits for the thread that computes, on builds where it waits."""
    waited = min(server.silent_s.values())
    paths = " and ".join(sorted(server.silent_s))
    health = "" if server.health_s is None else f", while /health answers in {1000 * server.health_s:.0f} ms"
    build = build_of(symptoms)
    answers_always = build is not None and build[0] >= ANSWERS_DURING_DECODE and len(server.silent_s) > 1
    limit_s = SILENT_S if answers_always else _limit_s(symptoms)
    if server.health_s is None or waited < limit_s:
        return Undecided(
            f"--watch {math.ceil(max(STILL_S, limit_s))}: it tells a wedge from one long decode; {paths} "
            f"{'was' if len(server.silent_s) == 1 else 'were'} silent for {waited:.0f} s"
        )
    return Finding(
        WEDGED,
        f"{paths} gave no answer for {waited:.0f} s{health}",
        tuple(
            Evidence(Source.SLOTS if path == "/slots" else Source.METRICS, f"{path} silent for {after:.0f} s")
            for path, after in sorted(server.silent_s.items())
        ),
        Severity.CRITICAL,
        Confidence.LIKELY,
    )


def _limit_s(symptoms: Symptoms) -> float:
    """Seconds without a sign of life that no step takes: a step is at most one batch of a prompt."""
    speed = work.prefill_alone(symptoms)
    batch = batch_size(symptoms)
    tokens = LARGEST_BATCH if batch is None else batch.value
    if speed is not None:
        return max(STILL_S, STEPS * tokens / speed.value)
    server = symptoms.server
    read, took_s = (
        None if server is None else work.total(server, name) for name in ("prompt_tokens_total", "prompt_seconds_total")
    )
    return max(STILL_S, STEPS * tokens * took_s / read) if read and took_s else UNKNOWN_S


def _still(symptoms: Symptoms, server: ServerLook) -> Finding | Clear | Undecided:
    """Two looks at its counters, or more of them; without them, at its slots."""
    first, later = server.metrics, server.metrics_later
    if first is None or later is None:
        return _still_slots(symptoms, server)
    if not first.processing or not later.processing or 0 in server.processing:
        return Clear("it answers, and holds no request all the time", (_processing(later),))
    return _unmoved(symptoms, server, first, later)


def _still_slots(symptoms: Symptoms, server: ServerLook) -> Finding | Clear | Undecided:
    """A server without /metrics, or without a count of decodes in it."""
    busy = [slot for slot in server.slots or () if slot.processing]
    if server.slots is not None and not busy:
        return Clear("it answers, and no request is being processed", (Evidence(Source.SLOTS, "no slot is busy"),))
    still_s, limit_s = server.slots_still_s, _limit_s(symptoms)
    if server.slots is None or (still_s is None and any(slot.decoded is None for slot in busy)):
        return Undecided("two looks at /metrics: start the server with --metrics")
    if still_s is None or 0 < still_s < limit_s:
        return Undecided(f"--watch {math.ceil(limit_s)}: it tells a wedge from one long step")
    if not still_s:
        return Clear(
            "requests are processed, and slots get on",
            (Evidence(Source.SLOTS, f"{counted(len(busy), 'slot')} at work"),),
        )
    return Finding(
        WEDGED,
        f"every slot that is at work stands at the same token for {still_s:.0f} s",
        tuple(Evidence(Source.SLOTS, f"id {slot.id}: id_task {slot.task}, n_decoded {slot.decoded}") for slot in busy),
        Severity.CRITICAL,
        Confidence.LIKELY,
    )


def _unmoved(symptoms: Symptoms, server: ServerLook, first: Metrics, later: Metrics) -> Finding | Clear | Undecided:
    """Whether a server that holds requests at every look did anything between them."""
    moved = [name for name in _COUNTERS if later.get(name) != first.get(name)]
    if moved:
        grown = Evidence(
            Source.METRICS, f"{moved[0]} {first.get(moved[0]) or 0:.0f}, then {later.get(moved[0]) or 0:.0f}"
        )
        return Clear("requests are processed, and the counters grow", (grown,))
    if first.decodes is None:
        if server.slots is None:
            return Undecided("/slots: start it without --no-slots, since this build does not count its decodes")
        return _still_slots(symptoms, server)
    limit_s = _limit_s(symptoms)
    if server.between_s < limit_s:
        return Undecided(
            f"--watch {math.ceil(limit_s)}: it tells a wedge from one long step; nothing moved in "
            f"{server.between_s:.1f} s"
        )
    return Finding(
        WEDGED,
        f"{later.processing} {'request is' if later.processing == 1 else 'requests are'} being processed, and not one "
        f"decode was counted in {server.between_s:.0f} s",
        (_processing(later), Evidence(Source.METRICS, f"n_decode_total {first.decodes}, then {later.decodes}")),
        Severity.CRITICAL,
        Confidence.LIKELY,
    )


def _processing(metrics: Metrics) -> Evidence:
    return Evidence(Source.METRICS, f"requests_processing {metrics.processing or 0}")
