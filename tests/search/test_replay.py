"""A recorded search asked again answers as it did, and what a change of the search loses is told in money.

A toy world is recorded whole: every candidate at every number of servers, on the seeds of the search and on fresh ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.search import replay as replaying
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind, monthly_cost
from slotune.search.evidence import Evidence
from slotune.search.problem import Budget, Hardware, Measurement, Problem
from slotune.search.replay import (
    Comparison,
    RecordedAnswer,
    RecordedSearch,
    SearchNeverEndsError,
    cheapest_recorded,
    replay,
)
from slotune.search.standing import Standing
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import GPU, QUALITY, World, candidate, live, problem

BASELINE, BETTER, BEST = candidate(slots=1), candidate(slots=8), candidate("Q8_0", slots=8)
CAPACITY = {BASELINE: 1.2, BETTER: 2.0, BEST: 3.0}
CONFIDENCE = Measurement().confidence


def whole(asked: Problem, world: World) -> list[TrialResult]:
    """Every candidate with every number of servers, on the seeds of the search, on fresh ones, and with half a load."""
    asks = ((0, Purpose.SEARCH, 1), (1, Purpose.CONFIRM, 1), (2, Purpose.PARTIAL, 2))
    return [
        world.measure(Trial(one, asked.demand.peak_rate / (replicas * part), block, CONFIDENCE, purpose=purpose))
        for one, replicas, (block, purpose, part) in itertools.product(asked.candidates, range(1, 9), asks)
    ]


def recorded(
    candidates: Sequence[Candidate] = (BASELINE, BETTER, BEST), world: World | None = None, **rest: object
) -> RecordedSearch:
    """A search as it ran, and then the whole grid."""
    asked, world = problem(candidates, replicas_today=5, **rest), world or World(CAPACITY)
    decision, results = live(asked, world)
    return RecordedSearch(asked, (*results, *whole(asked, world)), RecordedAnswer.from_decision(decision))


def as_it_ran(world: World, candidates: Sequence[Candidate] = (BASELINE, BETTER, BEST), **rest: object):
    """Only what the search measured."""
    asked = problem(candidates, replicas_today=5, **rest)
    decision, results = live(asked, world)
    return RecordedSearch(asked, tuple(results), RecordedAnswer.from_decision(decision))


# ---------------------------------------------------------------------- the same search again


def test_the_same_code_gives_the_recorded_answer_with_the_recorded_trials():
    search = as_it_ran(World(CAPACITY))
    again = replay(search)
    assert again.comparison is Comparison.SAME
    assert again.results == search.results
    assert (again.regret, again.implied, again.unrecorded) == (Decimal(0), 0, ())
    assert (len(again.results), again.gpu_seconds) == (search.answer.trials, search.answer.gpu_seconds)


@given(capacities=st.lists(st.floats(0.1, 8.0), min_size=1, max_size=6), today=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_replaying_equals_having_lived_through_it(capacities, today):
    ones = [candidate(slots=1 + at) for at in range(len(capacities))]
    asked, world = problem(ones, replicas_today=today), World(dict(zip(ones, capacities, strict=True)))
    decision, results = live(asked, world)
    again = replay(RecordedSearch(asked, tuple(results), RecordedAnswer.from_decision(decision)))
    assert again.comparison is Comparison.SAME
    assert again.decision == decision
    assert again.regret == 0


@given(
    ones=st.lists(
        st.builds(candidate, st.sampled_from(["F16", "Q8_0"]), slots=st.sampled_from([1, 8]), kv_unified=st.booleans()),
        min_size=1,
        max_size=4,
    ),
    luck=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_no_answer_that_was_lived_through_breaks_the_promise_whatever_the_verdicts(ones, luck):
    """The search's own rule and that of what is kept are two, and agree."""

    def verdict(trial: Trial) -> Outcome:
        return random.Random(f"{luck} {trial.key()}").choice([Outcome.PASS, *Outcome])

    search = as_it_ran(World({}, verdicts=verdict), ones, quality=QUALITY)
    again = replay(search)
    assert (again.comparison, again.regret, again.unrecorded) == (Comparison.SAME, 0, ())


