"""What may be said of one trial: each check is a sentence about its numbers, or None when the case is another.

Which of them is the cause is decided by their order, in :mod:`slotune.diagnose.findings`. The reasoning is in
docs/how-it-measures.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slotune.diagnose.cache import cache_shortfall
from slotune.diagnose.case import Case
from slotune.diagnose.counting import counted
from slotune.diagnose.durations import seconds
from slotune.diagnose.roofline import usual_step_s
from slotune.diagnose.rules.contention import CROWDED
from slotune.diagnose.rules.queue import HALF_IDLE, TWICE

__all__ = [
    "above_roofline",
    "bytes_per_step",
    "cache_without_effect",
    "cached_too_much",
    "contention",
    "neighbours_stall",
    "one_user_too_slow",
    "prefill_bound",
    "prompt_alone_too_slow",
    "prompt_computed_again",
    "saturated",
    "scattered_slots",
    "short_by",
    "slots_idle_while_queueing",
    "static_batch",
    "too_few_slots",
    "unsteady",
]

MOST: Final = 0.5
"""Of the wait of the slowest requests: what takes half of it is what they wait for."""
IDLE: Final = 0.5
"""Of the slots: a queue beside fewer at work than this is not for want of slots."""
FULL: Final = 0.8
"""Of the slots: so many at work on average are all of them in a burst."""
FELT_S: Final = 0.1
"""A pause between two tokens that is shorter is not seen as one."""
STEPS: Final = 10
"""Nor is one of fewer tokens at the usual speed."""
BEYOND: Final = 0.1
"""Of the prompt tokens: so many more from a cache than are shared are not what rounding makes."""
STEADY_NATS: Final = 0.05
"""As much as two cold answers to one prompt may differ by rounding."""


def prompt_alone_too_slow(case: Case) -> str | None:
    """What no cache can save takes longer than is owed, on the idle server."""
    probe = case.result.probe
    if probe is None:
        return None
    tokens = case.uncached_tokens_p95
    alone = tokens / probe.prefill_tokens_per_s
    if alone + probe.overhead_s <= case.promise.ttft_s:
        return None
    return (
        f"reading {tokens:,.0f} tokens alone takes {seconds(alone)} here ({probe.prefill_tokens_per_s:,.0f} tokens/s), "
        f"{seconds(case.promise.ttft_s)} is owed"
    )


def one_user_too_slow(case: Case) -> str | None:
    """A token takes longer than is owed, on the idle server."""
    probe, owed = case.result.probe, case.promise.tokens_per_second_per_user
    if probe is None or owed is None or probe.decode_step_s <= 0 or 1 / probe.decode_step_s >= owed:
        return None
    return (
        f"one user alone gets {1 / probe.decode_step_s:.0f} tok/s ({seconds(probe.decode_step_s)} a token), "
        f"{owed:g} are owed"
    )


def _queue(case: Case) -> str | None:
    """The opening of every sentence about the queue; None when it isn't what makes requests late."""
    parts = case.parts
    if parts is None or not case.is_late or parts.queue_s < MOST * case.ttft_s:
        return None
    return f"queue {_of(parts.queue_s, case.ttft_s)}"


def static_batch(case: Case) -> str | None:
    """A queue behind a batch that must finish."""
    queue = _queue(case)
    if queue is None or not case.is_static_batch:
        return None
    return f"{queue}: a batch must finish before a new request gets in"


def slots_idle_while_queueing(case: Case) -> str | None:
    """A queue although slots are free."""
    queue = _queue(case)
    if queue is None or case.busy_slots is None or case.busy_slots >= IDLE * case.slots or case.is_static_batch:
        return None
    return (
        f"{queue}, though only {case.busy_slots:.1f} of {case.slots} slots are busy: the server or a proxy serializes"
    )


def too_few_slots(case: Case) -> str | None:
    """A queue, and users have speed to spare: more of them could share a step."""
    queue = _queue(case)
    if queue is None or not case.has_speed_to_spare:
        return None
    busy = "" if case.busy_slots is None or case.busy_slots < FULL * case.slots else ", all busy"
    return f"{queue}: {counted(case.slots, 'slot')}{busy}"


def saturated(case: Case) -> str | None:
    """A queue, and users have no speed to spare."""
    queue = _queue(case)
    if queue is None or case.has_speed_to_spare or case.speed is None:
        return None
    return (
        f"{queue}, and {case.speed:.0f} tok/s per user leave no room for more slots: "
        f"a request takes too much work for {case.result.trial.rate:.3g}/s"
    )


def prompt_computed_again(case: Case) -> str | None:
    """Prompts that are read again keep others waiting in the batch too, so contention counts as reading here."""
    parts = case.parts
    if parts is None or not case.is_late or not case.is_cache_idle:
        return None
    reading = parts.prefill_s + parts.contention_s
    if reading < MOST * case.ttft_s:
        return None
    return f"reading prompts {_of(reading, case.ttft_s)}: {_cache_words(case)}"


