"""How long prompts take beside others, and what they take alone: the rest is others' work, or nothing can help."""

from __future__ import annotations

import math
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import counted, never_together
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import work
from slotune.diagnose.symptoms import ProbeFacts, Symptoms
from slotune.llama.log_speeds import MIN_PROMPT
from slotune.llama.log_story import RequestTimings
from slotune.verdict.promise import Promise

__all__ = ["CONTENTION", "CROWDED", "ENTRIES", "PROMPT_ALONE_TOO_SLOW", "RULES", "USUAL_PIECE"]

CONTENTION: Final = Entry(
    id="SLT022",
    code="Contention",
    item=Item.BATCH,
    title="Prompts wait for other prompts in the same batch",
    cause="Prompts that arrive together share the batch, so each is read at a part of the speed that it has alone "
    "(ggml-org/llama.cpp#4875).",
    first="Raise --ubatch-size, so that the prompts of a step are read faster; then try fewer slots.",
    avoid="Do not add slots: more prompts would then share the same step.",
    verify="Measure at the same rate: prompt_ms of a request comes near to what the same prompt takes alone.",
    knobs=("uBatchSize", "parallelSlots", "replicas"),
    binds="TTFTContention",
)

PROMPT_ALONE_TOO_SLOW: Final = Entry(
    id="SLT024",
    code="PromptAloneTooSlow",
    item=Item.BATCH,
    title="Even alone on the server a prompt takes longer than is owed",
    cause="At the speed of the idle server the prompt's own tokens take longer than the promised time to the first "
    "token, so no rate is low enough and no number of replicas helps.",
    first="Try a faster GPU or smaller weights, or shorten the prompts; or promise what this server can do.",
    avoid="Do not search slots, caches or replicas: all of them only take waiting away, and here nobody waits.",
    verify="Probe the idle server: prompt tokens divided by prefill speed must be under the promised time.",
    knobs=("gpuClass", "variant"),
    binds="TTFTPrefill",
)

ENTRIES: Final = (CONTENTION, PROMPT_ALONE_TOO_SLOW)

USUAL_PIECE: Final = 512
"""Tokens of llama-server's default of --ubatch-size: a prompt of as many fills a piece."""
CROWDED: Final = 0.3
"""Part of a prompt's time that goes to other prompts, from which it is called contention."""
AS_LONG: Final = 0.5
"""Of a probe's prompt, or of a piece: with fewer tokens a prompt does not reach the probe's speed, alone or not."""
AS_DEEP: Final = 4
"""Times a probe's prompt: behind more tokens than these, attention makes a prompt slower, alone or not."""
SPREAD_WITHIN: Final = 0.005
"""To which times and tokens of each prompt are kept."""
CHANCE: Final = 0.049
"""Two late prompts of two are no chance where one in twenty may be late; one of one is."""

Spread = tuple[tuple[float, int], ...]
"""(Value, how many prompts have it), smallest first."""


def _contention(symptoms: Symptoms) -> Finding | Clear | Undecided:
    probe, log = symptoms.probe, symptoms.log
    requests = None if log is None else log.requests
    if requests is not None and requests.most_busy_slots == 1:
        return Clear(never_together(requests.requests))
    if probe is None or requests is None or requests.most_busy_slots is None or work.reading_s(probe) is None:
        return Undecided("--probe, and a log of the server under load: --log FILE")
    if not probe.was_idle:
        return Undecided("--probe while nobody else uses the server")
    needs = _incomparable(probe, requests)
    return Undecided(needs) if needs is not None else _held_against_alone(symptoms, probe, requests)


def _incomparable(probe: ProbeFacts, requests: RequestTimings) -> str | None:
    """What else would tell how long the prompts of the log take alone; None: the probe does."""
    tokens, most = requests.long_prompt_tokens, _most(requests)
    if tokens < MIN_PROMPT or requests.long_prompt_ms <= 0:
        return f"a log with prompts that leave {MIN_PROMPT} tokens or more to compute"
    if tokens / most < AS_LONG * min(USUAL_PIECE, probe.prompt_tokens):
        return f"slotune trial: how long prompts that leave about {tokens / most:.0f} tokens to compute take alone"
    if _depth(requests) > AS_DEEP * probe.prompt_tokens:
        return "slotune trial: how long a prompt takes alone behind so much context"
    return None