def test_sentinels_comparisons_and_half_load_are_replayed_as_well():
    guessing = candidate("Q8_0", slots=8, speculation="ngram-mod")
    search = as_it_ran(
        World({BASELINE: 1.2, guessing: 6.0}),
        [BASELINE, guessing],
        quality=QUALITY,
        measurement=Measurement(sentinel_every=2),
    )
    purposes = {result.trial.purpose for result in search.results}
    assert {Purpose.REFERENCE, Purpose.QUALITY, Purpose.PARTIAL} <= purposes
    again = replay(search)
    assert again.comparison is Comparison.SAME
    assert again.results == search.results


def test_what_cannot_fit_is_found_out_again_from_what_was_replayed():
    seen = []

    def refine(asked, results):
        seen.append(len(results))
        return asked

    search = as_it_ran(World(CAPACITY))
    replay(search, refine)
    assert seen == list(range(search.answer.trials + 1))


# ---------------------------------------------------------------------- money


def test_a_search_that_stops_at_the_first_pass_is_dearer_and_the_regret_is_the_difference(monkeypatch):
    search = recorded()

    def content_with_today(asked, results, **_):
        if not results:
            return next_step(asked, results)
        return next_step(replace(asked, candidates=(BASELINE,)), results)

    monkeypatch.setattr(replaying, "next_step", content_with_today)
    again = replay(search)
    assert again.comparison is Comparison.DEARER
    assert again.cheapest is not None
    assert (again.cheapest.candidate, again.cheapest.replicas) == (BEST, 2)
    assert again.regret == monthly_cost(5, Decimal("0.80")) - monthly_cost(2, Decimal("0.80"))


def test_no_answer_where_one_was_recorded_loses_money_too(monkeypatch):
    search = recorded()
    monkeypatch.setattr(
        replaying, "next_step", lambda asked, *_, **__: next_step(replace(asked, budget=Budget(trials=0)), [])
    )
    again = replay(search)
    assert (again.comparison, again.regret) == (Comparison.DEARER, None)


def test_another_answer_of_the_same_price_is_no_loss():
    search = recorded()
    other = RecordedAnswer("Found", BETTER, 2, monthly_cost(2, Decimal("0.80")), 9, 99.0)
    assert replay(replace(search, answer=other)).comparison is Comparison.EQUAL


def test_the_recorded_answer_again_loses_money_where_something_cheaper_was_recorded():
    search = recorded(budget=Budget(trials=2))
    again = replay(search)
    assert again.decision.choice is not None
    assert (again.decision.choice.candidate, search.answer.candidate) == (BASELINE, BASELINE)
    assert again.comparison is Comparison.DEARER
    assert again.regret == monthly_cost(5, Decimal("0.80")) - monthly_cost(2, Decimal("0.80"))


def test_what_runs_today_is_the_same_answer_where_the_budget_ended_before_a_confirmation():
    search = as_it_ran(World(CAPACITY), budget=Budget(trials=2))
    again = replay(search)
    assert (again.decision.kind, again.decision.choice is None) == (DecisionKind.BUDGET_EXHAUSTED, False)
    assert (again.comparison, again.cheapest, again.regret) == (Comparison.SAME, None, Decimal(0))


# ---------------------------------------------------------------------- the promise


REFUSED_AGAIN = World(
    {BASELINE: 1.2, BEST: 3.0},
    verdicts=lambda trial: Outcome.FAIL if (trial.candidate, trial.rate, trial.seed_block) == (BEST, 3.0, 1) else None,
)
"""Fresh seeds overrule the first pass of ``BEST`` with two servers: it takes three."""


def unconfirmed(standing: Standing) -> None:
    """A search that takes a pass for a confirmation."""
    RECALL(standing)
    standing.confirmed = standing.passed


RECALL = Standing._recall


def test_an_answer_without_the_confirmation_that_refused_it_breaks_the_promise(monkeypatch):
    search = recorded([BASELINE, BEST], REFUSED_AGAIN)
    assert (search.answer.candidate, search.answer.replicas) == (BEST, 3)
    assert replay(search).comparison is Comparison.SAME
    monkeypatch.setattr(Standing, "_recall", unconfirmed)
    again = replay(search)
    assert again.decision.choice is not None
    assert again.decision.choice.replicas == 2
    assert (again.comparison, again.regret) == (Comparison.BREAKS_PROMISE, None)


def test_an_answer_that_was_not_confirmed_breaks_the_promise_though_others_recorded_that_it_holds(monkeypatch):
    monkeypatch.setattr(Standing, "_recall", unconfirmed)
    again = replay(recorded())
    assert again.cheapest is not None
    assert (again.cheapest.candidate, again.cheapest.monthly_cost) == (BEST, again.monthly_cost)
    assert again.comparison is Comparison.BREAKS_PROMISE


