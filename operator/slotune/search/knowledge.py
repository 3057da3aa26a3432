"""What every result so far says about each candidate: the fold that makes the search stateless.

Capacity is monotone: a pass at a rate is a pass below it, a fail at a rate is a fail above it.
So all that must be remembered of a candidate is the fastest rate that passed and the slowest
that did not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from slotune.llama.candidate import Candidate
from slotune.search.problem import Problem, Pruned
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["ATTEMPTS", "Knowledge", "Standing", "same_rate"]

ATTEMPTS = 2
"""An Invalid measurement is repeated once, then the candidate is set aside at that rate."""


def same_rate(left: float, right: float) -> bool:
    """Whether two rates are one question (they may differ by rounding)."""
    return math.isclose(left, right, rel_tol=1e-6)


@dataclass(slots=True)
class Standing:
    """One candidate's record."""

    results: list[TrialResult] = field(default_factory=list)
    """Load trials whose verdict still counts, oldest first."""
    passed: TrialResult | None = None
    """The pass at the fastest rate, not overruled by a confirmation."""
    confirmed: TrialResult | None = None
    """The confirmation that passed at the fastest rate."""
    refused_from: float = math.inf
    """Slowest rate that did not pass: nothing at or above it will."""
    refused: TrialResult | None = None
    """The trial behind ``refused_from``."""
    out: Pruned | None = None
    """Why the candidate is out at every rate."""

    def passes(self, rate: float) -> bool:
        """Whether a pass at ``rate`` or above is known."""
        return self.passed is not None and (self.passed.trial.rate >= rate or same_rate(self.passed.trial.rate, rate))

    def is_confirmed(self, rate: float) -> bool:
        """Whether a confirmation at ``rate`` or above passed."""
        return self.confirmed is not None and (
            self.confirmed.trial.rate >= rate or same_rate(self.confirmed.trial.rate, rate)
        )

    def is_refused(self, rate: float) -> bool:
        """Whether ``rate`` or a slower one was tried without a pass."""
        return rate >= self.refused_from or same_rate(rate, self.refused_from)

    def accept(self, result: TrialResult) -> None:
        """Remember a pass, or a confirmation, when it is at a faster rate than the one before."""
        before = self.confirmed if result.trial.seed_block > 0 else self.passed
        if before is not None and before.trial.rate >= result.trial.rate:
            return
        if result.trial.seed_block > 0:
            self.confirmed = result
        else:
            self.passed = result

    def refuse(self, result: TrialResult) -> None:
        """Remember a rate that did not pass; it overrules a pass at or above it (fresh seeds did not agree)."""
        if result.trial.rate < self.refused_from:
            self.refused_from, self.refused = result.trial.rate, result
        if self.passed is not None and self.is_refused(self.passed.trial.rate):
            self.passed = self.confirmed = None


@dataclass(slots=True)
class Knowledge:
    """The fold of all results of one search."""

    standings: dict[Candidate, Standing]
    confirmations_failed: int = 0
    """Each one halves the error that the next confirmation may make."""
    gpu_seconds: float = 0.0
    trials: int = 0
    sound: list[TrialResult] = field(default_factory=list)
    """Results whose measurement can be trusted: neither Invalid nor from a stretch in which the machine drifted."""
    since_sentinel: int = 0
    """Trials since the machine was last seen undrifted."""
    all_invalid: bool = False

    @classmethod
    def from_results(cls, problem: Problem, results: Sequence[TrialResult]) -> Knowledge:
        """Fold ``results`` in the order in which they were measured."""
        knowledge = cls({})
        drifted = _drifted(problem, results)
        for index, result in enumerate(results):
            knowledge.trials += 1
            knowledge.gpu_seconds += result.gpu_seconds
            if index not in drifted and result.verdict.outcome is not Outcome.INVALID:
                knowledge.sound.append(result)
            if result.trial.purpose is Purpose.SENTINEL:
                knowledge.since_sentinel = 0
                continue
            knowledge.since_sentinel += 1
            if index not in drifted or result.trial.attempt >= ATTEMPTS:
                knowledge._learn(problem, result)
        load = [r for r in results if r.trial.purpose is not Purpose.SENTINEL]
        knowledge.all_invalid = bool(load) and all(
            r.verdict.outcome is Outcome.INVALID or i in drifted for i, r in enumerate(load)
        )
        return knowledge

    def standing(self, candidate: Candidate) -> Standing:
        """The record of ``candidate``; an empty one when it was never tried."""
        return self.standings.setdefault(candidate, Standing())

    def attempts(self, candidate: Candidate, rate: float, seed_block: int, results: Sequence[TrialResult]) -> int:
        """How often this question was measured, Invalid and drifted ones included."""
        return sum(
            r.trial.candidate == candidate
            and same_rate(r.trial.rate, rate)
            and r.trial.seed_block == seed_block
            and r.trial.purpose is not Purpose.SENTINEL
            for r in results
        )

    def _learn(self, problem: Problem, result: TrialResult) -> None:
        trial, standing = result.trial, self.standing(result.trial.candidate)
        outcome = result.verdict.outcome
        if outcome is Outcome.INVALID and trial.attempt < ATTEMPTS:
            return
        standing.results.append(result)
        if result.failure is not None:
            standing.out = Pruned(trial.candidate, result.failure.value, result.verdict.reason)
            if result.failure.is_memory:
                self._remove_hungrier(problem, result)
            return
        if outcome is Outcome.PASS:
            standing.accept(result)
            return
        if trial.seed_block > 0:
            self.confirmations_failed += 1
        standing.refuse(result)

    def _remove_hungrier(self, problem: Problem, crashed: TrialResult) -> None:
        """A crash on memory removes every candidate of the GPU class that needs at least as much."""
        needs = problem.memory_bytes
        own = crashed.trial.candidate
        if own not in needs:
            return
        for candidate, bytes_needed in needs.items():
            if candidate != own and candidate.gpu_class == own.gpu_class and bytes_needed >= needs[own]:
                standing = self.standing(candidate)
                if standing.out is None and not standing.results:
                    standing.out = Pruned(
                        candidate,
                        "NeedsMoreMemory",
                        f"needs {bytes_needed / 2**20:,.0f} MiB; one that needs {needs[own] / 2**20:,.0f} MiB "
                        "ran out of memory",
                    )


def _drifted(problem: Problem, results: Sequence[TrialResult]) -> frozenset[int]:
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
