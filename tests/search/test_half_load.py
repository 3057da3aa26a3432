"""What pays off on a full server only must hold on a half-full one too, before it may win."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind, monthly_cost
from slotune.search.problem import Budget, Hardware, Measurement, Problem
from slotune.search.rates import must_hold_half
from slotune.search.trial import Purpose, Trial
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import KnownBounds, World, candidate, live, problem

TODAY = candidate(slots=8)
GUESSING = candidate(slots=8, speculation="ngram-mod")
SHARED = candidate(slots=8, kv_unified=True)


@pytest.mark.parametrize(
    ("today", "one", "want"),
    [
        pytest.param(TODAY, candidate(slots=8, batch_size=512), False, id="a full server and a quiet one do the same"),
        pytest.param(TODAY, candidate(slots=16), True, id="more separate streams than users have seen"),
        pytest.param(candidate(slots=1), candidate(slots=32), True, id="separate streams, where today is one"),
        pytest.param(TODAY, candidate(slots=4), False, id="fewer separate streams than today"),
        pytest.param(candidate(slots=1, kv_unified=True), SHARED, True, id="one slot shares its pool with nobody"),
        pytest.param(
            candidate(slots=1, kv_unified=True), TODAY, True, id="one slot is one stream, whatever it is told"
        ),
        pytest.param(TODAY, GUESSING, True, id="guessed tokens may cost where few are busy"),
        pytest.param(TODAY, SHARED, True, id="one pool for all slots, which today's server lacks"),
        pytest.param(SHARED, replace(SHARED, parallel_slots=16), False, id="one pool, as users have it today"),
        pytest.param(SHARED, TODAY, True, id="separate KV is slowest where slots are half full"),
        pytest.param(SHARED, candidate(slots=1), False, id="one slot has one layout"),
        pytest.param(TODAY, replace(TODAY, backend_sampling=True), True, id="sampling on the GPU helps many slots"),
        pytest.param(
            replace(TODAY, backend_sampling=True),
            replace(TODAY, backend_sampling=True, parallel_slots=4),
            False,
            id="sampling on the GPU, as users have it today",
        ),
        pytest.param(
            TODAY, replace(TODAY, speculation="draft-simple", draft="tiny"), True, id="drafts are guessed tokens, too"
        ),
    ],
)
def test_half_load_is_asked_of_what_is_not_monotone(today, one, want):
    assert must_hold_half(one, today) is want


def test_half_of_its_load_comes_after_the_confirmation_with_seeds_of_its_own():
    decision, results = live(problem([TODAY, GUESSING], replicas_today=6), World({TODAY: 1.0, GUESSING: 6.0}))
    ends = [(r.trial.purpose, r.trial.rate, r.trial.seed_block) for r in results if r.trial.candidate == GUESSING]
    assert ends == [(Purpose.SEARCH, 6.0, 0), (Purpose.CONFIRM, 6.0, 1), (Purpose.PARTIAL, 3.0, 2)]
    assert decision.choice is not None
    assert decision.choice.candidate == GUESSING
    assert decision.choice.result.trial.purpose is Purpose.CONFIRM
    assert any("half of that rate" in words for words in decision.proved)


def test_one_that_fails_half_its_load_is_refused_with_that_reason():
    world = World({TODAY: 1.0, GUESSING: 6.0}, weak_below={GUESSING: 5.0})
    decision, _ = live(problem([TODAY, GUESSING], replicas_today=6), world)
    assert decision.choice is not None
    assert decision.choice.candidate == TODAY
    refused = next(r for r in decision.rejections if r.candidate == GUESSING)
    assert "at 3 requests/s, half of what it was confirmed at" in refused.reason
    assert not refused.undecided
    assert decision.cost_gap == 0


def test_half_load_that_could_not_be_measured_leaves_a_gap_and_no_answer_of_it():
    world = World(
        {TODAY: 1.0, GUESSING: 6.0},
        verdicts=lambda t: Outcome.INVALID if t.purpose is Purpose.PARTIAL and t.rate > 2 else None,
    )
    decision, results = live(problem([TODAY, GUESSING], replicas_today=6), world)
    tried = [r.trial.attempt for r in results if r.trial.purpose is Purpose.PARTIAL and r.trial.rate > 2]
    assert tried == [1, 2]
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (GUESSING, 2)
    assert decision.cost_gap == monthly_cost(1, Decimal("0.80"))


def test_a_confirmed_one_without_its_half_is_no_answer_when_the_budget_ends():
    space = problem([TODAY, GUESSING], replicas_today=1, budget=Budget(gpu_seconds=1e9, trials=3))
    decision, results = live(space, World({TODAY: 0.1, GUESSING: 6.0}))
    assert [r.trial.purpose for r in results] == [Purpose.BASELINE, Purpose.SEARCH, Purpose.CONFIRM]
    assert (decision.kind, decision.choice) == (DecisionKind.BUDGET_EXHAUSTED, None)


def test_a_fail_at_half_load_makes_no_later_confirmation_stricter():
    world = World({TODAY: 1.0, GUESSING: 6.0, SHARED: 6.0}, weak_below={GUESSING: 5.0})
    _, results = live(problem([TODAY, GUESSING, SHARED], replicas_today=6), world)
    assert {r.trial.confidence for r in results if r.trial.purpose is Purpose.CONFIRM} == {0.95}


# --------------------------------------------------------------------------- the laws


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Problem, World, KnownBounds]:
    hardware = {"a": Hardware("a", Decimal(draw(st.integers(10, 300))) / 100, replicas_max=draw(st.integers(1, 8)))}
    one = st.builds(
        lambda n, unified, guess: candidate("F16", "a", n, kv_unified=unified, speculation=guess),
        st.integers(1, 64),
        st.booleans(),
        st.sampled_from(["none", "none", "ngram-mod"]),
    )
    candidates = draw(st.lists(one, min_size=1, max_size=10, unique=True))
    truth = {c: draw(st.floats(0.5, 12.0)) for c in candidates}
    weak = {c: draw(st.floats(0.0, 6.0)) for c in candidates if must_hold_half(c, candidates[0])}
    weak.pop(candidates[0], None)
    world = World(truth, weak_below=weak)
    space = problem(
        candidates,
        peak_rate=draw(st.floats(2.0, 8.0)),
        replicas_today=draw(st.integers(1, 5)),
        hardware=hardware,
        explain=draw(st.booleans()),
        measurement=Measurement(requests_per_run=20, sentinel_every=0),  # every owed rate is quick enough to be asked
    )
    return space, world, KnownBounds(world, lambda c: 1.0 + 0.1 * c.parallel_slots)


def cheapest_that_holds(space: Problem, world: World) -> Decimal | None:
    """Exhaustive truth: at its rate, and at half of it where that is owed."""
    costs = []
    for one in space.candidates:
        hardware = space.hardware[one.gpu_class]
        for replicas in range(1, hardware.replicas_max + 1):
            rate = space.demand.peak_rate / replicas
            if world.holds(one, rate) and (not must_hold_half(one, space.baseline) or world.holds(one, rate / 2)):
                costs.append(hardware.price_per_hour * replicas)
                break
    return min(costs, default=None)


@given(spaces())
@settings(max_examples=150, deadline=None)
def test_the_answer_is_the_cheapest_that_holds_at_its_rate_and_at_half_of_it(given_space):
    space, world, bounds = given_space
    want = cheapest_that_holds(space, world)
    decision, results = live(space, world, lambda *_: bounds)
    if want is None:
        assert decision.choice is None
    else:
        assert decision.choice is not None
        assert decision.choice.replicas * space.hardware["a"].price_per_hour == want
        assert decision.cost_gap == 0
        if must_hold_half(decision.choice.candidate, space.baseline):
            half = decision.choice.result.trial.rate / 2
            assert any(r.passed and r.trial.rate == half and r.trial.purpose is Purpose.PARTIAL for r in results)
    questions = [(r.trial.candidate, round(r.trial.rate, 9), r.trial.seed_block) for r in results]
    assert len(questions) == len(set(questions))


@given(spaces(), st.randoms(use_true_random=False), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_faults_at_half_load_never_lead_to_a_false_answer(given_space, random, trials):
    space, world, bounds = given_space
    space = replace(space, replicas_today=min(space.replicas_today, space.hardware["a"].replicas_max))
    space = replace(space, budget=Budget(gpu_seconds=1e9, trials=trials))
    world.verdicts = lambda _: random.choice([None, None, Outcome.INVALID, Outcome.INCONCLUSIVE])
    want = cheapest_that_holds(space, world)
    decision, results = live(space, world, lambda *_: bounds)
    assert len(results) <= trials
    if decision.choice is not None:
        assert want is not None
        assert decision.choice.replicas * space.hardware["a"].price_per_hour >= want
        if decision.cost_gap == 0:
            assert decision.choice.replicas * space.hardware["a"].price_per_hour == want


def test_asking_twice_says_the_same():
    space = problem([TODAY, GUESSING], replicas_today=6)
    world = World({TODAY: 1.0, GUESSING: 6.0})
    results = []
    while isinstance(step := next_step(space, results), Trial):
        assert next_step(space, results) == step
        results.append(world.measure(step))


def test_todays_server_that_was_seen_to_break_half_its_load_is_no_answer_when_the_budget_ends():
    space = problem([TODAY, GUESSING], replicas_today=1, budget=Budget(gpu_seconds=1e9, trials=3))
    world = World({TODAY: 9.0, GUESSING: 0.1}, weak_below={TODAY: 5.0})
    asked = Trial(TODAY, 6.0, 0, space.measurement.confidence)
    half = replace(asked, rate=3.0, seed_block=2, purpose=Purpose.PARTIAL)
    trials = [asked, replace(asked, seed_block=1, purpose=Purpose.CONFIRM), half]
    decision = next_step(space, [world.measure(trial) for trial in trials])
    assert isinstance(decision, Decision)
    assert (decision.kind, decision.choice) == (DecisionKind.BUDGET_EXHAUSTED, None)
