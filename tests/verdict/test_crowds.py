"""How lucky a crowd was is told from what it did to a virtual queue, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.demand import Arrivals, Demand, Prompt, SyntheticPrompts
from slotune.load.records import RunResult
from slotune.load.trace import build_trace
from slotune.verdict.binomial import share_upper
from slotune.verdict.crowds import Averaged, average_crowd
from slotune.verdict.evidence import weigh
from slotune.verdict.judge import judge
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome
from tests.verdict.builders import record

PROMISE = Promise(ttft_s=1.0)
DEMAND = Demand(peak_rate=2.0, output_tokens=100, synthetic=SyntheticPrompts(1000), identity="test")
RATE, REQUESTS, WARMUP = 2.0, 200, 50


def late_at_two_servers(times: Iterable[float], service_s: float) -> list[bool]:
    """Whom a pair of servers makes wait: another queue than the virtual one, with the same crowd."""
    free = [0.0, 0.0]
    late = []
    for time in times:
        begin = max(time, free[0])
        free = sorted([begin + service_s, free[1]])
        late.append(begin + service_s - time > PROMISE.ttft_s)
    return late[WARMUP:]


def trial(
    seeds: Sequence[int], demand: Demand = DEMAND, service_s: float = 0.53
) -> tuple[list[RunResult], list[list[bool]]]:
    runs, marks = [], []
    for seed in seeds:
        trace = build_trace(demand, rate=RATE, seed=seed, requests=REQUESTS, warmup_requests=WARMUP)
        late = late_at_two_servers([entry.at_s for entry in trace.entries], service_s)
        marks.append(late)
        records = [record(WARMUP + i, ttft=1.5 if one else 0.4) for i, one in enumerate(late)]
        runs.append(RunResult(seed, RATE, records, trace.hash, WARMUP))
    return runs, marks


def test_without_the_crowds_luck_shares_scatter_less_and_around_the_truth() -> None:
    generator = np.random.default_rng(5)
    others = [
        late_at_two_servers(generator.exponential(1 / RATE, WARMUP + REQUESTS).cumsum().tolist(), 0.53)
        for _ in range(3000)
    ]
    plain, averaged, errors = [], [], []
    for number in range(40):
        runs, marks = trial(range(5 * number, 5 * number + 5))
        found = average_crowd(runs, marks, DEMAND, PROMISE)
        assert found is not None
        plain.append(np.mean(marks))
        averaged.append(found.share)
        errors.append(found.standard_error)
        assert np.mean(found.run_shares) == pytest.approx(found.share)
    assert np.std(averaged) < 0.6 * np.std(plain)
    assert np.mean(averaged) == pytest.approx(np.mean(others), abs=0.002)
    assert np.mean(errors) == pytest.approx(np.std(averaged), rel=0.5)


def test_violations_that_have_nothing_to_do_with_the_crowd_are_left_as_they_are() -> None:
    runs, _ = trial(range(5))
    generator = np.random.default_rng(3)
    for _ in range(20):
        elsewhere = [[bool(one) for one in generator.random(REQUESTS) < 0.06] for _ in runs]
        assert average_crowd(runs, elsewhere, DEMAND, PROMISE) is None


def test_arrivals_without_luck_have_none() -> None:
    for arrivals in (Arrivals("constant"), Arrivals("replay", offsets_s=(0.0, 0.4, 1.5))):
        demand = replace(DEMAND, arrivals=arrivals)
        runs, marks = trial(range(5), demand, 0.9)
        assert average_crowd(runs, marks, demand, PROMISE) is None


def test_nothing_is_said_about_a_trace_that_was_not_sent() -> None:
    runs, marks = trial(range(5))
    others = [replace(run, seed=run.seed + 1) for run in runs]
    assert average_crowd(others, marks, DEMAND, PROMISE) is None


def test_nothing_is_said_from_little() -> None:
    runs, marks = trial(range(5))
    none_late = [[False] * REQUESTS for _ in runs]
    assert average_crowd(runs, none_late, DEMAND, PROMISE) is None
    assert average_crowd(runs[:3], marks[:3], DEMAND, PROMISE) is None
    stopped = [*runs[:4], replace(runs[4], stopped_early=True)]
    assert average_crowd(stopped, marks, DEMAND, PROMISE) is None


def test_real_prompts_count_alike() -> None:
    demand = Demand(peak_rate=2.0, output_tokens=100, prompts=(Prompt("a"), Prompt("b")), identity="real")
    runs, marks = trial(range(5), demand)
    assert average_crowd(runs, marks, demand, PROMISE) is not None


def luckiest_and_unluckiest() -> tuple[list[int], list[int]]:
    shares = [float(np.mean(trial([seed])[1])) for seed in range(60)]
    order = sorted(range(60), key=lambda seed: shares[seed])
    return order[5:10], order[-10:-5]


def test_a_lucky_crowd_does_not_pass_a_server_and_the_verdict_says_so() -> None:
    lucky, _ = luckiest_and_unluckiest()
    runs, marks = trial(lucky)
    plain = judge(runs, PROMISE, confidence=0.95, planned_requests=1000)
    verdict = judge(runs, PROMISE, confidence=0.95, planned_requests=1000, demand=DEMAND)
    assert plain.violations == verdict.violations == sum(map(sum, marks))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.share_upper is not None
    assert plain.share_upper is not None
    assert verdict.share_upper > plain.share_upper
    assert "% if they came as they do on average)" in verdict.reason


def test_what_was_counted_alone_fails_a_server() -> None:
    _, unlucky = luckiest_and_unluckiest()
    runs, _ = trial(unlucky, service_s=0.6)
    with_demand = judge(runs, PROMISE, confidence=0.95, planned_requests=1000, demand=DEMAND)
    assert with_demand.outcome is judge(runs, PROMISE, confidence=0.95, planned_requests=1000).outcome is Outcome.FAIL


@given(
    st.lists(st.integers(0, 100), min_size=4, max_size=10),
    st.floats(0.001, 0.999),
    st.floats(1e-6, 0.5),
    st.sampled_from([0.8, 0.95, 0.975]),
)
def test_no_luck_excuses_more_violations_than_independent_requests_may_have(
    counts: list[int], share: float, error: float, confidence: float
) -> None:
    runs = [[i < count for i in range(100)] for count in counts]
    found = weigh(runs, 0.05, confidence, averaged=Averaged(share, error, (share,) * len(runs)))
    assert found.share_upper >= share_upper(sum(counts), 100 * len(runs), confidence)
    assert 0 < found.effective_requests <= 100 * len(runs)
