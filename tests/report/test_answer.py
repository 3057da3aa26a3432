"""The first sentence is the answer, whatever the answer is."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from slotune.report.answer import answer_of, owed_sentence, owed_short
from slotune.report.standing import replicas_at, today_of
from slotune.search.decision import DecisionKind
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.report.samples import ALL, Sample, budget_exhausted, infeasible, worked_example


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("worked_example", "The promise can be kept for $1,460 a month; today’s $7,300 misses it."),
        ("budget_exhausted", "So far: the promise can be kept for $2,920 a month; today’s $7,300 misses it."),
        ("infeasible", "No configuration on this hardware can keep the promise."),
        ("inconclusive", "The measurements show neither that the promise is kept nor that it is broken."),
        ("invalid", "The measurements were at fault, so nothing was decided."),
        ("two_gpu_classes", "The promise can be kept for €766.50 a month; today’s €7,300 misses it."),
    ],
)
def test_each_ending_has_its_sentence(name: str, want: str) -> None:
    sample = ALL[name]()
    assert answer_of(sample.problem, sample.decision).headline == want


def _with(sample: Sample, *, replicas_today: int, today_passes: bool) -> str:
    """The headline when today's machines are ``replicas_today`` and keep the promise or not."""
    today, choice = sample.decision.today, sample.decision.choice
    assert today is not None
    assert choice is not None
    outcome = Outcome.PASS if today_passes else Outcome.FAIL
    trial = replace(today.result.trial, rate=sample.problem.demand.peak_rate / replicas_today)
    result = replace(today.result, trial=trial, verdict=replace(today.result.verdict, outcome=outcome))
    today = replace(today, replicas=replicas_today, monthly_cost=Decimal(1460 * replicas_today), result=result)
    decision = replace(sample.decision, today=today, baseline_result=result, steps=())
    return answer_of(sample.problem, decision).headline


def test_a_promise_that_is_kept_today_is_told_apart_from_one_that_is_missed() -> None:
    sample = worked_example()
    assert _with(sample, replicas_today=5, today_passes=True) == (
        "The promise kept for $7,300 a month today can be kept for $1,460."
    )
    assert "today the same money misses it" in _with(sample, replicas_today=1, today_passes=False)


def test_more_money_is_said_as_more_money() -> None:
    sample = budget_exhausted()
    assert _with(sample, replicas_today=1, today_passes=False) == (
        "So far: keeping the promise costs $2,920 a month, $1,460 more than today, which misses it."
    )


def test_what_runs_today_can_be_the_answer() -> None:
    sample = worked_example()
    today = sample.decision.today
    assert today is not None
    passed = replace(today.result, verdict=replace(today.result.verdict, outcome=Outcome.PASS))
    today = replace(today, result=passed)
    decision = replace(sample.decision, choice=today, today=today, baseline_result=passed, steps=())
    answer = answer_of(sample.problem, decision)
    assert answer.headline == "What runs today keeps the promise, and nothing cheaper does: $7,300 a month."
    assert answer.lead == "5 × a100-40g with the settings of today, on the machines of today."
    open_ended = replace(decision, kind=DecisionKind.BUDGET_EXHAUSTED)
    assert "nothing cheaper" not in answer_of(sample.problem, open_ended).headline


def test_two_currencies_are_never_subtracted() -> None:
    sample = ALL["two_gpu_classes"]()
    hardware = dict(sample.problem.hardware)
    hardware["l4"] = replace(hardware["l4"], currency="CHF")
    problem = replace(sample.problem, hardware=hardware)
    answer = answer_of(problem, sample.decision)
    assert answer.headline == "The promise can be kept for 766.50 CHF a month."
    assert "saves" not in answer.lead


def test_the_figures_are_those_of_the_decision() -> None:
    sample = worked_example()
    cost, wait, pace, per_million = answer_of(sample.problem, sample.decision).figures
    assert (cost.before, cost.after) == ("$7,300", "$1,460")
    assert (wait.before, wait.after, wait.before_misses, wait.after_misses) == ("2.8 s", "0.64 s", True, False)
    assert (pace.before, pace.after) == ("98", "43")
    assert (per_million.before, per_million.after) == ("$1.85", "$0.37")


def test_an_infeasible_answer_begins_with_what_stands_in_the_way() -> None:
    sample = infeasible()
    lead = answer_of(sample.problem, sample.decision).lead
    assert lead.startswith("A 4,000-token prompt alone takes 0.4 s")
    assert "It would take prompts of at most 2,400" in lead


def test_what_is_owed_is_said_without_percentiles_and_with() -> None:
    problem = worked_example().problem
    assert owed_sentence(problem) == (
        "At a peak of 6/s, 95 of 100 requests start to answer within 1 s and then write at least 30 tokens/s."
    )
    assert owed_short(problem) == "p95 TTFT ≤ 1 s and ≥ 30 tok/s per user at 6/s"
    without_pace = replace(problem, promise=Promise(0.5, None, 0.01))
    assert owed_short(without_pace) == "p99 TTFT ≤ 0.5 s at 6/s"


@pytest.mark.parametrize(("rate", "want"), [(6, 1), (3, 2), (6 / 5, 5), (6 / 7, 7), (60, 1), (4.5, 2), (0, None)])
def test_a_rate_stands_for_a_number_of_servers(rate: float, want: int | None) -> None:
    assert replicas_at(worked_example().problem, rate) == want


def test_a_pass_at_a_slower_rate_says_nothing_about_today() -> None:
    sample = worked_example()
    today = sample.decision.today
    assert today is not None
    verdict = replace(today.result.verdict, outcome=Outcome.PASS)
    slower = replace(today.result, trial=replace(today.result.trial, rate=0.75), verdict=verdict)
    decision = replace(sample.decision, today=replace(today, result=slower), baseline_result=slower, steps=())
    assert today_of(sample.problem, decision).keeps is None
    told = replace(decision, baseline_result=today.result)
    assert today_of(sample.problem, told).keeps is False
