"""Did the machine stay the same? The baseline's idle speed, looked at again and again, tells.

What was measured between two looks that disagree is Invalid, whatever its verdict was, and is measured again; what that
happens to twice is given up at its rate, with this as the reason. The verdict is formed here from the probes and not
where the trial ran: a trial cannot know what the next look will say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotune.load.summary import IdleProbe
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["MACHINE_DRIFTED", "Drift", "crept", "drifts", "without_drifted"]

MACHINE_DRIFTED = "MachineDrifted"
"""Code of a verdict on a trial from a stretch in which the machine changed."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Two looks at the idle baseline."""

    before: IdleProbe
    after: IdleProbe

    @property
    def step(self) -> float:
        """Relative change of the time per token; a speed that was not measured did not change."""
        return _change(self.before.fastest_step, self.after.fastest_step)

    @property
    def prefill(self) -> float:
        """Relative change of the speed of reading."""
        return _change(self.before.fastest_prefill, self.after.fastest_prefill)

    @property
    def size(self) -> float:
        """The larger of the two, whichever way it went."""
        return max(abs(self.step), abs(self.prefill))

    def __str__(self) -> str:
        """What moved most, in words."""
        if abs(self.step) >= abs(self.prefill):
            before, after = 1000 * self.before.fastest_step, 1000 * self.after.fastest_step
            return f"its time per token went from {before:.3g} to {after:.3g} ms ({100 * self.step:+.0f} %)"
        before, after = self.before.fastest_prefill, self.after.fastest_prefill
        return f"its reading went from {before:,.0f} to {after:,.0f} tokens/s ({100 * self.prefill:+.0f} %)"


def drifts(problem: Problem, results: Sequence[TrialResult]) -> dict[int, Drift]:
    """By index, each load trial between two idle probes of the baseline that disagree by more than the limit.

    Each sentinel is compared with the one before it, not with the first: a machine that changed speed for good must not
    invalidate everything ever after. A probe that was itself at fault, on a throttled device, is no measure.
    """
    limit = problem.measurement.drift_limit
    drifted: dict[int, Drift] = {}
    reference: IdleProbe | None = None
    since: list[int] = []
    for index, result in enumerate(results):
        probe = _probe_of_baseline(problem, result)
        if result.trial.purpose is Purpose.SENTINEL:
            if probe is not None:
                drift = None if reference is None else Drift(reference, probe)
                if drift is not None and drift.size > limit:
                    drifted.update(dict.fromkeys(since, drift))
                reference, since = probe, []
            continue
        if not result.trial.purpose.puts_load:
            continue  # answers do not depend on speed
        if reference is None:
            reference = probe
        since.append(index)
    return drifted


def without_drifted(problem: Problem, results: Sequence[TrialResult]) -> list[TrialResult]:
    """``results``, each load trial of a stretch in which the machine changed made Invalid. Twice changes nothing."""
    allowed = f"{100 * problem.measurement.drift_limit:.3g} % are allowed"
    drifted = drifts(problem, results)
    return [
        result
        if (drift := drifted.get(index)) is None
        else replace(
            result,
            verdict=Verdict(
                Outcome.INVALID,
                f"the machine changed meanwhile: between two looks at the idle baseline {drift}, {allowed}",
                MACHINE_DRIFTED,
                result.trial.confidence,
            ),
        )
        for index, result in enumerate(results)
    ]


def crept(problem: Problem, results: Sequence[TrialResult]) -> Drift | None:
    """From the first look at the idle baseline to the last sentinel; None where there is no such pair.

    Steps that are each within the limit may add up, and no single stretch is to blame then.
    """
    first: IdleProbe | None = None
    last: IdleProbe | None = None
    for result in results:
        probe = None if result.trial.purpose.asks_answers else _probe_of_baseline(problem, result)
        if probe is not None and first is None:
            first = probe
        elif probe is not None and result.trial.purpose is Purpose.SENTINEL:
            last = probe
    return None if first is None or last is None else Drift(first, last)


def _probe_of_baseline(problem: Problem, result: TrialResult) -> IdleProbe | None:
    """None where it is another candidate's, or was measured on a device at fault."""
    faulty = result.verdict.outcome is Outcome.INVALID and result.verdict.code == "DeviceThrottled"
    return result.probe if result.trial.candidate == problem.baseline and not faulty else None


def _change(before: float, after: float) -> float:
    return after / before - 1 if before > 0 and after > 0 else 0.0