def prefill_bound(case: Case) -> str | None:
    """Reading what no cache can save takes most of the wait."""
    parts = case.parts
    if parts is None or not case.is_late or parts.prefill_s < MOST * case.ttft_s or case.is_cache_idle:
        return None
    return f"reading the prompt {_of(parts.prefill_s, case.ttft_s)}, and no shared prefix is left to save"


def contention(case: Case) -> str | None:
    """Prompts that share a step take a good part of the wait."""
    parts = case.parts
    if parts is None or not case.is_late or parts.contention_s < CROWDED * case.ttft_s:
        return None
    return f"waiting for other prompts in the batch {_of(parts.contention_s, case.ttft_s)}"


def scattered_slots(case: Case) -> str | None:
    """Users are slow, and the busy slots are few among many with a KV stream each."""
    busy = case.busy_slots
    if (
        case.result.trial.candidate.kv_unified
        or not case.is_slow
        or busy is None
        or not TWICE <= busy < HALF_IDLE * case.slots
    ):
        return None
    # Runs of neighbours among m busy of N slots placed at random: m(N-m+1)/N.
    runs = busy * (case.slots - busy + 1) / case.slots
    return (
        f"{case.speed:.0f} tok/s per user with {busy:.1f} of {case.slots} slots busy: with a KV stream per slot the "
        f"weights are read about {runs:.1f} times a step"
    )


def bytes_per_step(case: Case) -> str | None:
    """Users are slow together, though one alone would not be."""
    if not case.is_slow or one_user_too_slow(case) is not None:
        return None
    probe = case.result.probe
    alone = "" if probe is None or probe.decode_step_s <= 0 else f" ({1 / probe.decode_step_s:.0f} alone)"
    owed = case.promise.tokens_per_second_per_user
    return f"{case.speed:.0f} tok/s per user with {counted(case.slots, 'slot')}{alone}, {owed:g} are owed"


def neighbours_stall(case: Case) -> str | None:
    """Answers pause while a neighbour's prompt is read."""
    gap, typical = case.result.latencies.longest_gap_p99_s, case.result.latencies.tokens_per_second_p50
    if gap is None or not typical or gap < max(FELT_S, STEPS / typical):
        return None
    batch = case.result.trial.candidate.batch_size
    return f"answers pause for up to {seconds(gap)} while a neighbour's prompt is read, {batch:,} tokens a step"


def short_by(code: str) -> Callable[[Case], str | None]:
    """The check for one cause of a cache that served less than it could."""

    def check(case: Case) -> str | None:
        found = cache_shortfall(case.result, case.model)
        return found.sentence if found is not None and found.code == code else None

    return check


def cache_without_effect(case: Case) -> str | None:
    """The cache serves less than it could, and nothing speaks for a cause."""
    if case.result.cache is not None:
        return short_by("CacheWithoutEffect")(case)
    if not case.result.trial.candidate.cache_prompt or case.cached_share is None or not case.is_cache_idle:
        return None
    return _cache_words(case)


def cached_too_much(case: Case) -> str | None:
    """More came from the cache than prompts share."""
    # Real prompts may repeat more than anybody declared; only generated ones have a known share.
    if case.demand.synthetic is None or case.cached_share is None or case.cached_share < case.reusable_share + BEYOND:
        return None
    return (
        f"{100 * case.cached_share:.0f} % of prompt tokens came from a cache, {100 * case.reusable_share:.0f} % are "
        "shared: a foreign prompt may have been restored (ggml-org/llama.cpp#27148)"
    )


def unsteady(case: Case) -> str | None:
    """Answers to one prompt differ without any cache."""
    cache = case.result.cache
    if cache is None or cache.canary_noise is None or cache.canary_noise <= STEADY_NATS:
        return None
    return (
        f"the server answers one prompt differently from time to time, without any cache ({cache.canary_noise:.2g} "
        "nats), so a cache that mixes prompts up could not be told from that"
    )


def above_roofline(case: Case) -> str | None:
    """A token takes longer on the idle server than a healthy GPU needs, by the same bound as a server in use."""
    probe, floor = case.result.probe, case.roofline_step_s
    layers = None if case.model is None else len(case.model.layers)
    if probe is None or floor is None or probe.decode_step_s <= usual_step_s(floor, layers):
        return None
    return (
        f"a token takes {seconds(probe.decode_step_s)} alone, memory bandwidth allows {seconds(floor)}: "
        "some layers or the KV cache may be on the CPU, or the GPU is throttled"
    )


def _cache_words(case: Case) -> str:
    cached = case.cached_share or 0.0
    what = "" if case.result.trial.candidate.cache_prompt else ", the prompt cache is off"
    return (
        f"{100 * case.reusable_share:.0f} % of prompt tokens are shared, {100 * cached:.0f} % came from the cache{what}"
    )


def _of(part: float, whole: float) -> str:
    """``2.4 s of 2.8``: the unit once, when it is the same."""
    left, right = seconds(part), seconds(whole)
    unit = right.rsplit(" ", 1)[1]
    return f"{left} of {right.removesuffix(' ' + unit)}" if left.endswith(" " + unit) else f"{left} of {right}"
