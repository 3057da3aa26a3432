"""The cost ladder shows the winner, today, and what became of the prices between."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from slotune.report.bought import StepState
from slotune.report.ladder import MOST_RUNGS, gap_sentence, ladder_of
from slotune.search.trial import Purpose
from slotune.verdict.verdicts import Outcome
from tests.report.building import trial_result
from tests.report.samples import budget_exhausted, nothing_measured, two_gpu_classes, worked_example
from tests.report.worked import BASELINE


def test_rungs_are_the_prices_that_were_tried_cheapest_first() -> None:
    sample = worked_example()
    rungs = ladder_of(sample.problem, sample.decision, sample.results)
    assert [r.cost for r in rungs] == [Decimal(c) for c in ("1460.00", "2920.00", "4380.00", "5840.00", "7300.00")]
    assert [r.winner for r in rungs] == [True, False, False, False, False]
    assert [r.today for r in rungs] == [False, False, False, False, True]
    kept, missed = StepState.KEPT, StepState.MISSED
    assert [r.state for r in rungs] == [kept, kept, missed, kept, missed]
    assert rungs[0].story == "16 slots, prefix cache, Q8_0, KV q8_0; missed by 2 candidates (nearest: p95 1.6 s)"
    assert rungs[2].story == "Missed by 16 slots (p95 1.34 s)"


def test_the_sentinel_is_no_rung() -> None:
    sample = worked_example()
    sentinel = trial_result(BASELINE, 6 / 8, Outcome.PASS, reason="steady", purpose=Purpose.SENTINEL)
    rungs = ladder_of(sample.problem, sample.decision, (*sample.results, sentinel))
    assert "8 × a100-40g" not in [r.machines for r in rungs]


def test_the_price_below_a_proved_winner_says_that_bounds_ruled_it_out() -> None:
    sample = budget_exhausted()
    decision = replace(sample.decision, cost_gap=Decimal(0))
    rungs = ladder_of(sample.problem, decision, sample.results[:1])
    assert rungs[0].machines == "1 × a100-40g"
    assert rungs[0].story == "Ruled out by bounds, no trial was needed"


def test_the_gap_is_a_rung_that_nobody_has_reached_yet() -> None:
    sample = budget_exhausted()
    rungs = ladder_of(sample.problem, sample.decision, sample.results)
    open_rungs = [r for r in rungs if r.state is StepState.UNKNOWN]
    assert [(r.cost, r.machines) for r in open_rungs] == [(Decimal("1460.00"), "")]
    assert gap_sentence(sample.problem, sample.decision) == (
        "At most $1,460 a month might still be saved, by 40 undecided candidates."
    )


def test_prices_of_two_gpu_classes_stand_in_one_order() -> None:
    sample = two_gpu_classes()
    rungs = ladder_of(sample.problem, sample.decision, sample.results)
    assert [r.machines for r in rungs][:3] == ["2 × l4", "3 × l4", "1 × a100-40g"]
    assert [r.cost for r in rungs] == sorted(r.cost for r in rungs)


def test_today_is_on_the_ladder_even_when_nothing_was_measured() -> None:
    sample = nothing_measured()
    (rung,) = ladder_of(sample.problem, sample.decision, sample.results)
    assert (rung.today, rung.state, rung.story) == (True, StepState.UNKNOWN, "Not measured")


def test_a_long_ladder_keeps_the_winner_and_today() -> None:
    sample = worked_example()
    many = [trial_result(BASELINE, 6 / n, Outcome.FAIL, reason="late", p95=2) for n in range(1, 60)]
    rungs = ladder_of(replace(sample.problem), sample.decision, (*many, *sample.results))
    assert len(rungs) == MOST_RUNGS
    assert sum(r.winner for r in rungs) == 1
    assert sum(r.today for r in rungs) == 1


def test_the_winner_keeps_the_promise_even_when_only_the_decision_knows_its_trial() -> None:
    sample = worked_example()
    rungs = ladder_of(sample.problem, sample.decision, ())
    assert [(r.winner, r.state) for r in rungs if r.winner] == [(True, StepState.KEPT)]
