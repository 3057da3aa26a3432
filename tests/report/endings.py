"""Searches that ended in another way than found."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from slotune.search.decision import Decision, DecisionKind, Rejection
from slotune.search.problem import Budget, Pruned
from slotune.search.trial import Purpose
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.report.building import Sample, choice, trial_result
from tests.report.worked import BASELINE, worked_example, worked_problem


def infeasible() -> Sample:
    """Reading one prompt alone takes longer than owed: nothing can keep the promise."""
    problem = replace(
        worked_problem(), name="rag-long", promise=Promise(0.25, 30.0), replicas_today=2, pruned=worked_problem().pruned
    )
    best = replace(BASELINE, variant="Q4_K_M", parallel_slots=16, batch_size=4096)
    results = (
        trial_result(
            BASELINE, 3.0, Outcome.FAIL, reason="51 of 51 requests were late, 50 are allowed of 1,000", p95=27.5,
            tokens=55, split=(21.0, 0.4, 0.4, 0.004), violations=51, requests=51, purpose=Purpose.BASELINE,
            seconds=70,
        ),
        trial_result(
            best, 0.75, Outcome.FAIL, reason="51 of 52 requests were late, 50 are allowed of 1,000", p95=0.46,
            tokens=72, split=(0.0, 0.4, 0.03, 0.004), violations=51, requests=52, seconds=88,
        ),
    )  # fmt: skip
    pruned = {p.candidate for p in problem.pruned}
    decision = Decision(
        kind=DecisionKind.INFEASIBLE,
        reason="It would take prompts of at most 2,400 uncached tokens, or a GPU that reads 16,000 tokens/s.",
        today=choice(problem, results[0], 2),
        baseline_result=results[0],
        rejections=(
            Rejection(BASELINE, "TooManyViolations", "51 of 51 requests were late at 3/s, 50 are allowed", 3.0),
            Rejection(best, "TooManyViolations", "51 of 52 requests were late at 0.75/s, 50 are allowed", 0.75),
            *(
                Rejection(c, "TTFTFloor", "a 4,000-token prompt alone takes 0.4 s to read, 0.25 s are owed")
                for c in problem.candidates
                if c not in pruned and c not in {BASELINE, best}
            ),
        ),
        binding_constraint="TTFTPrefill",
        binding_reason="A 4,000-token prompt alone takes 0.4 s to read here (10,000 tokens/s), you owe 0.25 s.",
        nearest=results[1],
        considered=len(problem.candidates) + len(problem.pruned),
        confidence=0.95,
        gpu_seconds=158,
        trials=2,
        proved=("No declared configuration can read a prompt in the time that is owed.",),
    )
    return Sample(problem, decision, results)


def budget_exhausted() -> Sample:
    """The budget ended with a confirmed answer and cheaper candidates still open."""
    sample = worked_example()
    cache_pass = sample.results[7]
    open_ones = [c for c in sample.problem.candidates if c.variant == "Q4_K_M"][:40]
    others = [r for r in sample.decision.rejections if r.candidate not in open_ones and "More" not in r.code]
    decision = replace(
        sample.decision,
        kind=DecisionKind.BUDGET_EXHAUSTED,
        reason="The budget of 30 GPU-minutes ended before every cheaper configuration was decided.",
        choice=choice(sample.problem, cache_pass, 2),
        steps=sample.decision.steps[:3],
        rejections=(
            *others,
            *(Rejection(c, "BudgetExhausted", "the budget ended before its turn", undecided=True) for c in open_ones),
        ),
        cost_gap=Decimal("1460.00"),
        proved=("2 × a100-40g keeps the promise.",),
        not_proved=("Whether 1 × a100-40g is enough: 40 candidates were not decided.",),
    )
    problem = replace(sample.problem, budget=Budget(1800, 12))
    return replace(sample, problem=problem, decision=decision, results=(sample.results[0], *sample.results[4:8]))


def inconclusive() -> Sample:
    """Too close to call at the requests that were allowed."""
    problem = replace(worked_problem(), candidates=(BASELINE,), pruned=(), replicas_today=5)
    result = trial_result(
        BASELINE, 1.2, Outcome.INCONCLUSIVE, reason="48 of 1,000 requests were late: too close to the 50 allowed",
        p95=0.99, tokens=41, split=(0.3, 0.4, 0.05, 0.004), violations=48, purpose=Purpose.BASELINE,
    )  # fmt: skip
    decision = Decision(
        kind=DecisionKind.INCONCLUSIVE,
        reason="One configuration is too close to the promise to be told apart with 1,000 requests.",
        today=choice(problem, result, 5),
        baseline_result=result,
        rejections=(Rejection(BASELINE, "TooClose", result.verdict.reason, 1.2, undecided=True),),
        nearest=result,
        considered=1,
        confidence=0.95,
        gpu_seconds=300,
        trials=1,
        not_proved=("Whether what runs today keeps the promise.",),
    )
    return Sample(problem, decision, (result,))


def invalid() -> Sample:
    """The client could not keep its schedule, so no number may be used."""
    problem = worked_problem()
    result = trial_result(
        BASELINE, 1.2, Outcome.INVALID, reason="the load client sent requests 42 ms late (p99), 10 ms are allowed",
        code="ClientLate", requests=0, warnings=("The client used 91 % of its CPU.",), purpose=Purpose.BASELINE,
    )  # fmt: skip
    decision = Decision(
        kind=DecisionKind.INVALID,
        reason="Two measurements in a row were at fault: the load client was late.",
        baseline_result=result,
        rejections=(Rejection(BASELINE, "ClientLate", result.verdict.reason, 1.2, undecided=True),),
        considered=len(problem.candidates) + len(problem.pruned),
        gpu_seconds=600,
        trials=2,
    )
    return Sample(problem, decision, (result, replace(result, trial=replace(result.trial, attempt=2))))


def nothing_measured() -> Sample:
    """No trial ever ran: everything was pruned."""
    problem = replace(worked_problem(), candidates=(BASELINE,), pruned=(Pruned(BASELINE, "DoesNotFit", "too big"),))
    decision = Decision(
        kind=DecisionKind.INFEASIBLE,
        reason="Nothing fits.",
        binding_constraint="Memory",
        binding_reason="The smallest configuration needs 48 GiB, the GPU has 40 GiB.",
        considered=1,
    )
    return Sample(problem, decision, ())
