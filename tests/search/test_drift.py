"""What was measured while the machine changed counts for nothing, is asked again, and says why when it is given up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.summary import IdleProbe
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.drift import MACHINE_DRIFTED, Drift, crept, drifts, without_drifted
from slotune.search.problem import Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import World, candidate, problem

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
