"""From the evidence to the answer: what was chosen, what was proved, and what was not."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.cost import cost_per_million_output_tokens
from slotune.search.decision import Choice, Decision, DecisionKind, Rejection
from slotune.search.evidence import Evidence
from slotune.search.lossiness import lossiness
from slotune.search.problem import Problem
from slotune.search.rejections import cost_gap, rejections
from slotune.search.story import told_steps
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["PRODUCTION_CONFIDENCE", "conclude", "nearest_miss"]

PRODUCTION_CONFIDENCE = 0.95
"""What a production decision deserves; anything less is said in the answer."""


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
        reason=_reason(problem, kind, choice),
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
        proved=() if choice is None else _proved(problem, choice, gap, rejected),
        not_proved=_not_proved(problem, choice, gap, rejected, knowledge.sentinels_failed),
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
        if evidence.knowledge.standing(first.candidate).is_confirmed(owed):
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
        replicas = evidence.replicas_for(standing.confirmed.trial.rate)
        if replicas <= evidence.problem.hardware[candidate.gpu_class].replicas_max:
            choices.append(_choice(evidence, candidate, replicas, standing.confirmed))
    models = evidence.problem.models
    return min(
        choices,
        key=lambda c: (c.monthly_cost, lossiness(c.candidate, models), -c.headroom, repr(c.candidate)),
        default=None,
    )


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
    if standing.passed is None or not standing.passes(problem.demand.peak_rate / problem.replicas_today):
        return None
    return _choice(evidence, problem.baseline, problem.replicas_today, standing.passed)


def _reason(problem: Problem, kind: DecisionKind, choice: Choice | None) -> str:
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
    }[kind]


def _changes_answers(problem: Problem, candidate: Candidate) -> bool:
    """Whether weights or KV type differ from what runs today."""
    return bool({"variant", "cache_type_k", "cache_type_v"} & set(candidate.changed_from(problem.baseline)))


def _proved(problem: Problem, choice: Choice, gap: Decimal | None, rejected: Sequence[Rejection]) -> tuple[str, ...]:
    verdict = choice.result.verdict
    sure = f"{100 * verdict.confidence:.3g} % sure"
    promise = (
        f"the promise holds at {choice.result.trial.rate:.3g} requests/s a server, {sure}: "
        f"{verdict.violations} of {verdict.requests} requests broke it on a fresh start with fresh seeds, "
        f"{100 * problem.promise.violation_share:.3g} % may"
    )
    return (promise, f"nothing among {len(rejected) + 1} candidates can be cheaper") if gap == 0 else (promise,)


def _not_proved(
    problem: Problem,
    choice: Choice | None,
    gap: Decimal | None,
    rejected: Sequence[Rejection],
    sentinels_failed: int,
) -> tuple[str, ...]:
    sentences = []
    undecided = sum(r.undecided for r in rejected)
    currency = "" if choice is None else problem.hardware[choice.candidate.gpu_class].currency
    if choice is None and undecided:
        sentences.append(f"{undecided} {'candidate was' if undecided == 1 else 'candidates were'} not decided")
    if gap:
        sentences.append(
            f"what is undecided ({undecided} candidates, or fewer replicas) might save {gap:,.2f} {currency} a month"
        )
    if sentinels_failed:
        sentences.append("whether the machine kept its speed could not be looked at again")
    if choice is not None and choice.result.trial.seed_block == 0:
        sentences.append("the answer was measured once and not confirmed on a fresh start")
    if choice is not None and problem.quality != "Off" and _changes_answers(problem, choice.candidate):
        sentences.append(
            f"quality {problem.quality} is owed and was not measured: {choice.candidate.variant} with KV type "
            f"{choice.candidate.cache_type_k} may answer differently, so compare answers before it serves users"
        )
    if problem.measurement.confidence < PRODUCTION_CONFIDENCE:
        sentences.append(
            f"confidence was lowered to {100 * problem.measurement.confidence:.3g} % for this run: "
            f"a production decision deserves {100 * PRODUCTION_CONFIDENCE:.3g} %"
        )
    return tuple(sentences)
