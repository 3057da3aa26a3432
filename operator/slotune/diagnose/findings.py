"""What a measurement says about its cause, and which setting to try.

A table of named checks, tried in order; the order is the order of trust. Failures first, then what no setting can
mend, then the queue, the prompt, the batch and the bytes: taking up bytes while requests stand in a queue would treat
the wrong cause. The reasoning is in docs/how-it-measures.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slotune.diagnose.cache import cache_shortfall
from slotune.diagnose.case import Case, seconds
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.search.trial import TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome

__all__ = ["TABLE", "Finding", "Row", "explain_result", "findings"]


STEADY_NATS = 0.05
"""As much as two cold answers to one prompt may differ by rounding."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause."""

    code: str
    """CamelCase, for machines."""
    sentence: str
    """Plain words with numbers."""
    knobs: tuple[str, ...]
    """Settings to try, most promising first, as the API names them; ``replicas`` when none helps."""
    binds: str | None = None
    """What stands in the way (``TTFTQueue``, ``TTFTPrefill``, ``TTFTContention``, ``TokensPerSecond``); None for what
    was noticed beside, which does not say why a promise broke."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    code: str
    check: Callable[[Case], str | None]
    """The finding's sentence, or None when the case is another."""
    knobs: tuple[str, ...]
    binds: str | None = None


def findings(
    result: TrialResult,
    promise: Promise,
    demand: Demand,
    *,
    roofline_step_s: float | None = None,
    model: ModelFacts | None = None,
) -> tuple[Finding, ...]:
    """All that the measurement says, the first cause first; empty when nothing stands out."""
    case = Case(result, promise, demand, roofline_step_s, model)
    if result.failure is not None:
        return (Finding(result.failure.value, result.verdict.reason, _named(result.failure_knob)),)
    if result.verdict.outcome is Outcome.INVALID:
        return (Finding(result.verdict.code, result.verdict.reason, ()),)
    found = ((row, row.check(case)) for row in TABLE)
    return tuple(Finding(row.code, sentence, row.knobs, row.binds) for row, sentence in found if sentence is not None)


def explain_result(result: TrialResult, promise: Promise, demand: Demand) -> str:
    """The one line "why" of a table: empty for a Pass, else the first cause, else the verdict's own reason."""
    if result.verdict.outcome is Outcome.PASS:
        return ""
    if result.failure is not None or result.verdict.outcome is Outcome.INVALID:
        return result.verdict.reason
    causes = (one.sentence for one in findings(result, promise, demand) if one.binds is not None)
    return next(causes, result.verdict.reason)


def _named(knob: str | None) -> tuple[str, ...]:
    return () if knob is None else (knob,)


def _prompt_alone_too_slow(case: Case) -> str | None:
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


def _one_user_too_slow(case: Case) -> str | None:
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
    if parts is None or not case.is_late or parts.queue_s < 0.5 * case.ttft_s:
        return None
    return f"queue {_of(parts.queue_s, case.ttft_s)}"


def _static_batch(case: Case) -> str | None:
    queue = _queue(case)
    if queue is None or not case.is_static_batch:
        return None
    return f"{queue}: a batch must finish before a new request gets in"


def _slots_idle_while_queueing(case: Case) -> str | None:
    queue = _queue(case)
    if queue is None or case.busy_slots is None or case.busy_slots >= 0.5 * case.slots or case.is_static_batch:
        return None
    return (
        f"{queue}, though only {case.busy_slots:.1f} of {case.slots} slots are busy: the server or a proxy serializes"
    )


def _too_few_slots(case: Case) -> str | None:
    queue = _queue(case)
    if queue is None or not case.has_speed_to_spare:
        return None
    busy = "" if case.busy_slots is None or case.busy_slots < 0.8 * case.slots else ", all busy"
    return f"{queue}: {_counted(case.slots, 'slot')}{busy}"


def _saturated(case: Case) -> str | None:
    queue = _queue(case)
    if queue is None or case.has_speed_to_spare or case.speed is None:
        return None
    return (
        f"{queue}, and {case.speed:.0f} tok/s per user leave no room for more slots: "
        f"a request takes too much work for {case.result.trial.rate:.3g}/s"
    )


def _prompt_computed_again(case: Case) -> str | None:
    """Prompts that are read again keep others waiting in the batch too, so contention counts as reading here."""
    parts = case.parts
    if parts is None or not case.is_late or not case.is_cache_idle:
        return None
    reading = parts.prefill_s + parts.contention_s
    if reading < 0.5 * case.ttft_s:
        return None
    return f"reading prompts {_of(reading, case.ttft_s)}: {_cache_words(case)}"


def _prefill_bound(case: Case) -> str | None:
    parts = case.parts
    if parts is None or not case.is_late or parts.prefill_s < 0.5 * case.ttft_s or case.is_cache_idle:
        return None
    return f"reading the prompt {_of(parts.prefill_s, case.ttft_s)}, and no shared prefix is left to save"


def _contention(case: Case) -> str | None:
    parts = case.parts
    if parts is None or not case.is_late or parts.contention_s < 0.3 * case.ttft_s:
        return None
    return f"waiting for other prompts in the batch {_of(parts.contention_s, case.ttft_s)}"


def _scattered_slots(case: Case) -> str | None:
    busy = case.busy_slots
    if (
        case.result.trial.candidate.kv_unified
        or not case.is_slow
        or busy is None
        or not 1.5 <= busy < 0.75 * case.slots
    ):
        return None
    # Runs of neighbours among m busy of N slots placed at random: m(N-m+1)/N.
    runs = busy * (case.slots - busy + 1) / case.slots
    return (
        f"{case.speed:.0f} tok/s per user with {busy:.1f} of {case.slots} slots busy: with a KV stream per slot the "
        f"weights are read about {runs:.1f} times a step"
    )


