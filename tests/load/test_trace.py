"""One seed is one crowd, at any rate, for every candidate, in any number of processes."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from slotune.load.demand import Arrivals, Demand, Prompt, SyntheticPrompts
from slotune.load.lengths import DemandError
from slotune.load.trace import Trace, build_trace

SYNTHETIC = SyntheticPrompts(
    input_tokens_mean=500, input_tokens_stddev=100, shared_prefix_tokens=200, prefix_groups=8, zipf_exponent=1.0
)
DEMAND = Demand(peak_rate=6.0, output_tokens=250, synthetic=SYNTHETIC)
REPLAY = Arrivals(
    process="replay",
    offsets_s=(0.0, 1.0, 1.5, 4.0, 4.1),
    input_tokens=(1, 300, 400, 500, 600),
    output_tokens=(1, 2, 3, 4, 5),
)

processes = st.sampled_from(
    [Arrivals(), Arrivals("constant"), Arrivals("gamma", burstiness=0.5), Arrivals("gamma", burstiness=4.0), REPLAY]
)
seeds = st.integers(0, 2**40)
rates = st.floats(0.01, 500.0)


def draw(demand: Demand = DEMAND, *, rate: float = 6.0, seed: int = 7, requests: int = 200, warmup: int = 50) -> Trace:
    return build_trace(demand, rate=rate, seed=seed, requests=requests, warmup_requests=warmup)


def gaps(process: Arrivals, requests: int = 4000, seed: int = 7) -> np.ndarray:
    trace = draw(replace(DEMAND, arrivals=process), rate=1.0, requests=requests, warmup=0, seed=seed)
    return np.diff([0.0, *(entry.at_s for entry in trace.entries)])


@settings(max_examples=25, deadline=None)
@given(processes, seeds, rates, rates)
def test_a_seed_gives_the_same_trace_at_any_rate(arrivals: Arrivals, seed: int, rate: float, other: float) -> None:
    demand = replace(DEMAND, arrivals=arrivals)
    one, two = draw(demand, rate=rate, seed=seed, requests=20), draw(demand, rate=other, seed=seed, requests=20)
    assert one.hash == two.hash
    assert [entry.unit_s for entry in one.entries] == [entry.unit_s for entry in two.entries]
    assert one.entries[-1].at_s * rate == pytest.approx(two.entries[-1].at_s * other)


@settings(max_examples=25, deadline=None)
@given(seeds, seeds)
def test_other_seeds_give_other_gaps_prompts_and_nonces(seed: int, other: int) -> None:
    if seed == other:
        return
    one, two = draw(seed=seed), draw(seed=other)
    assert one.hash != two.hash
    assert not {entry.nonce for entry in one.entries} & {entry.nonce for entry in two.entries}
    shared = {entry.unit_s for entry in one.entries} & {entry.unit_s for entry in two.entries}
    assert not shared


@settings(max_examples=25, deadline=None)
@given(processes, st.integers(1, 7), seeds)
def test_shards_are_disjoint_and_together_are_the_trace_and_what_follows_it(
    arrivals: Arrivals, shards: int, seed: int
) -> None:
    """A seed per worker gave one tool 19 gaps ten times over."""
    trace = draw(replace(DEMAND, arrivals=arrivals), requests=30, warmup=7, seed=seed)
    parts = [trace.shard(number, shards) for number in range(shards)]
    together = sorted((entry for part in parts for entry in part.entries), key=lambda entry: entry.index)
    assert tuple(together) == trace.entries
    assert {part.hash for part in parts} == {trace.hash}
    after = list(itertools.islice(trace.continuation(), 21))
    split = [list(itertools.takewhile(lambda entry: entry.index < 58, part.continuation())) for part in parts]
    assert sorted((entry for part in split for entry in part), key=lambda entry: entry.index) == after


def test_the_traffic_goes_on_after_the_window_as_a_longer_trace_would() -> None:
    longer = draw(requests=300)
    assert tuple(itertools.islice(draw(requests=200).continuation(), 100)) == longer.entries[250:]


def test_poisson_gaps_are_exponential() -> None:
    assert stats.kstest(gaps(Arrivals()), "expon").pvalue > 0.01


def test_gamma_gaps_have_the_declared_shape() -> None:
    for burstiness in (0.25, 4.0):
        sample = gaps(Arrivals("gamma", burstiness=burstiness))
        assert stats.kstest(sample, "gamma", args=(burstiness, 0, 1 / burstiness)).pvalue > 0.01
        assert np.std(sample) == pytest.approx(1 / np.sqrt(burstiness), rel=0.1)


def test_a_gamma_process_of_shape_one_is_poisson() -> None:
    assert list(gaps(Arrivals("gamma", burstiness=1.0), 50)) == list(gaps(Arrivals(), 50))


def test_constant_gaps_are_constant() -> None:
    assert set(gaps(Arrivals("constant"), 100).round(9)) == {1.0}


@pytest.mark.parametrize("arrivals", [Arrivals(), Arrivals("gamma", burstiness=0.5)], ids=["poisson", "gamma"])
def test_a_sample_is_not_stretched_to_hit_its_rate(arrivals: Arrivals) -> None:
    """The number of requests in a fixed time must vary; scaled samples of other tools have none of it."""
    totals = [draw(replace(DEMAND, arrivals=arrivals), rate=1.0, seed=seed, warmup=0).window_s for seed in range(40)]
    assert np.std(totals) / np.mean(totals) > 0.5 * np.sqrt(1 / 200)
    assert np.mean(totals) == pytest.approx(200, rel=0.06)


def test_a_replay_keeps_the_recorded_gaps_in_their_order() -> None:
    mean = 4.1 / 4
    recorded = [mean, 1.0, 0.5, 2.5, 0.1]
    sample = list(gaps(REPLAY, 5) * mean)
    turns = [recorded[start:] + recorded[:start] for start in range(5)]
    assert any(np.allclose(sample, turn) for turn in turns)
    assert gaps(REPLAY, 500).mean() == pytest.approx(1.0)


def test_a_replay_keeps_lengths_with_their_arrivals_and_leaves_room_for_the_prefix() -> None:
    trace = draw(replace(DEMAND, arrivals=REPLAY), requests=10, warmup=0)
    pairs = {(entry.input_tokens, entry.max_tokens) for entry in trace.entries}
    assert pairs == {(201, 1), (300, 2), (400, 3), (500, 4), (600, 5)}


def test_runs_replay_from_different_places() -> None:
    starts = {draw(replace(DEMAND, arrivals=REPLAY), requests=5, seed=seed).entries[0].max_tokens for seed in range(20)}
    assert len(starts) > 2


def test_groups_are_as_popular_as_declared() -> None:
    trace = draw(requests=6000)
    counts = np.bincount([entry.prefix_group for entry in trace.entries if not entry.warmup], minlength=8)
    weights = 1 / np.arange(1, 9)
    assert stats.chisquare(counts, weights / weights.sum() * 6000).pvalue > 0.01


def test_the_warm_up_meets_each_group_before_any_twice() -> None:
    assert {entry.prefix_group for entry in draw(warmup=8).entries[:8]} == set(range(8))
    assert [entry.prefix_group for entry in draw(warmup=3).entries[:3]] == [0, 1, 2]


def test_lengths_have_the_declared_mean_and_room_for_the_prefix() -> None:
    lengths = [entry.input_tokens or 0 for entry in draw(requests=6000).entries]
    assert np.mean(lengths) == pytest.approx(500, rel=0.01)
    assert min(lengths) > 200
    assert max(lengths) <= 800


def test_without_a_shared_prefix_there_are_no_groups() -> None:
    demand = Demand(peak_rate=1.0, output_tokens=1, synthetic=SyntheticPrompts(input_tokens_mean=10))
    assert {entry.prefix_group for entry in draw(demand).entries} == {None}


def test_every_real_prompt_is_used_once_before_any_is_used_twice() -> None:
    prompts = tuple(Prompt(text=str(number), max_tokens=number + 1) for number in range(30))
    trace = draw(Demand(peak_rate=1.0, output_tokens=9, prompts=prompts), requests=60, warmup=0)
    first = [entry.prompt_id for entry in trace.entries[:30]]
    second = [entry.prompt_id for entry in trace.entries[30:]]
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    assert all(entry.max_tokens == entry.prompt_id + 1 for entry in trace.entries)
    assert {entry.input_tokens for entry in trace.entries} == {None}


def test_the_window_begins_where_the_warm_up_ends() -> None:
    trace = draw(rate=2.0)
    assert [entry.warmup for entry in trace.entries] == [True] * 50 + [False] * 200
    assert trace.window_start_s == trace.entries[49].at_s
    assert trace.window_s == trace.entries[-1].at_s - trace.entries[49].at_s
    assert draw(warmup=0).window_start_s == 0.0


def test_the_hash_knows_the_demand() -> None:
    other = replace(DEMAND, sampling=(("temperature", 0.7),))
    assert draw().hash != draw(other).hash
    assert len(draw().hash) == 16


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"synthetic": None}, "exactly one of synthetic and prompts"),
        ({"prompts": (Prompt(text="a"),)}, "exactly one of synthetic and prompts"),
        ({"output_tokens": 0}, "output_tokens is 0"),
        ({"arrivals": Arrivals("gamma", burstiness=0.0)}, "burstiness is 0.0"),
        ({"arrivals": Arrivals("replay", offsets_s=(0.0,))}, "offsets_s holds 1"),
        ({"arrivals": Arrivals("replay", offsets_s=(0.0, 1.0), output_tokens=(1,))}, "output_tokens holds 1"),
        ({"synthetic": replace(SYNTHETIC, prefix_groups=0)}, "prefix_groups is 0"),
        ({"synthetic": replace(SYNTHETIC, shared_prefix_tokens=500)}, "shared_prefix_tokens is 500"),
        ({"synthetic": replace(SYNTHETIC, input_tokens_max=400)}, "input_tokens_max 400"),
    ],
)
def test_a_demand_that_contradicts_itself_is_refused_by_name(change: dict[str, object], names: str) -> None:
    with pytest.raises(DemandError, match=names):
        draw(replace(DEMAND, **change))  # type: ignore[arg-type]  # one field at a time


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"rate": 0.0}, "rate is 0.0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"requests": 0}, "requests is 0"),
        ({"warmup": -1}, "warmup_requests -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_an_argument_that_makes_no_traffic_is_refused_by_name(change: dict[str, float], names: str) -> None:
    with pytest.raises(DemandError, match=names):
        draw(**change)  # type: ignore[arg-type]  # one argument at a time


def test_a_shard_is_not_sharded_again() -> None:
    with pytest.raises(ValueError, match="shard the whole once"):
        draw().shard(0, 2).shard(0, 2)


def test_a_seed_means_the_same_trace_in_every_release() -> None:
    """Golden values: a change here voids every stored result, and numpy promises streams only within a version."""
    trace = draw(rate=6.0, seed=7, requests=3, warmup=0)
    assert [round(entry.unit_s, 6) for entry in trace.entries] == [0.689952, 1.751391, 2.3892]
    assert [(entry.prefix_group, entry.input_tokens) for entry in trace.entries] == [(2, 379), (1, 434), (4, 419)]
    assert trace.entries[0].nonce == 7801953941108519507
