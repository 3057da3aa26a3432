"""Runs are pooled; quantiles are values that were seen."""

from __future__ import annotations

import numpy as np
import pytest

from slotune.load.latency_summary import summarize
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import Latencies


def record(index: int, ttft_s: float | None, *, tpot_s: float = 0.02, cached: int | None = 30) -> RequestRecord:
    if ttft_s is None:
        return RequestRecord(index, index, 1.0, RequestStatus.REFUSED, sent_s=1.0)
    first = 1.0 + ttft_s
    return RequestRecord(
        index,
        index,
        1.0,
        RequestStatus.OK,
        sent_s=1.0,
        first_token_s=first,
        last_token_s=first + 10 * tpot_s,
        token_events=11,
        output_tokens=11,
        longest_gap_s=tpot_s * 2,
        prompt_tokens=70,
        cached_tokens=cached,
    )


def test_quantiles_are_observed_values_over_all_runs() -> None:
    runs = [
        RunResult(1, 1.0, [record(index, (index + 1) / 100) for index in range(50)]),
        RunResult(2, 1.0, [record(index, (index + 51) / 100) for index in range(50)]),
    ]
    summary = summarize(runs)
    assert summary.ttft_p50_s == pytest.approx(0.50)
    assert summary.ttft_p95_s == pytest.approx(0.95)
    assert summary.ttft_p99_s == pytest.approx(0.99)
    assert len(summary.ttft_quantiles_s) == 101
    assert summary.ttft_quantiles_s[0] == pytest.approx(0.01)
    assert summary.ttft_quantiles_s[100] == pytest.approx(1.0)
    assert list(summary.ttft_quantiles_s) == sorted(summary.ttft_quantiles_s)


def test_the_slow_tail_of_speed_is_its_low_end() -> None:
    runs = [RunResult(1, 1.0, [record(index, 0.1, tpot_s=0.01 * (index + 1)) for index in range(100)])]
    summary = summarize(runs)
    assert summary.tokens_per_second_p5 == pytest.approx(1 / 0.96)
    assert summary.tokens_per_second_p50 == pytest.approx(1 / 0.51)
    assert summary.longest_gap_p99_s == pytest.approx(1.98)


def test_a_request_without_a_token_is_missing_instead_of_zero() -> None:
    summary = summarize([RunResult(1, 1.0, [record(0, None), record(1, 0.5)])])
    assert summary.ttft_p50_s == pytest.approx(0.5)
    assert summary.mean_output_tokens == 11


def test_nothing_measured_is_nothing_said() -> None:
    assert summarize([]) == Latencies()
    assert summarize([RunResult(1, 1.0, [record(0, None)])]) == Latencies()


def test_prompt_tokens_count_the_cached_ones_too() -> None:
    assert summarize([RunResult(1, 1.0, [record(0, 0.1)])]).mean_prompt_tokens == 100
    assert summarize([RunResult(1, 1.0, [record(0, 0.1, cached=None)])]).mean_prompt_tokens == 70


def test_throughput_is_what_came_in_within_the_windows_and_knows_bundled_tokens() -> None:
    run = RunResult(1, 1.0, [record(0, 0.1), record(1, 0.1)], window_s=10.0, window_token_events=400)
    assert summarize([run, run]).output_tokens_per_s == pytest.approx(40.0)
    for one in run.records:
        one.output_tokens = 33  # three tokens an event
    assert summarize([run]).output_tokens_per_s == pytest.approx(120.0)


def test_quantiles_agree_with_numpys_definition() -> None:
    values = np.random.default_rng(3).exponential(size=337)
    summary = summarize([RunResult(1, 1.0, [record(index, float(value)) for index, value in enumerate(values)])])
    assert summary.ttft_p95_s == pytest.approx(float(np.quantile(values, 0.95, method="inverted_cdf")))
    assert summary.ttft_p95_s == pytest.approx(float(np.sort(values)[int(np.ceil(0.95 * 337)) - 1]))


def test_guessed_tokens_are_counted_over_all_requests() -> None:
    first, second, silent = record(0, 0.1), record(1, 0.1), record(2, 0.1)
    first.drafted_tokens, first.accepted_tokens = 30, 20
    second.drafted_tokens, second.accepted_tokens = 10, 0

    summary = summarize([RunResult(1, 1.0, [first, silent]), RunResult(2, 1.0, [second])])

    assert (summary.drafted_tokens, summary.accepted_tokens, summary.acceptance) == (40, 20, 0.5)
    assert summarize([RunResult(1, 1.0, [silent])]).acceptance is None
