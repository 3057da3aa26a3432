"""What was measured while the machine changed counts for nothing, is asked again, and says why when it is given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.summary import IdleProbe
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.drift import MACHINE_DRIFTED, Drift, Place, Watch, crept, drifts, without_drifted
from slotune.search.problem import Budget, Hardware, Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import World, candidate, live, problem

BASELINE, OTHER = candidate(slots=1), candidate(slots=8)


def probe(speed: float = 1.0) -> IdleProbe:
    """An idle server, ``speed`` times as fast as usual."""
    return IdleProbe(overhead_s=0.001, prefill_tokens_per_s=10_000.0 * speed, decode_step_s=0.01 / speed)


def search(speed: Callable[[list[Trial]], float], **measurement: float) -> tuple[Problem, Decision, list[TrialResult]]:
    """Run a search on a machine whose speed depends on what it was asked before."""
    world = World({BASELINE: 0.5, OTHER: 6.0}, probe=probe())
    space = problem([BASELINE, OTHER], measurement=Measurement(**({"sentinel_every": 2} | measurement)))  # type: ignore[arg-type]  # a test's shorthand
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        world.probe = probe(speed(world.asked))
        results.append(world.measure(step))
        assert len(results) < 50
    return space, step, results


def sentinels(asked: list[Trial]) -> int:
    return sum(trial.purpose is Purpose.SENTINEL for trial in asked)


def test_a_machine_that_holds_still_has_nothing_measured_again() -> None:
    space, decision, results = search(lambda _: 1.02)
    assert decision.kind is DecisionKind.FOUND
    assert {r.trial.attempt for r in results} == {1}
    assert judged(space, results) == results


def test_trials_before_a_drift_are_invalid_say_what_moved_and_are_measured_again() -> None:
    space, decision, results = search(lambda asked: 1.0 if len(asked) < 2 else 0.8)
    assert decision.kind is DecisionKind.FOUND
    formed = judged(space, results)
    spoilt = [r for r in formed if r.verdict.outcome is Outcome.INVALID]
    assert [r.verdict.code for r in spoilt] == [MACHINE_DRIFTED] * 2
    assert spoilt[0].verdict.reason == (
        "the machine changed meanwhile: between two looks at the idle baseline its time per token went from 10 to 12.5 "
        "ms (+25 %), 3 % are allowed"
    )
    first = spoilt[0].trial
    assert replace(first, attempt=2) in [replace(r.trial, time_limit_s=first.time_limit_s) for r in results]
    assert not any("given up" in sentence for sentence in decision.not_proved)


def test_a_second_drift_gives_the_question_up_in_words() -> None:
    _, decision, results = search(lambda asked: 0.8 ** len(asked), sentinel_every=1)
    assert decision.kind is DecisionKind.INVALID
    assert max(r.trial.attempt for r in results) == 2
    assert any("given up because the machine changed a second time" in said for said in decision.not_proved)
    reasons = {r.candidate: r for r in decision.rejections}
    assert reasons[OTHER].code == MACHINE_DRIFTED
    assert "the machine changed meanwhile" in reasons[OTHER].reason


def test_what_a_throttled_device_says_when_idle_is_no_measure_of_the_machine() -> None:
    throttled = Verdict(Outcome.INVALID, "device throttled", "DeviceThrottled", 0.95)
    world = World({BASELINE: 6.0}, probe=probe())
    space = problem([BASELINE])
    first = world.measure(Trial(BASELINE, 6.0))
    hot, cool = (
        replace(world.measure(Trial(BASELINE, 6.0, block, purpose=Purpose.SENTINEL)), probe=probe(speed))
        for block, speed in enumerate((0.4, 1.0))
    )
    assert drifts(space, [first, hot]).keys() == {0}
    hot = replace(hot, verdict=throttled)
    assert drifts(space, [first, hot, cool]) == {}
    assert drifts(space, [replace(first, verdict=throttled, probe=probe(0.4)), cool]) == {}


def test_a_sentinel_on_a_throttled_device_is_taken_again_and_then_said() -> None:
    world = World({BASELINE: 0.5, OTHER: 6.0}, probe=probe())
    space = problem([BASELINE, OTHER], measurement=Measurement(sentinel_every=2))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        result = world.measure(step)
        if step.purpose is Purpose.SENTINEL:
            result = replace(result, verdict=Verdict(Outcome.INVALID, "hot", "DeviceThrottled", 0.95))
        results.append(result)
        assert len(results) < 50
    assert step.kind is DecisionKind.FOUND
    assert any("could not be looked at again" in said for said in step.not_proved)


def test_a_machine_that_creeps_within_the_limit_blames_no_trial_and_is_named() -> None:
    many = [candidate(slots=s) for s in range(1, 7)]
    world = World({c: (6.0 if c == many[-1] else 0.5) for c in many})
    space = problem(many, measurement=Measurement(sentinel_every=1))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        world.probe = probe(0.98 ** sentinels(world.asked))
        results.append(world.measure(step))
    assert {r.trial.attempt for r in results} == {1}
    assert any(
        said.startswith("the machine crept while it was measured: its time per token") for said in step.not_proved
    )


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        (probe(), probe(0.8), "its time per token went from 10 to 12.5 ms (+25 %)"),
        (
            probe(),
            replace(probe(), prefill_tokens_per_s=8_000.0),
            "its reading went from 10,000 to 8,000 tokens/s (-20 %)",
        ),
    ],
)
def test_a_drift_says_what_moved_most(before: IdleProbe, after: IdleProbe, want: str) -> None:
    assert str(Drift(before, after)) == want


def test_a_speed_that_was_not_measured_did_not_change() -> None:
    assert Drift(probe(), replace(probe(), decode_step_s=0.0, prefill_tokens_per_s=0.0)).size == 0.0


@given(st.lists(st.tuples(st.sampled_from(list(Purpose)), st.floats(0.5, 2.0), st.booleans()), max_size=12))
def test_forming_verdicts_twice_changes_nothing_and_touches_no_answers_and_no_sentinel(told) -> None:
    world = World({BASELINE: 6.0})
    space = problem([BASELINE, OTHER])
    results = []
    for number, (purpose, speed, of_baseline) in enumerate(told):
        rate = 0.0 if purpose.asks_answers else 6.0
        asked = Trial(BASELINE if of_baseline else OTHER, rate, number, purpose=purpose)
        results.append(replace(world.measure(asked), probe=probe(speed)))
    once = without_drifted(space, results)
    assert without_drifted(space, once) == once
    for before, after in zip(results, once, strict=True):
        if not before.trial.purpose.puts_load:
            assert after == before
        assert replace(after, verdict=before.verdict) == before
    assert crept(space, results) == crept(space, once)


# ---------------------------------------------------------------- a machine of its own for every class and node

L40S = candidate(gpu_class="l40s", slots=8)
TWO_CLASSES = {
    name: Hardware(name, Decimal(price), replicas_max=8) for name, price in (("l4", "0.80"), ("l40s", "0.50"))
}


def on_two_classes(speed: Callable[[str, int], float]) -> tuple[Problem, Decision, list[TrialResult]]:
    """A search on two GPU classes, each with a speed that depends on how many trials came before."""
    offered = [BASELINE, *(candidate(gpu_class="l40s", slots=s) for s in range(1, 8)), L40S]
    world = World({BASELINE: 0.5, L40S: 6.0}, probe=probe())
    space = problem(offered, hardware=TWO_CLASSES, measurement=Measurement(sentinel_every=2))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        world.probe = probe(speed(step.candidate.gpu_class, len(world.asked)))
        results.append(world.measure(step))
        assert len(results) < 80
    return space, step, results


def test_a_restless_machine_says_nothing_about_those_of_another_class() -> None:
    space, decision, results = on_two_classes(lambda name, asked: 1.0 + 0.1 * (name == "l4" and asked % 2))
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.candidate == L40S
    spoilt = {r.trial.candidate.gpu_class for r in judged(space, results) if r.verdict.code == MACHINE_DRIFTED}
    assert spoilt <= {"l4"}


def test_every_class_in_use_is_looked_at_with_a_server_of_its_own() -> None:
    space, decision, results = on_two_classes(lambda name, asked: 1.0 if name == "l4" or asked < 4 else 0.8)
    looked = {r.trial.candidate.gpu_class: r.trial.candidate for r in results if r.trial.purpose is Purpose.SENTINEL}
    assert looked.keys() == {"l4", "l40s"}
    assert looked["l4"] == BASELINE
    spoilt = [r for r in judged(space, results) if r.verdict.code == MACHINE_DRIFTED]
    assert {r.trial.candidate.gpu_class for r in spoilt} == {"l40s"}
    assert "between two looks at one idle server on l40s its time per token" in spoilt[0].verdict.reason
    assert decision.kind is DecisionKind.FOUND
    assert not any("looked at again" in said for said in decision.not_proved)


def test_where_todays_server_does_not_start_another_one_tells() -> None:
    others = [candidate(slots=s) for s in range(2, 9)]
    world = World({OTHER: 6.0}, failures={BASELINE: FailureClass.OUT_OF_MEMORY_KV}, probe=probe())
    space = problem([BASELINE, *others], measurement=Measurement(sentinel_every=2))
    decision, results = live(space, world)
    assert decision.kind is DecisionKind.FOUND
    looks = [r.trial.candidate for r in results if r.trial.purpose is Purpose.SENTINEL]
    assert looks
    assert BASELINE not in looks
    assert decision.not_proved == ()


def test_a_budget_without_room_for_a_look_is_said() -> None:
    world = World({BASELINE: 0.5, OTHER: 6.0}, probe=probe())
    space = problem(
        [BASELINE, OTHER], measurement=Measurement(sentinel_every=5), budget=Budget(gpu_seconds=1e9, trials=3)
    )
    decision, results = live(space, world)
    assert [r.trial.purpose for r in results] == [Purpose.BASELINE, Purpose.SEARCH, Purpose.CONFIRM]
    said = "whether the machine kept its speed could not be looked at again for 3 of 3 measurements"
    assert said in decision.not_proved
    roomy, _ = live(replace(space, budget=Budget(gpu_seconds=1e9, trials=5)), world)
    assert not any("looked at again" in said for said in roomy.not_proved)


def told(*trials: tuple[Purpose, str, float], one: Candidate = BASELINE) -> list[TrialResult]:
    """Results of ``one``: why it was measured, on which node, and how fast that was when idle."""
    world = World({one: 6.0})
    return [
        replace(world.measure(Trial(one, 6.0, number, purpose=purpose)), node=node, probe=probe(speed))
        for number, (purpose, node, speed) in enumerate(trials)
    ]


def test_looks_are_compared_within_one_node() -> None:
    space = problem([BASELINE])
    slower_node = told((Purpose.SEARCH, "a", 1.0), (Purpose.SENTINEL, "b", 0.8), (Purpose.SENTINEL, "b", 0.8))
    assert drifts(space, slower_node) == {}
    assert crept(space, slower_node) is not None
    assert crept(space, slower_node).size == 0
    changed = told((Purpose.SEARCH, "a", 1.0), (Purpose.SEARCH, "b", 0.8), (Purpose.SENTINEL, "b", 1.0))
    assert drifts(space, changed).keys() == {1}
    assert "the idle baseline (node b)" in without_drifted(space, changed)[1].verdict.reason


def test_what_was_measured_before_the_first_of_two_looks_is_not_to_blame() -> None:
    space = problem([BASELINE, OTHER])
    results = [
        *told((Purpose.SEARCH, "", 1.0), one=OTHER),
        *told((Purpose.SEARCH, "", 1.0), (Purpose.SENTINEL, "", 0.8)),
    ]
    watch = Watch.from_results(space, results)
    assert watch.drifted.keys() == watch.looked_at == {1}


def test_a_server_that_does_not_start_any_more_is_looked_at_no_more() -> None:
    space = problem([BASELINE, OTHER])
    results = [*told((Purpose.SEARCH, "", 1.0)), *told((Purpose.SEARCH, "", 1.0), one=OTHER)]
    watch, here = Watch.from_results(space, results), Place("l4")
    assert watch.server(here, lambda _: False) == BASELINE
    assert watch.server(here, lambda one: one == BASELINE) == OTHER
    assert watch.server(here, lambda _: True) is None


def test_the_next_look_is_meant_for_the_node_with_most_to_judge_and_comes_again_when_it_went_elsewhere() -> None:
    space = problem([BASELINE], measurement=Measurement(sentinel_every=2))
    results = told((Purpose.SEARCH, "a", 1.0), (Purpose.SEARCH, "b", 1.0), (Purpose.SEARCH, "b", 1.0))
    watch = Watch.from_results(space, results)
    assert watch.due(2) == [Place("l4", "b"), Place("l4", "a")]
    elsewhere = Watch.from_results(space, [*results, *told((Purpose.SENTINEL, "c", 1.0))])
    assert elsewhere.left() == watch.left()
    assert elsewhere.failed["l4"] == 1
    there = Watch.from_results(space, [*results, *told((Purpose.SENTINEL, "b", 1.0))])
    assert (there.left(), there.looked_at) == ([Place("l4", "a")], {1, 2})


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Purpose.SEARCH, Purpose.CONFIRM, Purpose.SENTINEL]),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from([0.8, 1.0, 1.02]),
            st.sampled_from([BASELINE, OTHER, L40S]),
        ),
        max_size=14,
    )
)
def test_what_happens_on_one_machine_blames_nothing_that_ran_on_another(steps) -> None:
    space = problem([BASELINE, OTHER, L40S], hardware=TWO_CLASSES)
    results = [told((purpose, node, speed), one=one)[0] for purpose, node, speed, one in steps]
    blamed = drifts(space, results)
    for place in {Place.of(result) for result in results}:
        own = [index for index, result in enumerate(results) if Place.of(result) == place]
        alone = drifts(space, [results[index] for index in own])
        assert {own[index] for index in alone} == {index for index in blamed if index in own}
    watch = Watch.from_results(space, results)
    assert blamed.keys() <= watch.looked_at
    waiting = {index for trials in watch.since.values() for index in trials}
    assert not waiting & watch.looked_at


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_search_ends_and_says_what_nobody_looked_at_wherever_its_trials_land(data) -> None:
    world = World({BASELINE: 0.5, OTHER: 6.0, L40S: data.draw(st.sampled_from([0.5, 6.0]))}, probe=probe())
    offered = [BASELINE, *(candidate(slots=s) for s in range(2, 6)), OTHER, L40S]
    space = problem(offered, hardware=TWO_CLASSES, measurement=Measurement(sentinel_every=2))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        node = data.draw(st.sampled_from(["a", "b", "c"]))
        results.append(replace(world.measure(step), node=node))
        assert len(results) < 80
    assert step.kind is DecisionKind.FOUND
    unseen = sum(r.trial.purpose.puts_load for r in results) - len(Watch.from_results(space, results).looked_at)
    assert any("looked at again" in said for said in step.not_proved) == (unseen > 0)
