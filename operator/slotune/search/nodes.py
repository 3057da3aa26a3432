"""On which node of a cluster a trial tells most: that of the trials which it is compared with.

Most trials are held against the promise, which is the same everywhere. A look at the machine is about one node, and the
blocks of two finalists are about each other, so they had better run where the others did. It is a wish: a node may be
full or gone, and a trial that runs elsewhere is no worse, it only says less (:class:`slotune.search.drift.Watch`).
"""

from __future__ import annotations

from collections.abc import Sequence

from slotune.search.drift import Watch
from slotune.search.problem import Problem
from slotune.search.standing import same_rate
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["preferred_node"]


def preferred_node(problem: Problem, results: Sequence[TrialResult], trial: Trial) -> str | None:
    """Name of the node; None where any will do."""
    if trial.purpose is Purpose.SENTINEL:
        place = Watch.from_results(problem, results).place_of(trial.candidate)
        return None if place is None else place.node or None
    if trial.purpose is not Purpose.FINALIST:
        return None
    sound = [result for result in results if result.verdict.outcome is not Outcome.INVALID and result.node]
    blocks = [result for result in sound if result.trial.purpose is Purpose.FINALIST]
    same_class = [r for r in blocks if r.trial.candidate.gpu_class == trial.candidate.gpu_class]
    before = [r for r in sound if r.trial.candidate == trial.candidate and same_rate(r.trial.rate, trial.rate)]
    return next((result.node for result in (*same_class, *reversed(before))), None)
