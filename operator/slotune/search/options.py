"""Who stands in line, and in which order: every candidate with the smallest N that is still open for it."""

from __future__ import annotations

from slotune.llama.candidate import Candidate
from slotune.search.bounds import Bounds, replicas_at_least
from slotune.search.evidence import Option
from slotune.search.knowledge import Knowledge
from slotune.search.lossiness import lossiness
from slotune.search.problem import Problem
from slotune.search.standing import Standing

__all__ = ["best_options", "passed_options"]


def best_options(problem: Problem, knowledge: Knowledge, bounds: Bounds) -> list[Option]:
    """Every candidate that is still in, cheapest first.

    The order is total:
    1. cost per hour at the smallest open N, lower first;
    2. a known pass first: nothing needs to be asked again;
    3. least lossy first;
    4. most capacity (optimistic) first, for the headroom;
    5. fewest settings changed from what runs today;
    6. the candidate's fields, so that ties never depend on the order of the input.
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