def test_any_answer_breaks_the_promise_where_none_was_recorded_to_keep_it(monkeypatch):
    never_twice = World(CAPACITY, verdicts=lambda trial: Outcome.FAIL if trial.seed_block == 1 else None)
    search = recorded(world=never_twice)
    assert cheapest_recorded(search) is None
    monkeypatch.setattr(Standing, "_recall", unconfirmed)
    again = replay(search)
    assert again.decision.choice is not None
    assert (again.comparison, again.regret) == (Comparison.BREAKS_PROMISE, None)


def test_fewer_servers_than_were_confirmed_break_the_promise(monkeypatch):
    monkeypatch.setattr(Evidence, "replicas_for", lambda self, rate: 1)
    assert replay(recorded()).comparison is Comparison.BREAKS_PROMISE


def test_nothing_that_passes_is_nothing_to_lose():
    search = recorded(world=World(dict.fromkeys(CAPACITY, 0.1)))
    again = replay(search)
    assert (again.comparison, again.cheapest, again.regret) == (Comparison.SAME, None, Decimal(0))


def test_prices_decide_between_gpu_classes():
    cheap = candidate(slots=8, gpu_class="old")
    hardware = {GPU: Hardware(GPU, Decimal("0.80")), "old": Hardware("old", Decimal("0.30"))}
    search = recorded([BASELINE, cheap], World({BASELINE: 6.0, cheap: 3.0}), hardware=hardware)
    best = cheapest_recorded(search)
    assert best is not None
    assert (best.candidate, best.replicas, best.monthly_cost) == (cheap, 2, monthly_cost(2, Decimal("0.30")))


# ---------------------------------------------------------------------- what nobody recorded


def test_a_question_without_an_answer_is_named_and_taken_as_unmeasurable():
    search = recorded()
    without = tuple(r for r in search.results if r.trial.candidate != BEST)
    again = replay(replace(search, results=without))
    assert {trial.candidate for trial in again.unrecorded} == {BEST}
    assert again.decision.choice is not None
    assert again.decision.choice.candidate == BETTER
    assert again.regret == 0  # of what was recorded, nothing is cheaper
    assert len(again.results) == again.decision.trials - len(again.unrecorded)


def test_a_dearer_answer_behind_missing_records_is_not_called_a_loss():
    search = recorded()
    again = replay(replace(search, results=tuple(r for r in search.results if r.trial.candidate != BEST)))
    assert again.monthly_cost is not None
    assert search.answer.monthly_cost is not None
    assert again.monthly_cost > search.answer.monthly_cost
    assert again.comparison is Comparison.UNRECORDED


def test_nor_is_no_answer_where_surer_verdicts_were_wanted_than_anybody_recorded():
    surer = Measurement(confidence=0.999, sentinel_every=0)
    again = replay(recorded(), lambda asked, _: replace(asked, measurement=surer))
    assert (again.cheapest is None, again.monthly_cost, again.regret) == (False, None, None)
    assert again.comparison is Comparison.UNRECORDED


def test_an_answer_that_went_missing_with_its_records_is_not_called_as_good():
    search = recorded()
    again = replay(replace(search, results=tuple(r for r in search.results if r.trial.purpose is not Purpose.CONFIRM)))
    assert (again.monthly_cost, again.cheapest) == (None, None)
    assert again.comparison is Comparison.UNRECORDED


def test_search_code_that_never_ends_is_stopped_and_said_to_be(monkeypatch):
    search = recorded(budget=Budget(trials=20))
    monkeypatch.setattr(replaying, "next_step", lambda *_, **__: Trial(BASELINE, 6.0, confidence=CONFIDENCE))
    with pytest.raises(SearchNeverEndsError, match="budget is 20 trials"):
        replay(search)


def test_the_recorded_answer_keeps_what_a_decision_says():
    decision, _ = live(problem([BASELINE, BEST], replicas_today=5), World(CAPACITY))
    assert isinstance(decision, Decision)
    kept = RecordedAnswer.from_decision(decision)
    assert decision.choice is not None
    assert (kept.kind, kept.candidate, kept.replicas) == ("Found", BEST, 2)
    assert kept.monthly_cost == decision.choice.monthly_cost
