"""Whoever says which of equals to ask first changes how long the search takes, and nothing that it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.lossiness import lossiness
from slotune.search.options import Preference
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from tests.search.test_best_first import spaces
from tests.search.worlds import World, candidate, cheapest, live, problem


def whims(seed: int) -> Callable[[Problem, Sequence[TrialResult]], Preference]:
    """An opinion for each state of the search, without any reason."""

    def prefer(asked: Problem, results: Sequence[TrialResult]) -> Preference:
        random = Random(seed + len(results))
        return {one: random.randint(0, 3) for one in asked.candidates if random.random() < 0.8}

    return prefer


def ends_as(decision: Decision) -> tuple[object, ...]:
    """What must not depend on the order of questions: the kind, the money, what answers lose, what was proved."""
    choice = decision.choice
    return (
        decision.kind,
        None if choice is None else choice.monthly_cost,
        decision.cost_gap,
        decision.considered,
        decision.binding_constraint,
        tuple(words for words in decision.proved if words.startswith("nothing among")),
    )


@given(spaces(), st.integers(0, 10**6))
@settings(max_examples=300, deadline=None)
def test_any_preference_ends_at_the_same_cost_with_the_same_proof(given_space, seed):
    space, world, bounds = given_space
    plain, _ = live(space, world, lambda *_: bounds)
    moody, results = live(space, world, lambda *_: bounds, prefer=whims(seed))
    assert ends_as(moody) == ends_as(plain)
    want = cheapest(space, world.capacity)
    if want is not None:
        assert moody.choice is not None
        price = space.hardware[moody.choice.candidate.gpu_class].price_per_hour
        assert moody.choice.replicas * price == want
        assert plain.choice is not None
        assert lossiness(moody.choice.candidate, space.models) == lossiness(plain.choice.candidate, space.models)
    questions = [(r.trial.candidate, round(r.trial.rate, 9), r.trial.seed_block) for r in results]
    assert len(questions) == len(set(questions))


@given(spaces(), st.integers(0, 10**6), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_dying_between_two_trials_changes_nothing_with_a_preference_either(given_space, seed, killed_after):
    space, world, bounds = given_space
    lived_through, results = live(space, world, lambda *_: bounds, prefer=whims(seed))
    again, resumed = live(space, world, lambda *_: bounds, results[:killed_after], whims(seed))
    assert again == lived_through
    assert resumed == results


def test_among_equals_the_preferred_is_asked_first():
    today, wide, narrow = candidate(slots=1), candidate(slots=8), candidate(slots=4)
    space = problem([today, wide, narrow], replicas_today=8)
    measured = [World({today: 0.1}).measure(Trial(today, 6.0 / 8, purpose=Purpose.BASELINE))]
    plain, wished = next_step(space, measured), next_step(space, measured, preferred={narrow: 1, today: 2})
    assert isinstance(plain, Trial)
    assert isinstance(wished, Trial)
    assert (plain.candidate, wished.candidate) == (narrow, wide)


def test_no_preference_outweighs_what_answers_lose():
    today, lossy = candidate(slots=1), candidate("Q4_0", slots=8)
    exact = candidate("F16", slots=8)
    world = World({today: 0.1, lossy: 6.0, exact: 6.0})
    decision, _ = live(problem([today, lossy, exact]), world, prefer=lambda *_: {lossy: 0, exact: 1, today: 2})
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.candidate == exact


def test_what_passed_wins_whatever_is_preferred():
    today, other = candidate(slots=4), candidate(slots=8)
    world = World({today: 6.0, other: 6.0})
    decision, results = live(problem([today, other]), world, prefer=lambda *_: {today: 1, other: 0})
    assert decision.choice is not None
    assert decision.choice.candidate == today
    assert {result.trial.candidate for result in results} == {today}