def _most(requests: RequestTimings) -> int:
    """How many prompts of 64 tokens or more there can be."""
    return max(1, min(requests.requests, requests.long_prompt_tokens // MIN_PROMPT))


def _held_against_alone(symptoms: Symptoms, probe: ProbeFacts, requests: RequestTimings) -> Finding | Clear:
    """Long prompts beside what they take alone: their tokens, and the fixed cost of a step for each.

    Those that had nothing beside them are among them, so the others' part is rather larger.
    """
    tokens, took_s, most = requests.long_prompt_tokens, requests.long_prompt_ms / 1e3, _most(requests)
    alone_s = tokens / probe.prefill_tokens_per_s + most * max(0.0, probe.decode_step_s)
    share, promise = max(0.0, 1 - alone_s / took_s), symptoms.promise
    evidence = (
        Evidence(Source.LOG, f"{tokens:,} tokens of prompts of {MIN_PROMPT} or more took {took_s:,.4g} s"),
        Evidence(Source.PROBE, f"prompts alone: {probe.prefill_tokens_per_s:,.0f} tokens/s"),
    )
    if share < CROWDED:
        return Clear(f"long prompts took {took_s:,.4g} s in all, and alone they take up to {alone_s:,.4g} s", evidence)
    late = 0 if promise is None else _longer(requests.prompt_ms_spread, 1e3 * promise.ttft_s)
    is_late = promise is not None and late > promise.violation_share * requests.requests
    return Finding(
        CONTENTION,
        f"long prompts took {took_s:,.4g} s in all, and alone they take {alone_s:,.4g} s at most: about "
        f"{100 * share:.0f} % of their time is other requests' work",
        evidence,
        Severity.WARNING if is_late else Severity.INFO,  # a server that is used well has some of this
        Confidence.POSSIBLE,
        Cost(ttft_share=share * took_s / (took_s + most * max(0.0, probe.overhead_s))),
    )


def _prompt_alone_too_slow(symptoms: Symptoms) -> Finding | Clear | Undecided:
    promise, log = symptoms.promise, symptoms.log
    requests = None if log is None else log.requests
    if promise is None:
        return Clear("no time to the first token is owed", unasked=True)
    if log is None or requests is None or not requests.prompt_ms_spread:
        return Undecided("a log of answered requests, better with --probe")
    # What is owed is owed to all but a share of the requests, so their mean says nothing. Reading them alone takes no
    # longer than it took with whatever ran beside.
    count, may = requests.requests, promise.violation_share
    took = _longer(requests.prompt_ms_spread, 1e3 * promise.ttft_s)
    words = f"{took:,} of {counted(count, 'prompt')} took over {promise.ttft_s:g} s to read, {100 * may:.3g} % may"
    if took <= may * count:
        return Clear(words, work.line_of(log))
    if requests.most_busy_slots == 1:
        if not _is_more(took, count, may):
            return Undecided(f"a log of more requests: {words}")
        return _late_alone(symptoms, promise, requests, None, words)
    return _late_beside_others(symptoms, promise, requests, took, words)


def _late_beside_others(
    symptoms: Symptoms, promise: Promise, requests: RequestTimings, took: int, words: str
) -> Finding | Undecided:
    """Others' work is in what they took; at the speed that one has alone, its tokens tell which are late."""
    prefill = work.prefill_alone(symptoms)
    if prefill is None or not requests.prompt_tokens_spread:
        return Undecided(f"--probe: {words}, with others' work in it")
    late = min(took, _longer(requests.prompt_tokens_spread, promise.ttft_s * prefill.value))
    if not _is_more(late, requests.requests, promise.violation_share):
        return Undecided(f"slotune trial: {words}, and alone {late:,} would at that speed")
    return _late_alone(symptoms, promise, requests, prefill, words)


def _late_alone(
    symptoms: Symptoms, promise: Promise, requests: RequestTimings, prefill: work.Measured | None, words: str
) -> Finding:
    """Of the prompt that is as long as the last that must be in time; ``prefill`` None: the log's times are alone."""
    share = 1 - promise.violation_share
    took_s = _at(requests.prompt_ms_spread, share) / 1e3
    overhead_s = 0.0 if symptoms.probe is None else max(0.0, symptoms.probe.overhead_s)
    lines = () if symptoms.log is None else work.line_of(symptoms.log)
    if prefill is None:
        return Finding(
            PROMPT_ALONE_TOO_SLOW,
            f"{words}, and nothing ran beside them: {100 * share:.3g} % took up to {took_s:.2g} s",
            lines,
            confidence=Confidence.LIKELY,
            cost=Cost(took_s, took_s / (took_s + overhead_s)),
        )
    tokens = _at(requests.prompt_tokens_spread, share)
    alone_s = min(tokens / prefill.value, took_s)
    return Finding(
        PROMPT_ALONE_TOO_SLOW,
        f"reading {tokens:,.0f} tokens alone takes {'' if prefill.alone else 'up to '}{alone_s:.1f} s here "
        f"({prefill.value:,.0f} tokens/s), {promise.ttft_s:g} s are owed: {words}",
        (prefill.evidence, *lines),
        confidence=Confidence.LIKELY if prefill.alone else Confidence.POSSIBLE,
        cost=Cost(alone_s, alone_s / (took_s + overhead_s)) if prefill.alone else Cost(),
    )


def _longer(spread: Spread, limit: float) -> int:
    """How many are above a limit for sure."""
    return sum(count for value, count in spread if value > limit * (1 + SPREAD_WITHIN))


def _at(spread: Spread, share: float) -> float:
    """The least value that this share does not exceed."""
    rank, below = share * sum(count for _, count in spread), 0
    for value, count in spread:
        below += count
        if below >= rank:
            return value
    return spread[-1][0]


def _is_more(late: int, count: int, may: float) -> bool:
    """Whether more than a share are late, and not by chance alone (Chernoff's bound on so many of so few)."""
    part = min(1.0, late / count)
    if part <= may:
        return False
    rest = (1 - part) * math.log((1 - part) / (1 - may)) if part < 1 else 0.0
    return count * (part * math.log(part / may) + rest) >= -math.log(CHANCE)


def _depth(requests: RequestTimings) -> float:
    """Tokens before a computed one, on average: what came from a cache, and half of what is computed."""
    cached = (requests.cached_tokens or 0) / max(1, requests.requests)
    return cached + requests.long_prompt_tokens / _most(requests) / 2


RULES: Final = (
    Rule(CONTENTION.id, Item.BATCH, _contention),
    Rule(PROMPT_ALONE_TOO_SLOW.id, Item.BATCH, _prompt_alone_too_slow),
)
