"""What each change bought is told in order, and a missed step is never shown as a price one could pay."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from slotune.report.bought import StepState, bought_steps, saved_phrase, state_phrase
from tests.report.samples import demo_like, infeasible, worked_example


def test_the_worked_example_goes_from_five_machines_to_one() -> None:
    sample = worked_example()
    rows = bought_steps(sample.problem, sample.decision)
    assert [(r.title, r.replicas, r.cost) for r in rows] == [
        ("Today", 5, Decimal("7300.00")),
        ("Queue", 4, Decimal("5840.00")),
        ("Cache", 2, Decimal("2920.00")),
        ("Bytes", 1, Decimal("1460.00")),
    ]
    assert [saved_phrase(sample.problem, r) for r in rows] == ["", "saves $1,460", "saves $2,920", "saves $1,460"]
    assert rows[1].changes == ("8 → 16 slots",)
    assert rows[3].changes == ("BF16 → Q8_0", "KV f16 → q8_0")


def test_a_step_that_misses_is_marked_and_saves_nothing() -> None:
    sample = worked_example()
    missed = sample.results[4]
    steps = list(sample.decision.steps)
    steps[1] = replace(steps[1], replicas=None, monthly_cost=None, result=missed, kept=False)
    rows = bought_steps(sample.problem, replace(sample.decision, steps=tuple(steps)))
    assert rows[1].state is StepState.MISSED
    assert rows[1].replicas == 3, "the replicas that its trial stood for"
    assert rows[1].cost == Decimal("4380.00")
    assert rows[1].saved is None


def test_a_step_that_was_too_close_is_not_called_missed() -> None:
    sample = demo_like()
    rows = bought_steps(sample.problem, sample.decision)
    assert [r.state for r in rows] == [StepState.MISSED, StepState.UNKNOWN, StepState.KEPT, StepState.KEPT]
    assert rows[0].replicas == 2, "today's replicas, although the step has none"


def test_without_measured_steps_today_and_the_winner_are_compared() -> None:
    sample = worked_example()
    rows = bought_steps(sample.problem, replace(sample.decision, steps=()))
    assert [(r.title, r.replicas) for r in rows] == [("Today", 5), ("Winner", 1)]


def test_fewer_machines_with_the_same_settings_are_a_step_too() -> None:
    sample = worked_example()
    today = sample.decision.today
    assert today is not None
    same = replace(today, replicas=3, monthly_cost=Decimal("4380.00"))
    decision = replace(sample.decision, choice=same, steps=sample.decision.steps[:1])
    assert [r.replicas for r in bought_steps(sample.problem, decision)] == [5, 3]


def test_nothing_was_bought_when_nothing_was_found() -> None:
    sample = infeasible()
    assert bought_steps(sample.problem, sample.decision) == ()


def test_dearer_hardware_costs_more_and_says_so() -> None:
    sample = worked_example()
    steps = list(sample.decision.steps)
    steps[2] = replace(steps[2], monthly_cost=Decimal("6000.00"))
    steps[3] = replace(steps[3], monthly_cost=Decimal("6000.00"))
    rows = bought_steps(sample.problem, replace(sample.decision, steps=tuple(steps)))
    assert saved_phrase(sample.problem, rows[2]) == "costs $160 more"
    assert saved_phrase(sample.problem, rows[3]) == "costs the same"


def test_steps_that_were_not_measured_leave_their_share_to_the_next() -> None:
    sample = worked_example()
    steps = list(sample.decision.steps)
    for index in (1, 2):
        steps[index] = replace(steps[index], replicas=None, monthly_cost=None, result=None, kept=False, note="too big")
    rows = bought_steps(sample.problem, replace(sample.decision, steps=tuple(steps)))
    assert [state_phrase(r) for r in rows] == [
        "misses the promise",
        "not measured",
        "not measured",
        "keeps the promise",
    ]
    assert rows[1].cost is None
    assert saved_phrase(sample.problem, rows[3]) == "together saves $5,840"
