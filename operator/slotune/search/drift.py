"""Did the machine stay the same? The baseline's idle speed, looked at again and again, tells."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult

__all__ = ["drifted_trials"]


def drifted_trials(problem: Problem, results: Sequence[TrialResult]) -> frozenset[int]:
    """Indices of trials between two idle probes of the baseline that disagree by more than the limit.

    Each sentinel is compared with the one before it, not with the first: a machine that changed
    speed for good must not invalidate everything ever after.
    """
    limit = problem.measurement.drift_limit
    drifted: set[int] = set()
    reference = None
    since: list[int] = []
    for index, result in enumerate(results):
        is_probe = result.trial.candidate == problem.baseline and result.probe is not None
        if result.trial.purpose is Purpose.SENTINEL:
            if is_probe:
                if reference is not None and _change(reference, result) > limit:
                    drifted.update(since)
                reference, since = result, []
            continue
        if not result.trial.purpose.puts_load:
            continue  # answers do not depend on speed
        if reference is None and is_probe:
            reference = result
        since.append(index)
    return frozenset(drifted)


def _change(before: TrialResult, after: TrialResult) -> float:
    """Largest relative change of prefill speed and decode step; a speed that was not measured did not change."""
    assert before.probe is not None
    assert after.probe is not None
    pairs = (
        (before.probe.fastest_prefill, after.probe.fastest_prefill),
        (before.probe.fastest_step, after.probe.fastest_step),
    )
    return max((abs(new / old - 1) for old, new in pairs if old > 0 and new > 0), default=0.0)
