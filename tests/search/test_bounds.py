"""Bounds are optimistic: nothing feasible is ever dropped, and a probe tightens them."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.summary import IdleProbe
from slotune.search.bounds import RooflineBounds, replicas_at_least
from slotune.search.problem import Hardware
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import candidate, problem

L4 = Hardware("l4", Decimal("0.80"), bandwidth_bytes_per_s=1.6e12)
DEMAND = Demand(
    peak_rate=6.0, output_tokens=250, synthetic=SyntheticPrompts(4000), input_tokens_mean=4000, input_tokens_p95=4000
)


def probed(one, *, prefill: float = 10_000.0, step: float = 0.01) -> TrialResult:
    return TrialResult(
        Trial(one, 1.0), Verdict(Outcome.FAIL, "", "", 0.95), 30.0, probe=IdleProbe(0.001, prefill, step)
    )


def test_bandwidth_alone_bounds_decoding_before_anything_ran():
    bounds = RooflineBounds(problem([candidate(slots=1)], hardware={"l4": L4}, demand=DEMAND))
    # 16 GB of weights at 1.6 TB/s: 10 ms a step, plus 4,000 tokens x 131,072 bytes of KV
    assert bounds.decode_step_at_least(candidate()) == pytest.approx(0.01 + 4000 * 131_072 / 1.6e12)


def test_nothing_known_means_no_bound():
    hardware = {"l4": Hardware("l4", Decimal("0.80"))}
    bounds = RooflineBounds(problem([candidate()], hardware=hardware, demand=DEMAND))
    assert bounds.capacity_at_most(candidate()) == math.inf
    assert bounds.floor(candidate()) is None


def test_a_probe_of_the_candidate_itself_bounds_it_within_its_repeat_slack():
    space = problem([candidate()], hardware={"l4": L4}, demand=DEMAND)
    bounds = RooflineBounds.from_results(space, [probed(candidate())])
    assert bounds.prefill_speed_at_most(candidate()) == pytest.approx(11_000)


def test_a_prompt_that_alone_takes_too_long_is_a_floor_with_its_numbers():
    space = problem([candidate()], hardware={"l4": L4}, demand=DEMAND, promise=Promise(1.0))
    floor = RooflineBounds.from_results(space, [probed(candidate(), prefill=2500.0)]).floor(candidate())
    assert floor is not None
    assert floor.code == "TTFTFloor"
    assert "4,000" in floor.reason
    assert "1.45 s" in floor.reason


def test_a_perfect_prefix_cache_lifts_that_floor():
    shared = Demand(
        peak_rate=6.0,
        output_tokens=250,
        synthetic=SyntheticPrompts(4000, shared_prefix_tokens=3000),
        input_tokens_mean=4000,
        input_tokens_p95=4000,
        reusable_tokens=3000,
    )
    space = problem([candidate()], hardware={"l4": L4}, demand=shared)
    assert RooflineBounds.from_results(space, [probed(candidate(), prefill=2500.0)]).floor(candidate()) is None


def test_one_step_that_is_too_slow_for_one_user_is_a_floor():
    space = problem([candidate()], demand=DEMAND, promise=Promise(1.0, tokens_per_second_per_user=30.0))
    floor = RooflineBounds.from_results(space, [probed(candidate(), step=0.05)]).floor(candidate())
    assert floor is not None
    assert floor.code == "DecodeFloor"


def test_fewer_bytes_may_be_faster_than_what_was_measured():
    space = problem([candidate(), candidate("Q4_0")], demand=DEMAND)
    bounds = RooflineBounds.from_results(space, [probed(candidate())])
    assert bounds.capacity_at_most(candidate("Q4_0")) > bounds.capacity_at_most(candidate())


def test_another_number_of_threads_is_not_judged_by_a_probe():
    space = problem([candidate(), candidate(threads=8)], demand=DEMAND)
    bounds = RooflineBounds.from_results(space, [probed(candidate())])
    assert bounds.capacity_at_most(candidate(threads=8)) == math.inf


@given(st.lists(st.tuples(st.floats(100, 1e5), st.floats(0.001, 0.1)), min_size=1, max_size=6))
def test_the_best_of_several_probes_counts(probes):
    space = problem([candidate()], demand=DEMAND)
    bounds = RooflineBounds.from_results(space, [probed(candidate(), prefill=p, step=s) for p, s in probes])
    assert bounds.prefill_speed_at_most(candidate()) >= max(p for p, _ in probes)
    assert bounds.decode_step_at_least(candidate()) <= min(s for _, s in probes)


@given(st.floats(0.01, 100), st.integers(1, 50))
def test_a_capacity_that_divides_the_peak_exactly_needs_exactly_that_many(peak, replicas):
    assert replicas_at_least(peak, peak / replicas) == replicas


def test_a_declared_bandwidth_that_is_too_low_gives_way_to_what_was_measured():
    slow = Hardware("l4", Decimal("0.80"), bandwidth_bytes_per_s=3e11)
    space = problem([candidate()], hardware={"l4": slow}, demand=DEMAND, promise=Promise(1.0, 100.0))
    bounds = RooflineBounds.from_results(space, [probed(candidate(), step=0.002)])
    assert bounds.floor(candidate()) is None


def test_short_prompts_may_share_a_physical_batch():
    short = Demand(peak_rate=6.0, output_tokens=1, synthetic=SyntheticPrompts(8), input_tokens_mean=8)
    space = problem([candidate(slots=1), candidate(slots=16)], demand=short)
    bounds = RooflineBounds.from_results(space, [probed(candidate(), prefill=100.0)])
    assert bounds.capacity_at_most(candidate(slots=16)) > 2 * bounds.capacity_at_most(candidate(slots=1))


def test_a_mean_answer_bounds_the_capacity_not_the_longest():
    long = Demand(
        peak_rate=6.0,
        output_tokens=1000,
        synthetic=SyntheticPrompts(8),
        input_tokens_mean=8,
        asked_tokens_mean=50.0,
        asked_tokens_max=1000,
    )
    space = problem([candidate()], demand=long)
    bounds = RooflineBounds.from_results(space, [probed(candidate(), step=0.01)])
    assert bounds.capacity_at_most(candidate()) > 1 / (50 * 0.01)
