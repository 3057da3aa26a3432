"""From the evidence to the answer: what was chosen, what was proved, and what was not."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.llama.candidate import Candidate
from slotune.search.answers import QUALITY_TOO_LOW, PairState
from slotune.search.cost import cost_per_million_output_tokens
from slotune.search.decision import Choice, Decision, DecisionKind
from slotune.search.evidence import Evidence
from slotune.search.finalists import duel_of
from slotune.search.lossiness import lossiness
from slotune.search.problem import Problem
from slotune.search.proofs import compared_pairs, not_proved, proved
from slotune.search.rejections import cost_gap, rejections
from slotune.search.story import told_steps
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["conclude", "nearest_miss"]


def conclude(evidence: Evidence) -> Decision:
    """The decision when nothing is left to ask, or nothing left to ask with."""
    problem, knowledge = evidence.problem, evidence.knowledge
    choice = _cheapest_confirmed(evidence)
    kind = _kind(evidence, choice)
    if choice is None and kind is DecisionKind.BUDGET_EXHAUSTED:
        choice = _todays_pass(evidence)
    rejected = rejections(evidence, choice)
    gap = None if choice is None else cost_gap(evidence, choice)
    baseline_results = knowledge.standing(problem.baseline).results
    return Decision(
        kind=kind,
        reason=_reason(evidence, kind, choice),
        choice=choice,
        today=_todays(evidence),
        baseline_result=baseline_results[0] if baseline_results else None,
        steps=() if choice is None else told_steps(evidence, choice.candidate, choice.replicas),
        rejections=rejected,
        nearest=None if choice is not None else nearest_miss(problem, evidence.results),
        cost_gap=gap,
        considered=len(problem.candidates) + len(problem.pruned),
        confidence=None if choice is None else choice.result.verdict.confidence,
        gpu_seconds=knowledge.gpu_seconds,
        trials=knowledge.trials,
        proved=() if choice is None else proved(evidence, choice, gap, rejected),
        not_proved=not_proved(evidence, choice, gap, rejected),
        answers=compared_pairs(problem, knowledge.answers),
        noise_floor=knowledge.answers.floor,
    )


def nearest_miss(problem: Problem, results: Sequence[TrialResult]) -> TrialResult | None:
    """The measured trial that came closest to the promise: the least of its worst ratios of measured to owed."""

    def shortfall(result: TrialResult) -> float:
        shape, owed = result.latencies, problem.promise.tokens_per_second_per_user
        if shape.ttft_p95_s is None:
            return float("inf")
        slow = owed / shape.tokens_per_second_p5 if owed is not None and shape.tokens_per_second_p5 else 0.0
        return max(shape.ttft_p95_s / problem.promise.ttft_s, slow)

    missed = (r for r in results if r.verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE})
    return min((r for r in missed if shortfall(r) < float("inf")), key=shortfall, default=None)


def _kind(evidence: Evidence, choice: Choice | None) -> DecisionKind:
    first = evidence.options[0] if evidence.options else None
    if choice is not None and first is not None and first.known_pass:
        owed = evidence.problem.demand.peak_rate / first.replicas
        if evidence.knowledge.standing(first.candidate).is_confirmed(owed) and evidence.is_settled(first.candidate):
            return DecisionKind.FOUND
    if evidence.stopped_by_budget:
        return DecisionKind.BUDGET_EXHAUSTED
    if choice is not None:
        return DecisionKind.FOUND
    if evidence.knowledge.all_invalid:
        return DecisionKind.INVALID
    if any(_is_undecided(evidence, candidate) for candidate in evidence.problem.candidates):
        return DecisionKind.INCONCLUSIVE
    return DecisionKind.INFEASIBLE


def _is_undecided(evidence: Evidence, candidate: Candidate) -> bool:
    standing = evidence.knowledge.standing(candidate)
    asked = bool(standing.results or standing.set_aside)
    asked = asked or evidence.knowledge.answers.of(candidate).state is PairState.UNDECIDED
    return asked and evidence.fewest_undecided(candidate) is not None


def _choice(evidence: Evidence, candidate: Candidate, replicas: int, result: TrialResult) -> Choice:
    price = evidence.problem.hardware[candidate.gpu_class].price_per_hour
    demand = evidence.problem.demand
    tokens = result.latencies.mean_output_tokens or demand.mean_answer
    return Choice(
        candidate,
        replicas,
        evidence.cost(candidate, replicas),
        cost_per_million_output_tokens(replicas, price, demand.peak_rate, tokens),
        result,
        headroom=result.trial.rate * replicas / demand.peak_rate,
    )


def _cheapest_confirmed(evidence: Evidence) -> Choice | None:
    choices = []
    for candidate in evidence.problem.candidates:
        standing = evidence.knowledge.standing(candidate)
        if standing.out is not None or standing.confirmed is None or standing.passed is None:
            continue
        if not evidence.may_win(candidate):
            continue
        replicas = evidence.replicas_for(standing.confirmed.trial.rate)
        if replicas <= evidence.problem.hardware[candidate.gpu_class].replicas_max:
            choices.append(_choice(evidence, candidate, replicas, standing.confirmed))
    models, favourite = evidence.problem.models, _favourite(evidence)
    return min(
        choices,
        key=lambda c: (
            c.monthly_cost,
            lossiness(c.candidate, models),
            c.candidate != favourite,
            -c.headroom,
            repr(c.candidate),
        ),
        default=None,
    )


def _favourite(evidence: Evidence) -> Candidate | None:
    """Who won the comparison of two equals, where there was one."""
    duel = duel_of(evidence, evidence.options[0]) if evidence.options else None
    return None if duel is None else duel.favourite(evidence.problem)


def _todays(evidence: Evidence) -> Choice | None:
    """The baseline at today's replicas, whatever its verdict; None when it was not measured there."""
    problem, standing = evidence.problem, evidence.knowledge.standing(evidence.problem.baseline)
    owed = problem.demand.peak_rate / problem.replicas_today
    result = standing.passed if standing.passes(owed) else standing.refused if standing.is_refused(owed) else None
    if result is None and standing.out is not None and standing.results:
        result = standing.results[-1]  # it did not start
    return None if result is None else _choice(evidence, problem.baseline, problem.replicas_today, result)


