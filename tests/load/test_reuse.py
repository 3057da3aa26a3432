"""What a cache could have served of a trace: exact for declared prefixes, never less than the slots could, never more
than is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.estimates import with_estimates
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.reuse import Reuse, measured_reuse, reuse_of
from slotune.load.sharing import shared_lengths
from slotune.load.trace import Trace, build_trace


def shared(groups: int = 1, *, tokens: int = 100, prefix: int = 60) -> Demand:
    made = SyntheticPrompts(tokens, shared_prefix_tokens=prefix, prefix_groups=groups, zipf_exponent=0.0)
    return with_estimates(Demand(peak_rate=1.0, output_tokens=2, synthetic=made))


def answered(trace: Trace, cached: int = 0, prompt: int = 100) -> RunResult:
    """A run of which every request says how much of it was cached."""
    records = [
        RequestRecord(
            entry.index, entry.prompt_id, entry.at_s, RequestStatus.OK, prompt_tokens=prompt, cached_tokens=cached
        )
        for entry in trace.entries
        if not entry.warmup
    ]
    return RunResult(trace.seed, trace.rate, records)


def reused(demand: Demand, slots: int, *, runs: int = 1, requests: int = 40, warmup: int = 0, cached: int = 0) -> Reuse:
    traces = [
        build_trace(demand, rate=1.0, seed=seed, requests=requests, warmup_requests=warmup) for seed in range(runs)
    ]
    found = reuse_of(demand, [(trace, answered(trace, cached)) for trace in traces], slots)
    assert found is not None
    return found


def test_after_the_warm_up_all_of_the_prefix_can_be_reused() -> None:
    found = reused(shared(), slots=0, warmup=1, cached=25)
    assert found.theoretical == pytest.approx(0.6)
    assert found.measured == pytest.approx(0.2)
    assert (found.prefixes, found.prefix_share) == (1, pytest.approx(0.6))


def test_the_first_prompt_of_each_group_in_each_run_is_cold() -> None:
    """40 requests of 4 groups: 36 find their prefix, in every run anew, because prefixes are the run's own."""
    found = reused(shared(4), slots=0, runs=3)
    assert found.theoretical == pytest.approx(0.6 * 36 / 40)
    assert found.prefixes == 4


def test_priming_counts_as_read_before() -> None:
    assert reused(shared(1), slots=0).theoretical < reused(shared(1), slots=2).theoretical == pytest.approx(0.6)


def test_slots_keep_as_many_prefixes_as_they_are() -> None:
    demand = shared(8)
    few, enough = reused(demand, slots=1, warmup=8), reused(demand, slots=8, warmup=8)
    assert few.theoretical == enough.theoretical == pytest.approx(0.6)
    assert few.by_slots < 0.5 * few.theoretical, "one slot keeps one prefix of eight"
    assert enough.by_slots == pytest.approx(enough.theoretical)
    assert reused(demand, slots=0, warmup=8).by_slots == 0.0


def test_requests_without_counts_are_left_out_and_none_at_all_is_not_zero() -> None:
    demand = shared()
    trace = build_trace(demand, rate=1.0, seed=1, requests=4, warmup_requests=1)
    run = answered(trace, cached=60, prompt=40)
    run.records[0] = replace(run.records[0], cached_tokens=None)
    found = reuse_of(demand, [(trace, run)], 0)
    assert found is not None
    assert found.measured == pytest.approx(0.6)
    silent = [replace(record, prompt_tokens=None) for record in run.records]
    assert reuse_of(demand, [(trace, replace(run, records=silent))], 0) is None
    assert measured_reuse(silent) is None


def test_real_prompts_reuse_what_they_share_with_any_that_came_before() -> None:
    """Each text once: the first is cold, the second shares half; again, and each shares its half, behind a marker."""
    prompts = (Prompt(text="s" * 50 + "a" * 50), Prompt(text="s" * 50 + "b" * 50))
    demand = with_estimates(Demand(peak_rate=1.0, output_tokens=2, prompts=prompts))
    once, twice = reused(demand, slots=0, requests=2), reused(demand, slots=0, requests=4)
    assert once.theoretical == pytest.approx(0.25)
    assert twice.theoretical == pytest.approx(0.375)
    assert once.prefixes == 1


texts = st.lists(st.text("ab", min_size=1, max_size=6), min_size=2, max_size=8)


@given(texts, st.integers(0, 4), st.integers(1, 3))
@settings(deadline=None)
def test_texts_reuse_exactly_the_longest_beginning_of_any_before(words: list[str], slots: int, rounds: int) -> None:
    """Against the plain way: compare each prompt with all that came before."""
    demand = with_estimates(Demand(1.0, 2, prompts=tuple(Prompt(text=word) for word in words)))
    trace = build_trace(demand, rate=1.0, seed=3, requests=rounds * len(words))
    found = reuse_of(demand, [(trace, answered(trace))], 0)
    assert found is not None
    own = shared_lengths(demand.prompts)

    def common(one: int, other: int) -> int:
        if one == other:
            return own[one]
        pairs = zip(words[one], words[other], strict=False)
        return next(
            (place for place, (left, right) in enumerate(pairs) if left != right),
            min(map(len, (words[one], words[other]))),
        )

    order = [entry.prompt_id for entry in trace.entries]
    want = sum(max((common(one, other) for other in order[:at]), default=0) for at, one in enumerate(order))
    assert found.theoretical == pytest.approx(want / sum(len(words[one]) for one in order))
    with_slots = reuse_of(demand, [(trace, answered(trace))], slots)
    assert with_slots is not None
    assert 0 <= with_slots.by_slots <= with_slots.theoretical + 1e-9


@given(st.integers(1, 12), st.integers(0, 12), st.integers(0, 12), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_no_cache_serves_more_than_is_declared_and_slots_never_more_than_a_perfect_one(
    groups: int, slots: int, warmup: int, runs: int
) -> None:
    demand = shared(groups)
    found, more = (reused(demand, s, runs=runs, warmup=warmup) for s in (slots, slots + 1))
    assert 0 <= found.by_slots <= found.theoretical <= 0.6 + 1e-9
    assert found.theoretical <= more.theoretical + 1e-9