def _bytes_per_step(case: Case) -> str | None:
    if not case.is_slow or _one_user_too_slow(case) is not None:
        return None
    probe = case.result.probe
    alone = "" if probe is None or probe.decode_step_s <= 0 else f" ({1 / probe.decode_step_s:.0f} alone)"
    owed = case.promise.tokens_per_second_per_user
    return f"{case.speed:.0f} tok/s per user with {_counted(case.slots, 'slot')}{alone}, {owed:g} are owed"


def _neighbours_stall(case: Case) -> str | None:
    gap, typical = case.result.latencies.longest_gap_p99_s, case.result.latencies.tokens_per_second_p50
    if gap is None or not typical or gap < max(0.1, 10 / typical):
        return None
    batch = case.result.trial.candidate.batch_size
    return f"answers pause for up to {seconds(gap)} while a neighbour's prompt is read, {batch:,} tokens a step"


def _short_by(code: str) -> Callable[[Case], str | None]:
    """The check for one cause of a cache that served less than it could."""

    def check(case: Case) -> str | None:
        found = cache_shortfall(case.result, case.model)
        return found.sentence if found is not None and found.code == code else None

    return check


def _cache_without_effect(case: Case) -> str | None:
    if case.result.cache is not None:
        return _short_by("CacheWithoutEffect")(case)
    if not case.result.trial.candidate.cache_prompt or case.cached_share is None or not case.is_cache_idle:
        return None
    return _cache_words(case)


def _cached_too_much(case: Case) -> str | None:
    # Real prompts may repeat more than anybody declared; only generated ones have a known share.
    if case.demand.synthetic is None or case.cached_share is None or case.cached_share < case.reusable_share + 0.1:
        return None
    return (
        f"{100 * case.cached_share:.0f} % of prompt tokens came from a cache, {100 * case.reusable_share:.0f} % are "
        "shared: a foreign prompt may have been restored (ggml-org/llama.cpp#27148)"
    )


def _unsteady(case: Case) -> str | None:
    cache = case.result.cache
    if cache is None or cache.canary_noise is None or cache.canary_noise <= STEADY_NATS:
        return None
    return (
        f"the server answers one prompt differently from time to time, without any cache ({cache.canary_noise:.2g} "
        "nats), so a cache that mixes prompts up could not be told from that"
    )


def _above_roofline(case: Case) -> str | None:
    probe, floor = case.result.probe, case.roofline_step_s
    if probe is None or floor is None or probe.decode_step_s <= 2 * floor:
        return None
    return (
        f"a token takes {seconds(probe.decode_step_s)} alone, memory bandwidth allows {seconds(floor)}: "
        "some layers or the KV cache may be on the CPU, or the GPU is throttled"
    )


TABLE: tuple[Row, ...] = (
    Row("PromptAloneTooSlow", _prompt_alone_too_slow, ("gpuClass", "variant"), "TTFTPrefill"),
    Row("OneUserTooSlow", _one_user_too_slow, ("variant", "gpuClass"), "TokensPerSecond"),
    Row("StaticBatch", _static_batch, ("extraArgs",), "TTFTQueue"),
    Row("SlotsIdleWhileQueueing", _slots_idle_while_queueing, ("extraArgs",), "TTFTQueue"),
    Row("TooFewSlots", _too_few_slots, ("parallelSlots", "cacheTypeK", "cacheTypeV"), "TTFTQueue"),
    Row("Saturated", _saturated, ("cacheRAMMiB", "variant", "cacheTypeK", "cacheTypeV", "replicas"), "TTFTQueue"),
    Row(
        "PromptComputedAgain",
        _prompt_computed_again,
        ("cachePrompt", "cacheRAMMiB", "cacheReuse", "parallelSlots"),
        "TTFTPrefill",
    ),
    Row("PrefillBound", _prefill_bound, ("uBatchSize", "flashAttention", "gpuClass"), "TTFTPrefill"),
    Row("Contention", _contention, ("uBatchSize", "parallelSlots", "replicas"), "TTFTContention"),
    Row("ScatteredSlots", _scattered_slots, ("kvUnified", "parallelSlots"), "TokensPerSecond"),
    Row("BytesPerStep", _bytes_per_step, ("variant", "cacheTypeK", "cacheTypeV", "parallelSlots"), "TokensPerSecond"),
    Row("NeighboursStall", _neighbours_stall, ("batchSize",)),
    Row("PromptCacheOff", _short_by("PromptCacheOff"), ("cachePrompt",)),
    Row("TemplateChangesPrefix", _short_by("TemplateChangesPrefix"), ("extraArgs",)),
    Row("SlotSimilarity", _short_by("SlotSimilarity"), ("extraArgs",)),
    Row("SlidingWindow", _short_by("SlidingWindow"), ("extraArgs", "variant")),
    Row("SlotsFewerThanPrefixes", _short_by("SlotsFewerThanPrefixes"), ("parallelSlots", "cacheRAMMiB")),
    Row("CacheRAMTooSmall", _short_by("CacheRAMTooSmall"), ("cacheRAMMiB", "parallelSlots")),
    Row("CacheWithoutEffect", _cache_without_effect, ("parallelSlots", "cacheRAMMiB", "cacheReuse")),
    Row("CachedTooMuch", _cached_too_much, ("cacheRAMMiB",)),
    Row("CanaryUnsteady", _unsteady, ()),
    Row("AboveRoofline", _above_roofline, ("gpuLayers", "cacheTypeK", "cacheTypeV")),
)
"""Every check, first cause first. A test locks the order."""


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


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
