"""Everything that a conclusion may look at, in one value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.answers import PairState
from slotune.search.bounds import Bounds, replicas_at_least
from slotune.search.decision import monthly_cost
from slotune.search.knowledge import Knowledge
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.search.trial import TrialResult

__all__ = ["Evidence", "Option"]


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate with the smallest N that is still open for it."""

    candidate: Candidate
    replicas: int
    cost_per_hour: Decimal
    capacity_at_most: float
    """Requests per second of one server, optimistic."""
    known_pass: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """A problem, what was measured, and what follows from both."""

    problem: Problem
    results: Sequence[TrialResult]
    knowledge: Knowledge
    bounds: Bounds
    options: Sequence[Option]
    """Open options, cheapest first."""
    stopped_by_budget: bool = False

    def replicas_for(self, rate: float) -> int:
        """Fewest replicas for which each gets at most ``rate``."""
        return replicas_at_least(self.problem.demand.peak_rate, rate)

    def least_replicas(self, candidate: Candidate) -> int:
        """Fewest replicas that the bounds allow."""
        return self.replicas_for(self.bounds.capacity_at_most(candidate))

    def fewest_undecided(self, candidate: Candidate) -> int | None:
        """Fewest replicas at which the candidate may still keep the promise: neither bound nor Fail says no.

        None when it is out at every rate, answers too differently, or is shown to fail up to the most replicas allowed.
        """
        standing = self.knowledge.standing(candidate)
        if self.knowledge.answers.of(candidate).state is PairState.FAILED:
            return None
        if standing.out is not None or (standing.passed is None and self.bounds.floor(candidate) is not None):
            return None
        peak = self.problem.demand.peak_rate
        replicas = self.least_replicas(candidate)
        while (
            standing.is_failed(peak / replicas) and replicas <= self.problem.hardware[candidate.gpu_class].replicas_max
        ):
            replicas += 1
        return replicas if replicas <= self.problem.hardware[candidate.gpu_class].replicas_max else None

    def may_win(self, candidate: Candidate) -> bool:
        """Whether nothing but its own passes is missing: its answers hold, and half of its load where that is owed."""
        return self.knowledge.answers.may_win(candidate) and (
            not must_hold_half(candidate, self.problem.baseline) or self.holds_half(candidate)
        )

    def is_settled(self, candidate: Candidate) -> bool:
        """Whether it may win, and no comparison of its answers is still owed."""
        return self.may_win(candidate) and self.knowledge.answers.owed_before(candidate) is None

    def holds_half(self, candidate: Candidate) -> bool:
        """Whether half of the rate at which it was confirmed was shown to hold as well."""
        standing = self.knowledge.standing(candidate)
        return standing.confirmed is not None and standing.holds_half_of(standing.confirmed.trial.rate)

    def cost(self, candidate: Candidate, replicas: int) -> Decimal:
        """Monthly cost."""
        return monthly_cost(replicas, self.problem.hardware[candidate.gpu_class].price_per_hour)
