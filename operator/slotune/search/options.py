"""Who stands in line, and in which order: every candidate with the smallest N that is still open for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from slotune.llama.candidate import Candidate
from slotune.search.bounds import Bounds, replicas_at_least
from slotune.search.evidence import Option
from slotune.search.knowledge import Knowledge
from slotune.search.lossiness import lossiness
from slotune.search.problem import Problem
from slotune.search.standing import Standing
from slotune.search.trial import TrialResult

__all__ = ["NO_PREFERENCE", "Preference", "best_options", "passed_options", "unhinted"]

Preference = Mapping[Candidate, int]
"""Which of equals to ask first: the least number; a candidate that is not named has 0."""
NO_PREFERENCE: Final[Preference] = MappingProxyType({})


def unhinted(_problem: Problem, _results: Sequence[TrialResult]) -> Preference:
    """Nobody knows which of equals should be asked first."""
    return NO_PREFERENCE


def best_options(
    problem: Problem, knowledge: Knowledge, bounds: Bounds, preferred: Preference = NO_PREFERENCE
) -> list[Option]:
    """Every candidate that is still in, cheapest first.

    The order is total:
    1. cost per hour at the smallest open N, lower first;
    2. a known pass first: nothing needs to be asked again;
    3. least lossy first;
    4. what is not known to pass as ``preferred`` has it: it only says which question to ask first;
    5. most capacity (optimistic) first, for the headroom;
    6. fewest settings changed from what runs today;
    7. the candidate's fields, so that ties never depend on the order of the input.
    """
    options = []
    for candidate in problem.candidates:
        if not knowledge.answers.may_be_asked(candidate):
            continue
        option = _option(problem, candidate, knowledge.standing(candidate), bounds)
        if option is not None:
            options.append(option)
    options.sort(
        key=lambda o: (
            o.cost_per_hour,
            not o.known_pass,
            lossiness(o.candidate, problem.models),
            0 if o.known_pass else preferred.get(o.candidate, 0),
            -o.capacity_at_most,
            len(o.candidate.changed_from(problem.baseline)),
            repr(o.candidate),
        )
    )
    return options


def _option(problem: Problem, candidate: Candidate, standing: Standing, bounds: Bounds) -> Option | None:
    hardware = problem.hardware[candidate.gpu_class]
    if standing.out is not None or (standing.passed is None and bounds.floor(candidate) is not None):
        return None
    capacity = bounds.capacity_at_most(candidate)
    peak = problem.demand.peak_rate
    replicas = replicas_at_least(peak, capacity)
    if standing.passed is not None:  # what was measured beats a bound that noise made too low
        replicas = min(replicas, replicas_at_least(peak, standing.passed.trial.rate))
    while replicas <= hardware.replicas_max and standing.is_closed(peak / replicas):
        replicas += 1
    if replicas > hardware.replicas_max:
        return None
    return Option(
        candidate,
        replicas,
        hardware.price_per_hour * replicas,
        capacity,
        standing.passes(peak / replicas),
    )


def passed_options(problem: Problem, knowledge: Knowledge) -> list[Option]:
    """Candidates that passed somewhere and may win, at the N of that pass, cheapest first."""
    found = []
    for candidate, standing in knowledge.standings.items():
        if standing.passed is None or standing.out is not None or candidate not in problem.candidates:
            continue
        if not knowledge.answers.may_win(candidate):
            continue
        replicas = replicas_at_least(problem.demand.peak_rate, standing.passed.trial.rate)
        price = problem.hardware[candidate.gpu_class].price_per_hour
        found.append(Option(candidate, replicas, price * replicas, 0.0, known_pass=True))
    return sorted(found, key=lambda o: (o.cost_per_hour, repr(o.candidate)))
