"""Why each candidate is not the answer: a chain of checks, the strongest reason first.

Each check finds one fact and is named after it; the order of the chain is data, and a test locks it.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.answers import PairState
from slotune.search.decision import Choice, Rejection
from slotune.search.evidence import Evidence
from slotune.search.lossiness import lossiness
from slotune.search.trial import Purpose

__all__ = ["CHECKS", "cost_gap", "rejections"]

Check = Callable[[Evidence, Candidate, Choice | None], Rejection | None]


def rejections(evidence: Evidence, choice: Choice | None) -> tuple[Rejection, ...]:
    """One reason for every candidate but the chosen one, those that were never started first."""
    problem = evidence.problem
    never_started = [Rejection(p.candidate, p.code, p.reason) for p in problem.pruned]
    others = (c for c in problem.candidates if choice is None or c != choice.candidate)
    return (*never_started, *(_first(evidence, candidate, choice) for candidate in others))


def cost_gap(evidence: Evidence, choice: Choice) -> Decimal:
    """Monthly cost that something undecided might still save, the choice itself on fewer replicas included.

    0 is proved cheapest: everything cheaper was ruled out by a bound or shown to fail.
    """
    least = choice.monthly_cost
    for candidate in evidence.problem.candidates:
        replicas = evidence.fewest_undecided(candidate)
        if replicas is not None:
            least = min(least, evidence.cost(candidate, replicas))
    return choice.monthly_cost - least


def _first(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> Rejection:
    for check in CHECKS:
        found = check(evidence, candidate, choice)
        if found is not None:
            return found
    raise AssertionError("the last check always finds something")


def _could_not_run(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection | None:
    out = evidence.knowledge.standing(candidate).out
    return None if out is None else Rejection(candidate, out.code, out.reason)


def _answers_too_different(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection | None:
    pair = evidence.knowledge.answers.of(candidate)
    return Rejection(candidate, pair.code, pair.reason) if pair.state is PairState.FAILED else None


def _did_not_pass(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> Rejection | None:
    standing = evidence.knowledge.standing(candidate)
    refused = standing.refused or (standing.set_aside[-1] if standing.set_aside else None)
    if refused is None:
        return None
    rate = refused.trial.rate
    half = ", half of what it was confirmed at" if refused.trial.purpose is Purpose.PARTIAL else ""
    return Rejection(
        candidate,
        refused.verdict.code,
        f"at {rate:.3g} requests/s{half}: {refused.verdict.reason}",
        rate,
        undecided=_may_be_cheaper(evidence, candidate, choice),
    )


def _can_never_keep_it(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection | None:
    floor = evidence.bounds.floor(candidate)
    return None if floor is None else Rejection(candidate, floor.code, floor.reason)


def _needs_too_many(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection | None:
    least, most = evidence.least_replicas(candidate), evidence.problem.hardware[candidate.gpu_class].replicas_max
    if least <= most:
        return None
    return Rejection(candidate, "TooManyReplicas", f"needs at least {least} replicas, {most} are allowed")


def _costs_more(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> Rejection | None:
    if choice is None:
        return None
    least = evidence.least_replicas(candidate)
    cost = evidence.cost(candidate, least)
    if cost <= choice.monthly_cost:
        return None
    return Rejection(
        candidate, "CostsMore", f"needs at least {least} x {candidate.gpu_class}, {cost:,.2f} a month: above the answer"
    )


def _passed_without_being_cheaper(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> Rejection | None:
    passed = evidence.knowledge.standing(candidate).passed
    if choice is None or passed is None:
        return None
    replicas = evidence.replicas_for(passed.trial.rate)
    if evidence.cost(candidate, replicas) < choice.monthly_cost:
        return Rejection(candidate, "NotConfirmed", f"passed once with {replicas}, not confirmed", undecided=True)
    return Rejection(candidate, "NoCheaper", f"keeps the promise with {replicas}, which costs no less than the answer")


def _cannot_be_cheaper(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> Rejection | None:
    if choice is None or _may_be_cheaper(evidence, candidate, choice):
        return None
    models = evidence.problem.models
    more_lossy = lossiness(candidate, models) > lossiness(choice.candidate, models)
    why = "loses more bits than the answer" if more_lossy else "the answer had passed before its turn"
    return Rejection(candidate, "NoCheaper", f"cannot be cheaper than the answer, and {why}")


def _answers_undecided(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection | None:
    pair = evidence.knowledge.answers.of(candidate)
    if pair.state is not PairState.UNDECIDED or evidence.knowledge.answers.may_win(candidate):
        return None
    return Rejection(candidate, pair.code, f"whether its answers hold is not known: {pair.reason}", undecided=True)


def _not_tried(evidence: Evidence, candidate: Candidate, _: Choice | None) -> Rejection:
    least = evidence.least_replicas(candidate)
    return Rejection(
        candidate, "NotTried", f"might do with {least}, but the search ended before its turn", undecided=True
    )


CHECKS: tuple[Check, ...] = (
    _could_not_run,
    _answers_too_different,
    _did_not_pass,
    _can_never_keep_it,
    _needs_too_many,
    _costs_more,
    _passed_without_being_cheaper,
    _cannot_be_cheaper,
    _answers_undecided,
    _not_tried,
)


def _may_be_cheaper(evidence: Evidence, candidate: Candidate, choice: Choice | None) -> bool:
    """Whether fewer replicas than the answer costs are still open for the candidate."""
    replicas = evidence.fewest_undecided(candidate)
    return replicas is not None and (choice is None or evidence.cost(candidate, replicas) < choice.monthly_cost)
