"""The numbers of a trial, to its status and back: each group of them in one place, both ways side by side.

Floats are written as ``repr`` gives them and read back equal. NaN has no form: where it stands for one number, that
number is absent; where a group makes no sense without it (a probe, an attribution, a list by position), the group is.
"""

from __future__ import annotations

from collections.abc import Sequence

from slotune.api.v1alpha1.trial_status import (
    LlamaTrialStatus,
    TrialAttribution,
    TrialFailure,
    TrialLatencies,
    TrialMemory,
    TrialProbe,
    TrialQuality,
    TrialVerdict,
)
from slotune.llama.failures import FailureClass
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.quality.divergence import Divergence
from slotune.report.redaction import said_in_public
from slotune.search.trial import Trial, TrialResult
from slotune.tuning import status_values as values
from slotune.tuning.status_values import exact
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = [
    "NO_OUTCOME",
    "attribution_of",
    "attribution_status",
    "failure_of",
    "failure_status",
    "latencies_of",
    "latencies_status",
    "memory_status",
    "probe_of",
    "probe_status",
    "quality_of",
    "quality_status",
    "run_shares",
    "verdict_of",
    "verdict_status",
]

NO_OUTCOME = "NoOutcome"
"""Code of a verdict on a trial that is complete but does not say how it ended: somebody edited its status."""

_MOST_RUNS, _MOST_QUANTILES = 500, 101
_MOST_LOG_LINES, _LONGEST_LOG_LINE = 20, 1024
_MOST_BYTES = 2**53


def verdict_status(result: TrialResult) -> TrialVerdict:
    """The evidence; outcome, code and sentence stand in the status itself."""
    verdict = result.verdict
    return TrialVerdict(
        confidence=exact(verdict.confidence) or "0",
        requests=values.count(verdict.requests),
        planned_requests=values.count(result.planned_requests),
        violations=values.count(verdict.violations),
        effective_requests=exact(verdict.effective_requests),
        share_upper=exact(verdict.share_upper),
        run_share_upper=exact(verdict.run_share_upper),
        run_violation_shares=_all_or_none(result.run_violation_shares, _MOST_RUNS),
        ttft_p95_seconds=exact(verdict.ttft_p95_s),
        ttft_p95_upper_seconds=exact(verdict.ttft_p95_upper_s),
        tokens_per_second_p5=exact(verdict.tokens_per_second_p5),
    )


def verdict_of(status: LlamaTrialStatus, asked: Trial) -> Verdict:
    """The verdict of a complete trial. Invalid where the outcome is missing."""
    if status.outcome is None:
        return Verdict(Outcome.INVALID, "its status does not say how it ended", NO_OUTCOME, asked.confidence)
    said, code = status.verdict, status.reason or "Unknown"
    if said is None:
        return Verdict(Outcome(status.outcome), status.message, code, asked.confidence)
    return Verdict(
        outcome=Outcome(status.outcome),
        reason=status.message,
        code=code,
        confidence=float(said.confidence),
        requests=said.requests,
        violations=said.violations,
        effective_requests=_float(said.effective_requests),
        share_upper=_float(said.share_upper),
        run_share_upper=_float(said.run_share_upper),
        ttft_p95_s=_float(said.ttft_p95_seconds),
        ttft_p95_upper_s=_float(said.ttft_p95_upper_seconds),
        tokens_per_second_p5=_float(said.tokens_per_second_p5),
    )


def run_shares(status: LlamaTrialStatus) -> tuple[float, ...]:
    """Share of violations in each run."""
    return () if status.verdict is None else tuple(map(float, status.verdict.run_violation_shares))


def failure_status(result: TrialResult) -> TrialFailure | None:
    """Why the server could not be measured, with the end of its log; None when it could."""
    if result.failure is None:
        return None
    tail = result.log_tail[-_MOST_LOG_LINES:]
    return TrialFailure(
        failure_class=result.failure.value,
        knob=None if result.failure_knob is None else values.line(result.failure_knob),
        log_tail=tuple(values.line(said_in_public(text), _LONGEST_LOG_LINE) for text in tail),
    )


def failure_of(said: TrialFailure | None) -> tuple[FailureClass | None, str | None, tuple[str, ...]]:
    """(class, knob, log tail). A class of another version of slotune is a crash: it says nothing about others."""
    if said is None:
        return None, None, ()
    try:
        failure = FailureClass(said.failure_class)
    except ValueError:
        failure = FailureClass.CRASHED
    return failure, said.knob, said.log_tail


def probe_status(probe: IdleProbe | None) -> TrialProbe | None:
    """The idle server; None when it was not measured, or one of its three numbers is none."""
    if probe is None:
        return None
    overhead, prefill, step = exact(probe.overhead_s), exact(probe.prefill_tokens_per_s), exact(probe.decode_step_s)
    if overhead is None or prefill is None or step is None:
        return None
    return TrialProbe(
        overhead_seconds=overhead,
        prefill_tokens_per_second=prefill,
        decode_step_seconds=step,
        best_prefill_tokens_per_second=exact(probe.prefill_tokens_per_s_best),
        best_decode_step_seconds=exact(probe.decode_step_s_best),
    )


def probe_of(said: TrialProbe | None) -> IdleProbe | None:
    """:func:`probe_status` turned round."""
    if said is None:
        return None
    return IdleProbe(
        overhead_s=float(said.overhead_seconds),
        prefill_tokens_per_s=float(said.prefill_tokens_per_second),
        decode_step_s=float(said.decode_step_seconds),
        prefill_tokens_per_s_best=_float(said.best_prefill_tokens_per_second),
        decode_step_s_best=_float(said.best_decode_step_seconds),
    )


