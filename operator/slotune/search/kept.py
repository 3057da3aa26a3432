"""What trials show to keep the promise, by a rule of its own: by the search's bookkeeping a defect would hide itself.

A configuration is shown to keep it when a trial passed at its rate or a faster one, another one on fresh seeds did so
as well, nothing measured of the candidate at such a rate or a slower one said otherwise, half of its rate holds where
that is owed, and its answers were shown to hold where somebody asks. A block of a comparison of finalists is a run long
and says nothing about the promise, either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.bounds import replicas_at_least
from slotune.search.decision import monthly_cost
from slotune.search.lossiness import lossiness
from slotune.search.pairs import pair_of, reference_pair
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.search.standing import same_rate
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["Passing", "cheapest_kept", "is_kept"]


@dataclass(frozen=True, slots=True)
class Passing:
    """A configuration that was recorded to keep the promise."""

    candidate: Candidate
    replicas: int
    monthly_cost: Decimal


def cheapest_kept(problem: Problem, results: Sequence[TrialResult]) -> Passing | None:
    """The cheapest configuration that ``results`` show to keep the promise and that may be the answer.

    Of equals the least lossy one; None when nothing was shown to keep it.
    """
    allowed, models = set(problem.candidates), problem.models
    found = []
    for result in results:
        trial = result.trial
        if trial.purpose is not Purpose.CONFIRM or not result.passed or trial.candidate not in allowed:
            continue
        hardware = problem.hardware[trial.candidate.gpu_class]
        replicas = replicas_at_least(problem.demand.peak_rate, trial.rate)
        if replicas <= hardware.replicas_max and is_kept(problem, trial.candidate, replicas, results):
            found.append(Passing(trial.candidate, replicas, monthly_cost(replicas, hardware.price_per_hour)))
    return min(
        found, key=lambda it: (it.monthly_cost, lossiness(it.candidate, models), repr(it.candidate)), default=None
    )


def is_kept(
    problem: Problem,
    candidate: Candidate,
    replicas: int,
    shown: Sequence[TrialResult],
    against: Sequence[TrialResult] = (),
    *,
    stays: bool = False,
) -> bool:
    """Whether ``replicas`` servers of ``candidate`` are shown to keep the promise.

    Args:
        problem: the search.
        candidate: what each of them runs.
        replicas: servers that share the peak.
        shown: trials that may show it.
        against: more trials that may say otherwise.
        stays: whether it runs today, and stays because the budget ended: then a pass that nothing denies is enough.
    """
    owed = problem.demand.peak_rate / replicas
    own = [result for result in shown if result.trial.candidate == candidate and _is_full(result.trial)]
    passes = [result for result in own if result.passed and _at_least(result.trial.rate, owed)]
    first = [result.trial for result in passes if result.trial.seed_block == 0]
    again = [r.trial for r in passes if r.trial.purpose is Purpose.CONFIRM and r.trial.seed_block > 0]
    others = [*shown, *against]
    if stays:
        return any(not _is_denied(candidate, trial.rate, others) for trial in first)
    halves = must_hold_half(candidate, problem.baseline)
    return (
        bool(first)
        and _answers_hold(problem, candidate, shown)
        and any(
            not _is_denied(candidate, trial.rate, others) and (not halves or _holds_half(candidate, trial.rate, shown))
            for trial in again
        )
    )


def _is_full(trial: Trial) -> bool:
    """Whether it is a whole measurement at the rate that it is about."""
    return trial.purpose.puts_load and trial.purpose not in {Purpose.PARTIAL, Purpose.FINALIST}


def _is_denied(candidate: Candidate, rate: float, results: Iterable[TrialResult]) -> bool:
    """Whether something measured of ``candidate`` at ``rate`` or a slower one did not pass."""
    return any(
        result.verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}
        and result.trial.candidate == candidate
        and result.trial.purpose.puts_load
        and result.trial.purpose is not Purpose.FINALIST
        and _at_least(rate, result.trial.rate)
        for result in results
    )


def _holds_half(candidate: Candidate, rate: float, results: Iterable[TrialResult]) -> bool:
    return any(
        result.passed
        and result.trial.candidate == candidate
        and result.trial.purpose is Purpose.PARTIAL
        and same_rate(result.trial.rate, rate / 2)
        for result in results
    )


def _answers_hold(problem: Problem, candidate: Candidate, results: Iterable[TrialResult]) -> bool:
    """Whether the candidate's answers are good enough: the reference's, today's, or compared with success."""
    pair = pair_of(candidate)
    if problem.quality is None or pair in {reference_pair(problem), pair_of(problem.baseline)}:
        return True
    compared = [r for r in results if r.trial.purpose is Purpose.QUALITY and pair_of(r.trial.candidate) == pair]
    return bool(compared) and compared[-1].passed


def _at_least(rate: float, other: float) -> bool:
    return rate >= other or same_rate(rate, other)
