"""The first confirmed Pass is the cheapest, asked for in as few trials as the bounds allow.

A toy world knows every candidate's true capacity; exhaustive search over it is the truth.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slotune.llama.failures import FailureClass
from slotune.load.summary import IdleProbe
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind, monthly_cost
from slotune.search.problem import Budget, Hardware, Measurement, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import KnownBounds, World, candidate, cheapest, live, problem

# ---------------------------------------------------------------------- the story


def test_starts_with_what_runs_today_at_todays_replicas():
    baseline = candidate(slots=8)
    first = next_step(problem([baseline, candidate(slots=16)], replicas_today=5), [])
    assert isinstance(first, Trial)
    assert (first.candidate, first.purpose) == (baseline, Purpose.BASELINE)
    assert first.rate == pytest.approx(6 / 5)


def test_a_pass_wins_only_after_a_fresh_start_with_fresh_seeds():
    only = candidate()
    world = World({only: 6.0})
    decision, results = live(problem([only]), world)
    assert decision.kind is DecisionKind.FOUND
    assert [(r.trial.purpose, r.trial.seed_block) for r in results] == [(Purpose.BASELINE, 0), (Purpose.CONFIRM, 1)]


def test_a_cheaper_count_is_asked_before_a_known_pass_wins():
    baseline, better = candidate(slots=1), candidate(slots=8)
    world = World({baseline: 1.2, better: 3.0})
    decision, _ = live(problem([baseline, better], replicas_today=5), world)
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (better, 2)
    assert decision.choice.monthly_cost == monthly_cost(2, Decimal("0.80"))
    assert decision.cost_gap == 0


def test_at_equal_cost_the_least_lossy_passes_first():
    baseline = candidate(slots=1)
    lossy, exact = candidate("Q4_0", slots=8), candidate("F16", slots=8)
    world = World({baseline: 0.1, lossy: 6.0, exact: 6.0})
    decision, _ = live(problem([baseline, lossy, exact]), world)
    assert decision.choice is not None
    assert decision.choice.candidate == exact


def test_what_runs_today_stays_when_nothing_is_cheaper():
    baseline, other = candidate(slots=4), candidate("F16", slots=8)
    world = World({baseline: 3.0, other: 3.0})
    decision, results = live(problem([baseline, other], replicas_today=2), world)
    assert decision.choice is not None
    assert decision.choice.candidate == baseline
    assert all(r.trial.candidate == baseline or r.trial.rate > 3.0 for r in results)


def test_two_cheap_gpus_win_against_one_dear_one():
    small, large = candidate(gpu_class="small"), candidate(gpu_class="large")
    hardware = {
        "small": Hardware("small", Decimal("0.40"), replicas_max=8),
        "large": Hardware("large", Decimal("1.00"), replicas_max=8),
    }
    world = World({small: 3.0, large: 6.0})
    decision, _ = live(problem([small, large], hardware=hardware), world)
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (small, 2)


def test_a_failed_confirmation_is_a_fail_and_the_next_one_may_err_half_as_often():
    lucky, solid = candidate(slots=1), candidate(slots=2)
    world = World(
        {lucky: 6.0, solid: 6.0},
        verdicts=lambda t: Outcome.FAIL if t.candidate == lucky and t.seed_block else None,
    )
    decision, results = live(problem([lucky, solid]), world)
    assert decision.choice is not None
    assert decision.choice.candidate == solid
    confirmations = [r.trial.confidence for r in results if r.trial.purpose is Purpose.CONFIRM]
    assert confirmations == pytest.approx([0.95, 0.975])


# ------------------------------------------------------------- not every end is a pass


def test_infeasible_when_the_replica_limit_is_too_small():
    only = candidate()
    decision, results = live(problem([only]), World({only: 0.1}))
    assert decision.kind is DecisionKind.INFEASIBLE
    assert decision.choice is None
    assert decision.nearest in results
    assert "8 replicas" in decision.reason


def test_an_inconclusive_candidate_is_named_and_counted_in_the_gap():
    baseline, vague = candidate(slots=1), candidate(slots=8)
    world = World(
        {baseline: 3.0, vague: 6.0},
        verdicts=lambda t: Outcome.INCONCLUSIVE if t.candidate == vague else None,
    )
    decision, _ = live(problem([baseline, vague], replicas_today=2), world)
    assert decision.kind is DecisionKind.FOUND
    assert decision.cost_gap == monthly_cost(1, Decimal("0.80"))
    assert [r.undecided for r in decision.rejections] == [True]


def test_inconclusive_when_nothing_passed_and_nothing_was_shown_to_fail():
    only = candidate()
    decision, _ = live(problem([only]), World({only: 6.0}, verdicts=lambda _: Outcome.INCONCLUSIVE))
    assert decision.kind is DecisionKind.INCONCLUSIVE


def test_an_invalid_measurement_is_repeated_once():
    only = candidate()
    world = World({only: 6.0}, verdicts=lambda t: Outcome.INVALID if t.attempt == 1 else None)
    decision, results = live(problem([only]), world)
    assert decision.kind is DecisionKind.FOUND
    assert [r.trial.attempt for r in results] == [1, 2, 1, 2]


def test_invalid_when_no_measurement_was():
    only = candidate()
    decision, _ = live(problem([only]), World({only: 6.0}, verdicts=lambda _: Outcome.INVALID))
    assert decision.kind is DecisionKind.INVALID


def test_a_crash_on_memory_removes_all_that_need_more():
    small, middle, big = candidate(slots=1), candidate(slots=4), candidate(slots=8)
    needs = {small: 10, middle: 20, big: 30}
    world = World(
        {small: 3.0, middle: 6.0, big: 6.0}, failures={middle: FailureClass.OUT_OF_MEMORY_KV, big: FailureClass.CRASHED}
    )
    decision, results = live(problem([small, middle, big], replicas_today=2, memory_bytes=needs), world)
    asked = {r.trial.candidate for r in results}
    assert big not in asked or middle not in asked
    assert {r.candidate: r.code for r in decision.rejections}[middle] in {"OutOfMemoryKV", "NeedsMoreMemory"}
    assert decision.choice is not None
    assert decision.choice.candidate == small


def test_a_crash_for_another_reason_removes_nobody_else():
    broken, fine = candidate(slots=1), candidate(slots=4)
    world = World({broken: 6.0, fine: 6.0}, failures={broken: FailureClass.BAD_FLAG})
    decision, _ = live(problem([broken, fine], memory_bytes={broken: 1, fine: 2}), world)
    assert decision.choice is not None
    assert decision.choice.candidate == fine


def test_two_faulty_measurements_give_up_that_rate_and_no_other():
    only, other = candidate(slots=1), candidate(slots=8)
    faulty = 6 / 5
    world = World(
        {only: 6.0, other: 0.01},
        verdicts=lambda t: Outcome.INVALID if t.candidate == only and abs(t.rate - faulty) < 1e-6 else None,
    )
    decision, _ = live(problem([only, other], replicas_today=5), world)
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (only, 1)


def test_a_fail_at_a_slower_rate_settles_one_that_could_not_be_measured():
    only = candidate()
    world = World({only: 1.0}, verdicts=lambda t: Outcome.INVALID if t.rate > 5 else None)
    hardware = {"l4": Hardware("l4", Decimal("0.80"), replicas_max=2)}
    decision, _ = live(problem([only], hardware=hardware), world)
    assert decision.kind is DecisionKind.INFEASIBLE


def test_a_slower_pass_outlives_a_faster_one_that_was_overruled():
    only = candidate()
    world = World({only: 6.0}, verdicts=lambda t: Outcome.FAIL if t.seed_block and t.rate > 5 else None)
    _, results = live(problem([only], replicas_today=4), world)
    asked = [(round(r.trial.rate, 6), r.trial.seed_block) for r in results]
    assert len(asked) == len(set(asked))


def test_what_could_never_be_measured_leaves_a_gap_not_a_proof():
    baseline, faulty = candidate(slots=1), candidate(slots=8)
    world = World(
        {baseline: 3.0, faulty: 6.0},
        verdicts=lambda t: Outcome.INVALID if t.candidate == faulty else None,
    )
    decision, _ = live(problem([baseline, faulty], replicas_today=2), world)
    assert decision.kind is DecisionKind.FOUND
    assert decision.cost_gap == monthly_cost(1, Decimal("0.80"))
    assert not any("can be cheaper" in sentence for sentence in decision.proved)


def test_a_crash_far_above_the_owed_rate_does_not_rule_the_candidate_out():
    only = candidate()
    fragile = World({only: 0.2})

    def measure(trial: Trial) -> TrialResult:
        result = fragile.measure(trial)
        if trial.rate <= 0.5:
            return result
        return replace(result, failure=FailureClass.WEDGED, effective=(("parallelSlots", "1"),))

    space = problem([only], peak_rate=0.1)
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(measure(step))
    assert step.kind is DecisionKind.FOUND


def test_a_server_that_never_came_up_is_not_started_again():
    broken, fine = candidate(slots=1), candidate(slots=8)
    world = World({broken: 6.0, fine: 6.0}, failures={broken: FailureClass.CRASHED})
    _, results = live(problem([broken, fine], replicas_today=4), world)
    assert sum(r.trial.candidate == broken for r in results) == 1


def test_a_full_host_cache_removes_nobody_who_has_none():
    cached, plain = candidate(cache_ram_mib=4096), candidate(slots=2)
    needs = {cached: 10, plain: 10}
    world = World({cached: 6.0, plain: 6.0}, failures={cached: FailureClass.OUT_OF_MEMORY_HOST})
    decision, _ = live(problem([cached, plain], memory_bytes=needs), world)
    assert decision.choice is not None
    assert decision.choice.candidate == plain


def test_prompts_that_do_not_fit_are_not_asked_again_at_other_rates():
    small, large = candidate(slots=1), candidate(slots=8)
    world = World({small: 6.0, large: 6.0})

    def measure(trial: Trial) -> TrialResult:
        result = world.measure(trial)
        if trial.candidate == large:
            return result
        verdict = Verdict(Outcome.FAIL, "too long", "ContextTooSmall", trial.confidence)
        return replace(result, verdict=verdict)

    space = problem([small, large], replicas_today=4)
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(measure(step))
    assert sum(r.trial.candidate == small for r in results) == 1


# ---------------------------------------------------------------------------- budget


def test_a_budget_that_ends_early_proves_nothing_about_fewer_replicas_of_the_answer_itself():
    only = candidate()
    decision, _ = live(problem([only], replicas_today=5, budget=Budget(gpu_seconds=1e9, trials=1)), World({only: 3.0}))
    assert decision.kind is DecisionKind.BUDGET_EXHAUSTED
    assert decision.choice is not None
    assert decision.choice.replicas == 5
    assert decision.cost_gap == monthly_cost(4, Decimal("0.80"))
    assert not any("can be cheaper" in sentence for sentence in decision.proved)


def test_when_the_budget_ends_the_answer_is_what_runs_today_and_the_gap():
    baseline = candidate(slots=1)
    others = [candidate(slots=s) for s in (2, 4, 8, 16, 32, 64)]
    world = World({baseline: 1.2} | dict.fromkeys(others, 0.0), seconds=lambda _: 200.0)
    decision, _ = live(
        problem([baseline, *others], replicas_today=5, budget=Budget(gpu_seconds=900.0)),
        world,
    )
    assert decision.kind is DecisionKind.BUDGET_EXHAUSTED
    assert decision.choice is not None
    assert (decision.choice.candidate, decision.choice.replicas) == (baseline, 5)
    assert decision.cost_gap is not None
    assert decision.cost_gap > 0


def test_a_number_of_trials_is_a_budget_too():
    many = [candidate(slots=s) for s in range(1, 30)]
    decision, results = live(problem(many, budget=Budget(gpu_seconds=1e9, trials=5)), World(dict.fromkeys(many, 0.01)))
    assert decision.kind is DecisionKind.BUDGET_EXHAUSTED
    assert len(results) == 5


# -------------------------------------------------------------------------- sentinel

PROBE = IdleProbe(overhead_s=0.001, prefill_tokens_per_s=10_000.0, decode_step_s=0.01)
CRAWLING = IdleProbe(overhead_s=0.001, prefill_tokens_per_s=1_000.0, decode_step_s=0.1)
SLOWER = IdleProbe(overhead_s=0.001, prefill_tokens_per_s=8_000.0, decode_step_s=0.01)


def test_the_machine_is_looked_at_again_every_few_trials_and_at_the_end():
    many = [candidate(slots=s) for s in range(1, 8)]
    world = World({c: (6.0 if c == many[-1] else 0.5) for c in many}, probe=PROBE)
    _, results = live(problem(many, measurement=Measurement(sentinel_every=3)), world)
    runs_between = "".join("s" if r.trial.purpose is Purpose.SENTINEL else "." for r in results)
    assert "...." not in runs_between
    assert runs_between.endswith("s")


def test_trials_before_a_drift_are_measured_again_once():
    baseline, other = candidate(slots=1), candidate(slots=8)
    world = World({baseline: 0.5, other: 6.0}, probe=PROBE)
    seen = 0

    def drifting(trial: Trial) -> TrialResult:
        nonlocal seen
        if trial.purpose is Purpose.SENTINEL:
            seen += 1
            world.probe = SLOWER
        return world.measure(trial)

    space = problem([baseline, other], measurement=Measurement(sentinel_every=2))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(drifting(step))
    assert step.kind is DecisionKind.FOUND
    assert seen >= 2
    assert any(r.trial.attempt == 2 for r in results)


def test_a_machine_that_never_holds_still_is_invalid_not_infeasible():
    only = candidate()
    world = World({only: 6.0})

    def measure(trial: Trial) -> TrialResult:
        sentinels = sum(t.purpose is Purpose.SENTINEL for t in [*world.asked, trial])
        world.probe = PROBE if sentinels % 2 else CRAWLING
        world.verdicts = lambda _: Outcome.FAIL
        return world.measure(trial)

    space = problem([only], peak_rate=0.1, measurement=Measurement(sentinel_every=1), promise=Promise(60.0))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(measure(step))
    assert step.kind is DecisionKind.INVALID


def test_a_sentinel_that_brings_no_speed_is_said_and_does_not_go_on_for_ever():
    baseline, other = candidate(slots=1), candidate(slots=8)
    world = World({baseline: 0.5, other: 6.0}, probe=PROBE)

    def measure(trial: Trial) -> TrialResult:
        result = world.measure(trial)
        return replace(result, probe=None) if trial.purpose is Purpose.SENTINEL else result

    space = problem([baseline, other], measurement=Measurement(sentinel_every=2), promise=Promise(60.0))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(measure(step))
    assert step.kind is DecisionKind.FOUND
    assert any("kept its speed" in sentence for sentence in step.not_proved)


def test_results_on_hardware_that_the_manifest_has_lost_are_left_alone():
    gone, here = candidate(gpu_class="a10"), candidate()
    world = World({gone: 6.0, here: 6.0})
    old = world.measure(Trial(gone, 6.0))
    decision, _ = live(problem([here]), world, results=[old])
    assert decision.kind is DecisionKind.FOUND


def test_a_speed_that_was_seen_while_the_machine_drifted_rules_nothing_out():
    """A neighbour made the machine ten times slower for a while; bounds from that time would end the search."""
    baseline, other = candidate(slots=1), candidate(slots=8, kv_unified=True)
    world = World({baseline: 0.5, other: 1.5})
    disturbed = range(1, 3)

    def measure(trial: Trial) -> TrialResult:
        slow = len(world.asked) in disturbed
        world.probe = CRAWLING if slow else PROBE
        world.verdicts = lambda _: Outcome.FAIL if slow else None
        return world.measure(trial)

    space = problem([baseline, other], measurement=Measurement(sentinel_every=2), promise=Promise(1.0))
    results: list[TrialResult] = []
    while isinstance(step := next_step(space, results), Trial):
        results.append(measure(step))
    assert [r.trial.purpose for r in results[:3]] == [Purpose.BASELINE, Purpose.SEARCH, Purpose.SENTINEL]
    assert step.kind is DecisionKind.FOUND
    assert step.choice is not None
    assert (step.choice.candidate, step.choice.replicas) == (other, 4)


# ------------------------------------------------------------------- a slow owed rate


def hours(results: list[TrialResult]) -> float:
    return sum(r.gpu_seconds for r in results) / 3600


def test_a_slow_owed_rate_is_decided_by_a_pass_at_a_faster_one():
    """The home of ten: 0.1 requests/s owed. The answer is the same, in minutes instead of hours."""
    baseline, better = candidate(slots=1), candidate(slots=4)
    capacity = {baseline: 0.02, better: 2.5}
    setting = Measurement(sentinel_every=0)

    def seconds(trial: Trial) -> float:
        full = setting.runs * (setting.requests_per_run + setting.warmup_requests) / trial.rate
        return 30 + (full if trial.rate <= capacity[trial.candidate] else full * 0.05)

    def solve(optimistic_capacity: float) -> tuple[Decision, list[TrialResult]]:
        world = World(capacity, seconds=seconds)
        bounds = KnownBounds(world, optimism=lambda c: optimistic_capacity / capacity[c])
        return live(problem([baseline, better], peak_rate=0.1, measurement=setting), world, lambda *_: bounds)

    quick, with_faster_rates = solve(optimistic_capacity=4.0)
    slow, only_owed = solve(optimistic_capacity=0.1)  # a bound this tight allows no faster rate
    assert quick.choice is not None
    assert slow.choice is not None
    assert (
        (quick.choice.candidate, quick.choice.replicas) == (slow.choice.candidate, slow.choice.replicas) == (better, 1)
    )
    assert quick.choice.headroom > 5
    assert hours(with_faster_rates) < hours(only_owed) / 4


def test_the_owed_rate_itself_is_asked_when_every_faster_one_failed():
    only = candidate()
    world = World({only: 0.11})
    decision, results = live(
        problem([only], peak_rate=0.1), world, lambda *_: KnownBounds(world, optimism=lambda _: 20.0)
    )
    assert decision.kind is DecisionKind.FOUND
    rates = [r.trial.rate for r in results if r.trial.purpose is Purpose.BASELINE]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.1)
    assert len(rates) > 2


# --------------------------------------------------------------------------- the laws

slots = st.integers(1, 64)
capacities = st.floats(0.05, 12.0, allow_nan=False)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Problem, World, KnownBounds]:
    hardware = {
        name: Hardware(name, Decimal(draw(st.integers(10, 300))) / 100, replicas_max=draw(st.integers(1, 8)))
        for name in ("a", "b")[: draw(st.integers(1, 2))]
    }
    one = st.builds(
        lambda variant, gpu, n, unified: candidate(variant, gpu, n, kv_unified=unified),
        st.sampled_from(["F16", "Q8_0", "Q4_0"]),
        st.sampled_from(sorted(hardware)),
        slots,
        st.booleans(),
    )
    candidates = draw(st.lists(one, min_size=1, max_size=14, unique=True))
    truth = {c: draw(capacities) for c in candidates}
    world = World(truth)
    optimism = {c: draw(st.floats(1.0, 3.0)) for c in candidates}
    space = problem(
        candidates,
        peak_rate=draw(st.floats(0.5, 8.0)),
        replicas_today=draw(st.integers(1, 5)),
        hardware=hardware,
        explain=draw(st.booleans()),
    )
    return space, world, KnownBounds(world, lambda c: optimism.get(c, 1.0))


@given(spaces())
@settings(max_examples=300, deadline=None)
def test_the_first_confirmed_pass_costs_what_exhaustive_search_finds(given_space):
    space, world, bounds = given_space
    want = cheapest(space, world.capacity)
    decision, _ = live(space, world, lambda *_: bounds)
    if want is None:
        assert decision.kind is DecisionKind.INFEASIBLE
        assert decision.choice is None
    else:
        assert decision.kind is DecisionKind.FOUND
        assert decision.choice is not None
        assert decision.choice.replicas * space.hardware[decision.choice.candidate.gpu_class].price_per_hour == want
        assert decision.cost_gap == 0


@given(spaces())
@settings(max_examples=200, deadline=None)
def test_no_candidate_is_asked_twice_at_one_rate_with_the_same_seeds(given_space):
    space, world, bounds = given_space
    _, results = live(space, world, lambda *_: bounds)
    questions = [(r.trial.candidate, round(r.trial.rate, 9), r.trial.seed_block) for r in results]
    assert len(questions) == len(set(questions))


@given(spaces())
@settings(max_examples=200, deadline=None)
def test_the_search_never_leaves_the_users_bounds(given_space):
    space, world, bounds = given_space
    decision, results = live(space, world, lambda *_: bounds)
    allowed = set(space.candidates)
    assert all(r.trial.candidate in allowed for r in results if r.trial.purpose is not Purpose.EXPLAIN)
    for name in ("variant", "gpu_class", "parallel_slots", "kv_unified"):
        values = {getattr(c, name) for c in allowed}
        assert all(getattr(r.trial.candidate, name) in values for r in results)
    assert decision.choice is None or decision.choice.candidate in allowed


@given(spaces(), st.floats(60, 3000), st.floats(5, 400))
@settings(max_examples=200, deadline=None)
def test_the_search_stops_within_its_budget(given_space, gpu_seconds, each):
    space, world, bounds = given_space
    world.seconds = lambda _: each
    space = problem(
        space.candidates,
        peak_rate=space.demand.peak_rate,
        replicas_today=space.replicas_today,
        hardware=space.hardware,
        budget=Budget(gpu_seconds=gpu_seconds, trials=12),
        explain=space.explain,
    )
    decision, results = live(space, world, lambda *_: bounds)
    assert sum(r.gpu_seconds for r in results) <= gpu_seconds
    assert len(results) <= 12
    assert decision.gpu_seconds == pytest.approx(sum(r.gpu_seconds for r in results))


@given(spaces(), st.integers(0, 30))
@settings(max_examples=150, deadline=None)
def test_dying_between_two_trials_changes_nothing(given_space, killed_after):
    space, world, bounds = given_space
    lived_through, results = live(space, world, lambda *_: bounds)
    again, resumed = live(space, world, lambda *_: bounds, results[:killed_after])
    assert again == lived_through
    assert resumed == results


@given(spaces(), st.randoms())
@settings(max_examples=150, deadline=None)
def test_the_order_of_the_input_does_not_matter(given_space, random):
    space, world, bounds = given_space
    before, _ = live(space, world, lambda *_: bounds)
    rest = list(space.candidates[1:])
    random.shuffle(rest)
    shuffled = problem(
        [space.candidates[0], *rest],
        peak_rate=space.demand.peak_rate,
        replicas_today=space.replicas_today,
        hardware=space.hardware,
        explain=space.explain,
    )
    after, _ = live(shuffled, world, lambda *_: bounds)
    assert before.choice == after.choice


@given(spaces())
@settings(max_examples=150, deadline=None)
def test_every_candidate_gets_exactly_one_reason_or_is_the_answer(given_space):
    space, world, bounds = given_space
    decision, _ = live(space, world, lambda *_: bounds)
    named = [r.candidate for r in decision.rejections]
    if decision.choice is not None:
        named.append(decision.choice.candidate)
    assert sorted(map(repr, named)) == sorted(map(repr, space.candidates))
    assert all(r.reason and r.code for r in decision.rejections)


@given(spaces(), st.randoms(use_true_random=False), st.integers(1, 60))
@settings(max_examples=300, deadline=None)
def test_faulty_and_inconclusive_trials_never_lead_to_a_false_proof(given_space, random, trials):
    """Whatever could not be judged, "nothing is cheaper" and "infeasible" are said only when they are true."""
    space, world, bounds = given_space
    # A manifest that allows fewer replicas than run today is refused: today's pass would lie outside the space.
    assume(space.replicas_today <= space.hardware[space.baseline.gpu_class].replicas_max)
    want = cheapest(space, world.capacity)
    world.verdicts = lambda _: random.choice([None, None, None, Outcome.INVALID, Outcome.INCONCLUSIVE])
    space = replace(space, budget=Budget(gpu_seconds=1e9, trials=trials))
    decision, results = live(space, world, lambda *_: bounds)
    assert len(results) <= trials
    if decision.kind is DecisionKind.INFEASIBLE:
        assert want is None
    if decision.choice is not None:
        hourly = decision.choice.replicas * space.hardware[decision.choice.candidate.gpu_class].price_per_hour
        assert want is not None
        assert hourly >= want
        assert decision.cost_gap is not None
        if decision.cost_gap == 0:
            assert hourly == want


def test_asking_twice_says_the_same_and_leaves_the_results_alone():
    space = problem([candidate(slots=1), candidate(slots=2)])
    results: list[TrialResult] = []
    assert next_step(space, results) == next_step(space, results)
    assert results == []
