"""Of two equals the one with more room wins, whatever the machine does meanwhile, at a price that stays small."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.load.summary import Latencies
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.finalists import (
    BLOCKS,
    COST_SHARE,
    FINAL_SEEDS,
    Duel,
    margin,
    measurement_for,
    more_room,
    stops_early,
)
from slotune.search.problem import Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.curtailment import StopRule
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, problem
from tests.simulator.sandbox import measure

TODAY = candidate(slots=1)
SLOTS = candidate(slots=8)
BOTH = candidate(slots=8, cache_ram_mib=4096, cache_reuse=256)
WORTHLESS = [candidate(slots=s) for s in range(2, 7)]
PROMISE = Promise(ttft_s=1.0, tokens_per_second_per_user=30.0)


class Reality:
    """A world in which each candidate has a p95 TTFT, on a machine whose speed depends on how much was asked before."""

    def __init__(self, ttft: dict[Candidate, float], pace: Callable[[int], float] = lambda _: 1.0) -> None:
        # BOTH is asked first, for the capacity that its cache promises; SLOTS alone comes with the story.
        self.world = World({TODAY: 0.5, SLOTS: 6.0, BOTH: 6.0}, seconds=self.seconds)
        self.ttft, self.pace = ttft, pace
        self.faults: Callable[[Trial], bool] = lambda _: False

    @staticmethod
    def seconds(trial: Trial) -> float:
        """A start of ten seconds, and load."""
        runs = 1 if trial.purpose is Purpose.FINALIST else 5
        return 10.0 + runs * 250 / trial.rate

    def measure(self, trial: Trial) -> TrialResult:
        wait = self.ttft.get(trial.candidate, 0.9) * self.pace(len(self.world.asked))
        result = replace(self.world.measure(trial), latencies=Latencies(ttft_p95_s=wait, tokens_per_second_p5=60.0))
        if self.faults(trial):
            result = replace(result, verdict=replace(result.verdict, outcome=Outcome.INVALID, code="ClientLate"))
        return result


class AskedFirst:
    """Bounds by which BOTH may carry more, so that it is asked before SLOTS; nothing else is known."""

    def __init__(self, *_: object) -> None:
        pass

    def capacity_at_most(self, one: Candidate) -> float:
        return {BOTH: 7.0, SLOTS: 6.5, TODAY: 6.2}.get(one, 6.1)

    def floor(self, _: Candidate) -> None:
        return None


def run(reality: Reality, **rest: Any) -> tuple[Problem, Decision, list[TrialResult]]:
    """A search in which the story shows that SLOTS alone keeps the promise at the cost of BOTH."""
    stated: dict[str, Any] = {"explain": True, "replicas_today": 12, "measurement": Measurement(sentinel_every=0)}
    space = problem([TODAY, *WORTHLESS, SLOTS, BOTH], **(stated | rest))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results, AskedFirst), Trial):
        results.append(reality.measure(step))
        assert len(results) < 80
    return space, step, results


def blocks(results: list[TrialResult]) -> list[tuple[Candidate, int]]:
    return [(r.trial.candidate, r.trial.seed_block) for r in results if r.trial.purpose is Purpose.FINALIST]


def test_two_equals_are_measured_in_turns_each_pair_with_the_same_traffic() -> None:
    _, decision, results = run(Reality({BOTH: 0.5, SLOTS: 0.8}))
    assert blocks(results) == [(BOTH, 3), (SLOTS, 3), (SLOTS, 4), (BOTH, 4)]
    assert decision.choice is not None
    assert decision.choice.candidate == BOTH
    assert (
        "of two that do it at this cost it has more room, 95 % sure: 2.00 times what is owed against 1.25, measured in "
        "turns"
    ) in decision.proved


def test_a_rival_with_more_room_wins_after_a_confirmation_of_its_own() -> None:
    _, decision, results = run(Reality({BOTH: 0.8, SLOTS: 0.5}))
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.candidate == SLOTS
    assert decision.choice.result.trial.purpose is Purpose.CONFIRM
    assert results[-1].trial.candidate == SLOTS


def test_without_a_difference_the_one_with_fewer_changes_wins() -> None:
    _, decision, _ = run(Reality({BOTH: 0.500, SLOTS: 0.505}))
    assert decision.choice is not None
    assert decision.choice.candidate == SLOTS
    assert any("neither was shown to have more room" in said for said in decision.proved)


def test_a_rival_owes_half_of_its_load_too_before_it_wins() -> None:
    _, decision, results = run(Reality({BOTH: 0.8, SLOTS: 0.5}))
    ends = [r.trial.purpose for r in results if r.trial.candidate == SLOTS][-2:]
    assert ends == [Purpose.CONFIRM, Purpose.PARTIAL]
    assert any("half of that rate" in said for said in decision.proved)


def test_a_rival_that_its_confirmation_refuses_leaves_the_answer_as_it_was() -> None:
    reality = Reality({BOTH: 0.8, SLOTS: 0.5})
    reality.world.verdicts = lambda t: Outcome.FAIL if t.purpose is Purpose.CONFIRM and t.candidate == SLOTS else None
    _, decision, results = run(reality)
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.candidate == BOTH
    assert len(blocks(results)) == 4


@given(st.floats(-0.2, 0.2), st.sampled_from([(0.5, 0.8), (0.8, 0.5), (0.6, 0.7), (0.5, 0.5)]))
def test_a_machine_that_drifts_steadily_may_hide_a_difference_and_never_makes_one(per_trial, waits) -> None:
    truth = {BOTH: waits[0], SLOTS: waits[1]}
    _, still, _ = run(Reality(truth))
    _, drifting, _ = run(Reality(truth, pace=lambda asked: (1 + per_trial) ** asked))
    assert still.choice is not None
    assert drifting.choice is not None
    claimed = any("it has more room" in said for said in drifting.proved)
    assert drifting.choice.candidate == (still.choice.candidate if claimed else SLOTS), "a tie goes to fewer changes"


def test_one_after_the_other_would_have_let_the_drift_decide() -> None:
    """The same drift, had A been measured twice before B: what the order is for."""
    true = {BOTH: 0.65, SLOTS: 0.7}
    waits = [true[who] * 0.85**number for number, who in enumerate((BOTH, BOTH, SLOTS, SLOTS))]
    assert waits[0] * waits[1] > waits[2] * waits[3], "the slower one looks better"


def test_a_block_at_fault_is_measured_again_and_a_second_time_calls_it_off() -> None:
    reality = Reality({BOTH: 0.8, SLOTS: 0.5})
    reality.faults = lambda t: t.seed_block == FINAL_SEEDS and t.candidate == SLOTS and t.attempt == 1
    _, decision, results = run(reality)
    assert blocks(results) == [(BOTH, 3), (SLOTS, 3), (SLOTS, 3), (SLOTS, 4), (BOTH, 4)]
    assert decision.choice is not None
    assert decision.choice.candidate == SLOTS
    reality = Reality({BOTH: 0.8, SLOTS: 0.5})
    reality.faults = lambda t: t.seed_block == FINAL_SEEDS and t.candidate == SLOTS
    _, decision, results = run(reality)
    assert blocks(results) == [(BOTH, 3), (SLOTS, 3), (SLOTS, 3)]
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.candidate == BOTH


@pytest.mark.parametrize(
    "rival",
    [candidate("Q8_0", slots=8), candidate("F16", slots=8, cache_type_k="q8_0", cache_type_v="q8_0")],
    ids=["fewer bits a weight", "fewer bits of KV cache"],
)
def test_what_loses_more_bits_is_no_equal(rival: Candidate) -> None:
    reality = Reality({})
    reality.world.capacity = {**reality.world.capacity, rival: 6.0}  # type: ignore[misc]  # a test's world
    space = problem([TODAY, SLOTS, rival], replicas_today=12, measurement=Measurement(sentinel_every=0))
    results = [reality.measure(Trial(one, 6.0)) for one in (rival, SLOTS) for _ in range(5)]
    while isinstance(step := next_step(space, results), Trial):
        results.append(reality.measure(step))
    assert step.choice is not None
    assert step.choice.candidate == SLOTS
    assert blocks(results) == []


def test_a_search_that_is_too_small_for_it_goes_without() -> None:
    space = problem([TODAY, SLOTS, BOTH], explain=True, measurement=Measurement(sentinel_every=0))
    reality, results = Reality({BOTH: 0.8, SLOTS: 0.5}), []
    while isinstance(step := next_step(space, results, AskedFirst), Trial):
        results.append(reality.measure(step))
    assert step.kind is DecisionKind.FOUND
    assert any(r.trial.candidate == SLOTS and r.passed for r in results)
    assert blocks(results) == []


@given(
    st.floats(0.2, 0.95),
    st.floats(0.2, 0.95),
    st.integers(0, 12),
    st.floats(1.0, 600.0),
    st.integers(1, 8),
    st.integers(10, 400),
)
def test_it_never_makes_a_search_longer_than_by_its_share(a, b, worthless, start_s, runs, per_run) -> None:
    measurement = Measurement(sentinel_every=0, runs=runs, requests_per_run=per_run)

    def seconds(trial: Trial) -> float:
        blocks = measurement_for(trial, measurement).runs
        return start_s + blocks * (per_run + measurement.warmup_requests) / trial.rate

    reality = Reality({BOTH: a, SLOTS: b})
    reality.world.seconds = seconds
    many = [candidate(slots=s) for s in range(20, 20 + worthless)]
    space = problem([TODAY, *many, SLOTS, BOTH], explain=True, replicas_today=12, measurement=measurement)
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results, AskedFirst), Trial):
        results.append(reality.measure(step))
    first = next((n for n, r in enumerate(results) if r.trial.purpose is Purpose.FINALIST), len(results))
    before, after = (sum(r.gpu_seconds for r in part) for part in (results[:first], results[first:]))
    assert after <= COST_SHARE * before * (1 + 1e-9)
    assert step.kind is DecisionKind.FOUND


def test_dying_between_two_blocks_changes_nothing() -> None:
    space, decision, results = run(Reality({BOTH: 0.8, SLOTS: 0.5}))
    for number, result in enumerate(results):
        step = next_step(space, results[:number], AskedFirst)
        assert isinstance(step, Trial)
        assert step == result.trial
    assert next_step(space, results, AskedFirst) == decision


def test_a_block_is_one_run_and_a_question_of_its_own() -> None:
    measurement = Measurement(runs=5, extensions=1)
    block = Trial(SLOTS, 6.0, FINAL_SEEDS, purpose=Purpose.FINALIST)
    assert (measurement_for(block, measurement).runs, measurement_for(block, measurement).extensions) == (1, 0)
    assert measurement_for(replace(block, purpose=Purpose.SEARCH), measurement) is measurement
    assert block.key() != replace(block, purpose=Purpose.SEARCH).key()
    assert [purpose for purpose in Purpose if not stops_early(replace(block, purpose=purpose))] == [Purpose.FINALIST]


def test_a_block_is_measured_to_its_end_however_many_requests_break_the_promise() -> None:
    """Stopped at the fifth violation of 200, a block at the boundary would end where its luck ran out."""
    rule = StopRule(200, PROMISE, 0.95)
    assert rule.is_lost(rule.limit + 1, 20)
    assert not replace(rule, stops=False).is_lost(200, 200)
    one = replace(SLOTS, context_per_slot=8192)
    space = replace(problem([one]), promise=Promise(ttft_s=1e-6))
    block = measure(Trial(one, 6.0, FINAL_SEEDS, purpose=Purpose.FINALIST), space)
    assert block.verdict.requests == space.measurement.requests_per_run
    assert measure(Trial(one, 6.0), space).verdict.requests < space.measurement.requests_per_run


# ------------------------------------------------------------------- laws


def block_of(room: float) -> TrialResult:
    base = World({SLOTS: 6.0}).measure(Trial(SLOTS, 6.0))
    return replace(base, latencies=Latencies(ttft_p95_s=1 / room, tokens_per_second_p5=6000.0))


rooms = st.floats(0.1, 10.0)


@given(rooms, rooms, rooms, rooms, st.floats(0.5, 2.0), st.floats(0.5, 2.0))
def test_a_constant_factor_per_block_and_a_slow_machine_cancel_out(a1, b1, b2, a2, per_block, slow) -> None:
    def duel(pace: float, scale: float) -> tuple[float, float]:
        found = tuple(block_of(room * scale * pace**place) for place, room in enumerate((a1, b1, b2, a2)))
        margins = Duel(BOTH, SLOTS, 6.0, found).margins(PROMISE)
        assert margins is not None
        return margins

    still, moved = duel(1.0, 1.0), duel(per_block, slow)
    assert moved[0] / moved[1] == pytest.approx(still[0] / still[1])


@given(st.tuples(rooms, rooms), st.tuples(rooms, rooms), st.floats(0.5, 0.99))
def test_swapping_the_two_swaps_the_answer_and_nothing_else(first, rival, confidence) -> None:
    one, other = more_room(first, rival, confidence), more_room(rival, first, confidence)
    assert (one is None) == (other is None)
    assert one is None or one == 1 - other
    assert more_room(first, first, confidence) is None


@given(st.tuples(rooms, rooms), st.tuples(rooms, rooms), st.floats(0.5, 0.98))
def test_more_confidence_never_shows_more(first, rival, confidence) -> None:
    sure = more_room(first, rival, confidence + 0.01)
    assert sure is None or more_room(first, rival, confidence) == sure


def claims(scatter: float, ratio: float, draws: int = 2000) -> list[int | None]:
    """What is said of two whose rooms differ by ``ratio``, where each block moves by ``scatter`` (of its logarithm)."""
    chance = random.Random(5)

    def blocks_around(room: float) -> tuple[float, float]:
        return room * math.exp(chance.gauss(0, scatter)), room * math.exp(chance.gauss(0, scatter))

    return [more_room(blocks_around(ratio), blocks_around(1.0), 0.95) for _ in range(draws)]


@pytest.mark.parametrize("scatter", [0.03, 0.1, 0.3])
def test_of_two_alike_one_is_said_to_have_more_room_as_rarely_as_the_confidence_says(scatter: float) -> None:
    said = claims(scatter, 1.0)
    assert sum(who is not None for who in said) / len(said) < 0.065  # 5 % and three standard errors


@pytest.mark.parametrize(("scatter", "ratio", "seen"), [(0.002, 1.1, 0.9), (0.01, 1.3, 0.9), (0.03, 2.0, 0.9)])
def test_a_difference_far_above_the_scatter_is_seen(scatter: float, ratio: float, seen: float) -> None:
    said = claims(scatter, ratio)
    assert said.count(0) / len(said) > seen
    assert said.count(1) == 0


def test_what_nobody_feels_is_a_tie_however_sure_and_nothing_measured_is_one_too() -> None:
    assert more_room((1.01, 1.01), (1.0, 1.0), 0.95) is None
    assert more_room((1.03, 1.03), (1.0, 1.0), 0.95) == 0
    assert more_room((0.0, 2.0), (1.0, 1.0), 0.95) is None
    with pytest.raises(ValueError, match="each of the two has 2"):
        more_room((1.0,), (1.0,), 0.95)


def test_room_is_that_of_the_tighter_promise() -> None:
    base = block_of(1.0)
    tight = replace(base, latencies=Latencies(ttft_p95_s=0.25, tokens_per_second_p5=45.0))
    assert margin(tight, PROMISE) == 1.5
    assert margin(tight, Promise(ttft_s=1.0)) == 4.0
    assert margin(replace(base, latencies=Latencies()), PROMISE) == 0.0
    assert margin(replace(base, latencies=Latencies(ttft_p95_s=0.2)), PROMISE) == 0.0


def test_the_order_is_a_b_b_a_with_one_seed_block_a_pair() -> None:
    assert BLOCKS == ((0, 0), (1, 0), (1, 1), (0, 1))
    assert FINAL_SEEDS > 2, "search, confirmation and half load have their own"
    assert Duel(BOTH, SLOTS, 6.0, (None,) * 4).open_block == (BOTH, FINAL_SEEDS)
    assert Duel(BOTH, SLOTS, 6.0, (None,) * 4).favourite(problem([TODAY])) is None
