"""The ends of a trial in which nothing was measured, in the same words whichever sandbox it ran in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slotune.llama.effective import Mismatch
from slotune.llama.failures import Failure, FailureClass
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["LOG_TAIL_LINES", "broken", "failed", "invalid", "mismatched", "not_measured"]

LOG_TAIL_LINES = 20


def not_measured(trial: Trial) -> TrialResult:
    """Where every result begins."""
    return TrialResult(trial, Verdict(Outcome.INVALID, "not measured", "NotMeasured", trial.confidence), 0.0)


def failed(
    base: TrialResult,
    failure: Failure,
    *,
    detail: str = "",
    log_tail: Sequence[str] = (),
    memory_peak_bytes: int | None = None,
) -> TrialResult:
    """The server could not run, or stopped working: the candidate fails, with the setting that is to blame."""
    sentence = f"{failure.sentence} ({detail})" if detail else failure.sentence
    return replace(
        base,
        verdict=Verdict(Outcome.FAIL, sentence, failure.failure_class.value, base.trial.confidence),
        failure=failure.failure_class,
        failure_knob=failure.knob,
        log_tail=tuple(log_tail[-LOG_TAIL_LINES:]),
        host_memory_peak_bytes=memory_peak_bytes,
    )


def mismatched(base: TrialResult, mismatches: Sequence[Mismatch]) -> TrialResult:
    """A silent fallback is how the candidate behaves here, and so is a server that cannot guess as asked: it fails.
    Anything else was not the candidate."""
    sentence = "; ".join(mismatch.sentence for mismatch in mismatches)
    if all(mismatch.silent_fallback for mismatch in mismatches):
        verdict = Verdict(Outcome.FAIL, sentence, FailureClass.CPU_FALLBACK.value, base.trial.confidence)
        # Layers on the CPU take flash attention and kernels there with them, so they are the cause of both.
        fields = [mismatch.field for mismatch in mismatches]
        knob = "gpuLayers" if "gpuLayers" in fields else fields[0]
        return replace(base, verdict=verdict, failure=FailureClass.CPU_FALLBACK, failure_knob=knob)
    if all(mismatch.silent_fallback or mismatch.cannot_speculate for mismatch in mismatches):
        code = FailureClass.SPECULATION_UNAVAILABLE
        verdict = Verdict(Outcome.FAIL, sentence, code.value, base.trial.confidence)
        return replace(base, verdict=verdict, failure=code, failure_knob="speculation")
    return invalid(base, FailureClass.CONFIGURATION_MISMATCH.value, sentence)


def invalid(base: TrialResult, code: str, sentence: str) -> TrialResult:
    """The measurement was at fault, not the candidate."""
    return replace(base, verdict=Verdict(Outcome.INVALID, sentence, code, base.trial.confidence))


def broken(error: Exception, confidence: float) -> Verdict:
    """Something of ours broke while measuring: no word about the candidate."""
    reason = f"the measurement broke on this machine: {error or type(error).__name__}"
    return Verdict(Outcome.INVALID, reason, "SandboxBroken", confidence)
