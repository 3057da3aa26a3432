"""The prompt cache in host memory: whether it keeps what comes back, and what the copying costs.

Copying is done on the thread that computes, so its milliseconds are part of some request's time to the first token.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import counted, times
from slotune.diagnose.durations import seconds
from slotune.diagnose.entry import Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import settings, work
from slotune.diagnose.rules.placement import build_of
from slotune.diagnose.rules.reuse_causes import CACHE_RAM_CHURN, HOST_CACHE_COPIES, IDLE_SLOTS_SAVED
from slotune.diagnose.rules.reuse_habits import A_LOG, A_TRACE, MOSTLY, OFTEN, SEVERAL, TRACE
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.flag_history import is_missing
from slotune.llama.log_story import LogStory, Seen, Topic

__all__ = ["RULES"]

FEW_PROMPTS: Final = 8
"""A host cache that holds fewer than two rounds of the default's four slots is full at once."""
LARGE_PART: Final = 0.1
"""Saving that takes a tenth of what reading prompts takes is felt in TTFT."""
FELT_S: Final = 0.1
"""Of a request. People take an answer within a tenth of a second as given at once (Miller, 1968), so less that could
be saved is worth knowing, and no alarm."""


def _churn(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None or log.requests is None:
        return Undecided(A_LOG)
    requests = log.requests.requests
    large = log.seen.get(Topic.STATE_EXCEEDS_CACHE)
    if large is not None:
        return Finding(
            CACHE_RAM_CHURN,
            f"{large.count} prompts were larger than the whole host cache",
            (work.quoted(large),),
            Severity.WARNING if large.count >= OFTEN * requests and large.count >= SEVERAL else Severity.INFO,
        )
    evicted = log.seen.get(Topic.CACHE_EVICTED)
    if evicted is None:
        if (log.verbosity or 0) >= 3:
            return Clear(f"nothing was thrown out of the host cache in {counted(requests, 'request')}")
        return Undecided(A_TRACE)
    known = work.cached_share(symptoms)
    share = None if known is None else known[0]
    kept = max(0, requests - evicted.count)
    # Of a log without its start nobody knows what was in the cache before.
    is_small = log.starts > 0 and kept <= FEW_PROMPTS and evicted.count >= MOSTLY * requests
    is_vain = share is not None and share < MOSTLY
    words = "" if share is None else f", and {100 * share:.0f} % of prompt tokens came from a cache"
    cost = _saving(log)
    return Finding(
        CACHE_RAM_CHURN,
        f"the host cache threw {counted(evicted.count, 'prompt')} out in {counted(requests, 'request')}{words}",
        (work.quoted(evicted), *(() if known is None else (known[2],))),
        Severity.WARNING if is_small and is_vain and evicted.count >= SEVERAL else Severity.INFO,
        Confidence.LIKELY if is_small else Confidence.POSSIBLE,
        Cost() if cost is None else cost,
    )


def _idle_saved(symptoms: Symptoms) -> Finding | Clear | Undecided:
    copies = _copies(symptoms)
    if not isinstance(copies, Finding):
        return copies
    if not _of_idle_slots(symptoms.log):
        return Clear("what is copied are prompts of slots that are taken, not of idle ones", copies.evidence)
    return replace(copies, first=_without_idle(symptoms))


def _host_cache_copies(symptoms: Symptoms) -> Finding | Clear | Undecided:
    copies = _copies(symptoms)
    if not isinstance(copies, Finding):
        return copies
    if _of_idle_slots(symptoms.log):
        return Clear("idle slots are saved, which is a finding of its own", copies.evidence)
    known = work.cached_share(symptoms)
    first = None
    if known is not None and known[0] < MOSTLY:
        first = f"Set --cache-ram 0: only {100 * known[0]:.0f} % of prompt tokens came from a cache, and copying costs."
    elif _is_longer(symptoms):
        first = "Set --cache-ram 0: copying took longer than reading all tokens that came from a cache would have."
    return replace(copies, entry=HOST_CACHE_COPIES, first=first)


def _of_idle_slots(log: LogStory | None) -> bool:
    """Whether copies are made because idle slots are saved: both lines are printed at one verbosity."""
    if log is None or Topic.CACHE_UPDATE not in log.seen:
        return False
    return log.count(Topic.IDLE_SLOT_SAVED) >= MOSTLY * log.count(Topic.CACHE_UPDATE)


def _without_idle(symptoms: Symptoms) -> str | None:
    """The flag as this build spells it."""
    build = build_of(symptoms)
    if build is None:
        return None
    spelling = "--no-clear-idle" if is_missing("--cache-idle-slots", build[0]) else "--no-cache-idle-slots"
    return f"Start with {spelling}; with --cache-ram 0 if prompts share nothing."


def _copies(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether copies to and from the host cache cost much, whatever they are made for."""
    log = symptoms.log
    ram = settings.number(symptoms, "-cram", fact="cache_ram_mib")
    if ram is not None and ram.value == 0:
        return Clear("there is no host cache", (ram.evidence,))
    updates = None if log is None else _updates(log)
    if log is None or log.requests is None or (updates is None and (log.verbosity or 0) < TRACE):
        return Undecided(A_TRACE)
    cost = _saving(log)
    if updates is None or cost is None or cost.ttft_share is None:
        return Clear(f"no prompt was saved in {counted(log.requests.requests, 'request')}")
    evidence = _evidence(log, updates)
    each_ms = updates.total_ms / log.requests.requests
    each = f"{f'{each_ms:.0f} ms' if each_ms < 1000 else seconds(each_ms / 1e3)} a request"
    if cost.ttft_share < LARGE_PART:
        words = f"saving and loading prompts takes {each}, {100 * cost.ttft_share:.1f} % of the prompts' time"
        return Clear(words, evidence)
    known = work.cached_share(symptoms)
    is_vain = known is not None and (known[0] < MOSTLY or _is_longer(symptoms))
    of_them = ", which would be read again in less time" if is_vain and known and known[0] >= MOSTLY else ""
    is_told = Topic.CACHE_UPDATE in log.seen
    return Finding(
        IDLE_SLOTS_SAVED,
        f"saving and loading prompts takes {each}, {100 * cost.ttft_share:.0f} % of the time that prompts take"
        + ("" if known is None else f"; {100 * known[0]:.0f} % of prompt tokens came from a cache{of_them}"),
        evidence,
        Severity.WARNING if is_vain and (cost.ttft_s or 0.0) >= FELT_S else Severity.INFO,
        (Confidence.CERTAIN if is_told else Confidence.LIKELY) if is_vain else Confidence.POSSIBLE,
        cost,
    )


def _is_longer(symptoms: Symptoms) -> bool:
    """Whether copying took more than reading all that came from a cache, this one or a slot's, would have."""
    log = symptoms.log
    updates = None if log is None else _updates(log)
    if log is None or updates is None or log.requests is None or log.requests.cached_tokens is None:
        return False
    again_s = work.read_again_s(symptoms, log.requests.cached_tokens)
    return again_s is not None and updates.total_ms > 1e3 * again_s


def _updates(log: LogStory) -> Seen | None:
    """What the server says that copying took; at the default verbosity, where it says nothing, what lies between the
    pick of a slot and the work in it, less what slots take for which nothing is copied."""
    return log.seen.get(Topic.CACHE_UPDATE) or log.handovers


def _evidence(log: LogStory, updates: Seen) -> tuple[Evidence, ...]:
    saved = log.seen.get(Topic.IDLE_SLOT_SAVED)
    if Topic.CACHE_UPDATE in log.seen:
        return (work.quoted(updates), *(() if saved is None else (work.quoted(saved),)))
    took = f"{updates.total_ms / 1e3:,.4g} s in all between such two lines, {times(updates.count)}"
    return (Evidence.of_line(updates.first), work.quoted(updates), Evidence(Source.LOG, took))


def _saving(log: LogStory) -> Cost | None:
    """What copying prompts to and from the host cache took of the time before a first token."""
    updates, requests = _updates(log), log.requests
    if updates is None or requests is None or not requests.requests or requests.prompt_ms + updates.total_ms <= 0:
        return None
    return Cost(updates.total_ms / requests.requests / 1e3, updates.total_ms / (updates.total_ms + requests.prompt_ms))


RULES: Final = (
    Rule(CACHE_RAM_CHURN.id, Item.REUSE, _churn),
    Rule(IDLE_SLOTS_SAVED.id, Item.REUSE, _idle_saved),
    Rule(HOST_CACHE_COPIES.id, Item.REUSE, _host_cache_copies),
)
