"""The simulated sandbox measures as a real one does: seeds, curtailment, extension, crash, seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.llama.failures import FailureClass
from slotune.load.gates import check_run
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.problem import Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.curtailment import StopRule
from slotune.verdict.verdicts import Outcome
from tests.simulator import (
    SimulatedSandbox,
    capacity_at_most,
    machines_for,
    measure,
    measure_noise_free,
    simulate,
    space_384,
)

SPACE = space_384()
MACHINE = machines_for(SPACE)["gpu-24g"]
GOOD = next(
    c
    for c in SPACE.candidates
    if (c.variant, c.parallel_slots, c.cache_type_k, c.cache_prompt) == ("Q4_K_M", 16, "q8_0", True)
)


def test_the_space_is_the_one_that_research_counted() -> None:
    assert len(SPACE.candidates) + len(SPACE.pruned) == 384
    assert len(SPACE.candidates) == 272
    assert SPACE.baseline in SPACE.candidates


def test_a_simulated_run_passes_every_validity_gate() -> None:
    run = simulate(GOOD, SPACE.models[GOOD.variant], MACHINE, SPACE.demand, 2.0, seed=3)
    assert check_run(run, SPACE.promise.ttft_s) == []
    assert (len(run.records), run.warmup_requests) == (200, 50)
    assert run.records[0].index == 50


def test_one_seed_is_one_crowd_for_every_candidate_and_rate() -> None:
    slow = simulate(GOOD, SPACE.models[GOOD.variant], MACHINE, SPACE.demand, 1.0, seed=3)
    fast = simulate(SPACE.baseline, SPACE.models["BF16"], MACHINE, SPACE.demand, 2.0, seed=3)
    other = simulate(GOOD, SPACE.models[GOOD.variant], MACHINE, SPACE.demand, 1.0, seed=4)
    times = [record.scheduled_s for record in slow.records]
    assert [2 * record.scheduled_s for record in fast.records] == pytest.approx(times)
    assert [record.scheduled_s for record in other.records] != pytest.approx(times)


def test_a_pass_takes_all_planned_requests_and_their_seconds() -> None:
    result = measure(Trial(GOOD, 1.5), SPACE)
    assert result.verdict.outcome is Outcome.PASS
    assert result.verdict.requests == result.planned_requests == 1000
    assert len(result.run_violation_shares) == 5
    assert 5 * 250 / 1.5 < result.gpu_seconds < 5 * 250 / 1.5 * 1.2


def test_overload_is_stopped_at_the_violation_that_rules_a_pass_out() -> None:
    result = measure(Trial(SPACE.baseline, 6.0), SPACE)
    limit = StopRule(2000, SPACE.promise, 0.95, looks=2).limit
    assert result.verdict.outcome is Outcome.FAIL
    assert result.verdict.violations == limit + 1
    assert result.verdict.requests < 100
    assert result.gpu_seconds < 120


def test_a_doubtful_trial_is_extended_once() -> None:
    near = replace(SPACE, measurement=Measurement(runs=2, requests_per_run=100))
    rates = [1.0 + 0.2 * step for step in range(20)]
    shares = {len(measure(Trial(GOOD, rate), near).run_violation_shares) for rate in rates}
    assert shares >= {2, 4}


def test_the_same_trial_twice_is_the_same_result_and_another_block_is_not() -> None:
    trial = Trial(GOOD, 3.0)
    assert measure(trial, SPACE) == measure(trial, SPACE)
    fresh = measure(replace(trial, seed_block=1), SPACE)
    assert fresh.latencies != measure(trial, SPACE).latencies


def test_what_does_not_fit_crashes_and_names_its_setting() -> None:
    result = measure(Trial(replace(GOOD, parallel_slots=64), 1.0), SPACE)
    assert (result.failure, result.failure_knob) == (FailureClass.OUT_OF_MEMORY_KV, "contextSizePerSlot")
    assert result.verdict.outcome is Outcome.FAIL
    assert result.gpu_seconds == MACHINE.start_s


def test_a_sentinel_only_probes() -> None:
    result = measure(Trial(SPACE.baseline, 1.0, purpose=Purpose.SENTINEL), SPACE)
    assert result.probe is not None
    assert result.verdict.requests == 0


def test_no_configuration_exceeds_its_bound() -> None:
    for candidate in SPACE.candidates[::7]:
        bound = capacity_at_most(SPACE.models[candidate.variant], candidate, MACHINE, SPACE.demand)
        assert not measure_noise_free(Trial(candidate, 1.02 * bound), SPACE).passed


async def test_it_is_a_sandbox() -> None:
    trial = Trial(GOOD, 1.5)
    measured = await SimulatedSandbox(SPACE, machines_for(SPACE)).measure(trial, lambda _: None)
    assert measured.result == measure(trial, SPACE)
    assert [len(run.records) for run in measured.runs] == [200] * 5


def searched(problem: Problem, exact: bool) -> tuple[Decision, list[TrialResult]]:
    results: list[TrialResult] = []
    while not isinstance(step := next_step(problem, results), Decision):
        results.append(measure_noise_free(step, problem) if exact else measure(step, problem))
    return step, results


@pytest.mark.parametrize("exact", [True, False], ids=["without noise", "with noise"])
def test_the_search_finds_the_two_servers_that_are_needed(exact: bool) -> None:
    decision, results = searched(SPACE, exact)
    assert decision.kind is DecisionKind.FOUND
    assert decision.choice is not None
    assert decision.choice.replicas == 2
    assert len(results) < 40