def _todays_pass(evidence: Evidence) -> Choice | None:
    problem, standing = evidence.problem, evidence.knowledge.standing(evidence.problem.baseline)
    if standing.out is not None:  # at half of its load it broke the promise, say
        return None
    if standing.passed is None or not standing.passes(problem.demand.peak_rate / problem.replicas_today):
        return None
    if not evidence.knowledge.answers.may_win(problem.baseline):
        return None
    return _choice(evidence, problem.baseline, problem.replicas_today, standing.passed)


def _reason(evidence: Evidence, kind: DecisionKind, choice: Choice | None) -> str:
    problem = evidence.problem
    what = "" if choice is None else f"{choice.replicas} x {choice.candidate.gpu_class}"
    most = max(h.replicas_max for h in problem.hardware.values())
    return {
        DecisionKind.FOUND: f"{what} is the cheapest that was measured to keep the promise",
        DecisionKind.BUDGET_EXHAUSTED: (
            "the budget ended before any configuration was confirmed to keep the promise"
            if choice is None
            else f"the budget ended early: {what} keeps the promise, something cheaper might too"
        ),
        DecisionKind.INVALID: "no measurement was valid, so nothing could be decided",
        DecisionKind.INCONCLUSIVE: (
            "no configuration could be shown to keep the promise, and some could not be shown to break it"
        ),
        DecisionKind.INFEASIBLE: f"no configuration of this space keeps the promise, not even with {most} replicas",
    }[kind] + _refused_for_answers(evidence, choice)


def _refused_for_answers(evidence: Evidence, choice: Choice | None) -> str:
    """How many pairs are no answer because they give other ones, where there is no other answer."""
    pairs = compared_pairs(evidence.problem, evidence.knowledge.answers)
    failed = [pair for pair in pairs if pair.code == QUALITY_TOO_LOW]
    if choice is not None or not failed or evidence.problem.quality is None:
        return ""
    return f"; {', '.join(pair.pair.label for pair in failed)} would answer too differently for " + (
        evidence.problem.quality.limits.name
    )