def latencies_status(shape: Latencies) -> TrialLatencies:
    """The shape of what users saw."""
    return TrialLatencies(
        ttft_p50_seconds=exact(shape.ttft_p50_s),
        ttft_p95_seconds=exact(shape.ttft_p95_s),
        ttft_p99_seconds=exact(shape.ttft_p99_s),
        tokens_per_second_p5=exact(shape.tokens_per_second_p5),
        tokens_per_second_p50=exact(shape.tokens_per_second_p50),
        longest_gap_p99_seconds=exact(shape.longest_gap_p99_s),
        output_tokens_per_second=exact(shape.output_tokens_per_s),
        mean_output_tokens=exact(shape.mean_output_tokens),
        mean_prompt_tokens=exact(shape.mean_prompt_tokens),
        drafted_tokens=shape.drafted_tokens,
        accepted_tokens=shape.accepted_tokens,
        ttft_quantiles_seconds=_all_or_none(shape.ttft_quantiles_s, _MOST_QUANTILES),
    )


def latencies_of(said: TrialLatencies | None) -> Latencies:
    """:func:`latencies_status` turned round."""
    if said is None:
        return Latencies()
    return Latencies(
        ttft_p50_s=_float(said.ttft_p50_seconds),
        ttft_p95_s=_float(said.ttft_p95_seconds),
        ttft_p99_s=_float(said.ttft_p99_seconds),
        tokens_per_second_p5=_float(said.tokens_per_second_p5),
        tokens_per_second_p50=_float(said.tokens_per_second_p50),
        longest_gap_p99_s=_float(said.longest_gap_p99_seconds),
        ttft_quantiles_s=tuple(map(float, said.ttft_quantiles_seconds)),
        output_tokens_per_s=_float(said.output_tokens_per_second),
        mean_output_tokens=_float(said.mean_output_tokens),
        mean_prompt_tokens=_float(said.mean_prompt_tokens),
        drafted_tokens=said.drafted_tokens,
        accepted_tokens=said.accepted_tokens,
    )


def attribution_status(parts: Attribution | None) -> TrialAttribution | None:
    """Where TTFT went; None when it is not known, or one of its four parts is no number."""
    if parts is None:
        return None
    queue, prefill = exact(parts.queue_s), exact(parts.prefill_s)
    contention, overhead = exact(parts.contention_s), exact(parts.overhead_s)
    if queue is None or prefill is None or contention is None or overhead is None:
        return None
    return TrialAttribution(
        queue_seconds=queue,
        prefill_seconds=prefill,
        contention_seconds=contention,
        overhead_seconds=overhead,
        cached_share=exact(parts.cached_share),
        busy_slots=exact(parts.busy_slots),
    )


def attribution_of(said: TrialAttribution | None) -> Attribution | None:
    """:func:`attribution_status` turned round."""
    if said is None:
        return None
    return Attribution(
        queue_s=float(said.queue_seconds),
        prefill_s=float(said.prefill_seconds),
        contention_s=float(said.contention_seconds),
        overhead_s=float(said.overhead_seconds),
        cached_share=_float(said.cached_share),
        busy_slots=_float(said.busy_slots),
    )


_DIVERGENCE_NUMBERS = (
    "mean_kld",
    "kld_standard_error",
    "kld_lower",
    "kld_upper",
    "top1",
    "top1_lower",
    "top1_upper",
    "effective_positions",
    "residual_mass",
    "perplexity_ratio",
    "confidence",
)


def quality_status(result: TrialResult) -> TrialQuality | None:
    """How answers compare, or which reference was recorded; a comparison with a number that is none is left out."""
    measured = result.quality
    if measured is None:
        return TrialQuality(reference_digest=values.digest(result.reference)) if result.reference else None
    numbers = {name: exact(getattr(measured, name)) for name in _DIVERGENCE_NUMBERS}
    if None in numbers.values():
        return TrialQuality(reference_digest=values.digest(measured.reference_digest))
    return TrialQuality(
        reference_digest=values.digest(measured.reference_digest),
        positions=values.count(measured.positions),
        prompts=values.count(measured.prompts),
        **numbers,
    )


def quality_of(said: TrialQuality | None) -> Divergence | None:
    """:func:`quality_status` turned round; None where nothing was compared."""
    if said is None or not said.positions:
        return None
    numbers = {name: getattr(said, name) for name in _DIVERGENCE_NUMBERS}
    if None in numbers.values():
        return None
    return Divergence(
        positions=said.positions,
        prompts=said.prompts,
        reference_digest=said.reference_digest,
        **{name: float(number) for name, number in numbers.items()},
    )


def memory_status(result: TrialResult) -> TrialMemory | None:
    """Memory in bytes; None when nothing is known."""
    memory = TrialMemory(
        device_bytes=_bytes(result.memory_bytes),
        compute_buffer_bytes=_bytes(result.compute_buffer_bytes),
        host_peak_bytes=_bytes(result.host_memory_peak_bytes),
    )
    return None if memory == TrialMemory() else memory


def _float(said: str | None) -> float | None:
    return None if said is None else float(said)


def _bytes(value: int | None) -> int | None:
    return None if value is None or value < 0 else min(value, _MOST_BYTES)


def _all_or_none(numbers: Sequence[float], most: int) -> tuple[str, ...]:
    """Each number, as their places mean something: none at all when one of them is no number."""
    written = [exact(number) for number in numbers[:most]]
    return () if None in written else tuple(text for text in written if text is not None)
