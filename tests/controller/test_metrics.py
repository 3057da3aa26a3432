"""The operator's own numbers count what happened, in a number of series that no fleet can grow."""

from __future__ import annotations

import asyncio

import pytest

from slotune.controller.metrics import OUTCOMES, RESULTS, OperatorMetrics


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sample(metrics: OperatorMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"slotune_{name}", labels)


def test_a_look_is_counted_and_timed() -> None:
    clock = Clock()
    metrics = OperatorMetrics(clock=clock, timer=clock)
    with metrics.reconciling():
        clock.now += 0.3
    assert sample(metrics, "reconcile_total", result="ok") == 1
    assert sample(metrics, "reconcile_duration_seconds_sum") == pytest.approx(0.3)
    assert sample(metrics, "last_reconcile_timestamp_seconds") == pytest.approx(1000.3)


def test_whoever_runs_it_says_how_it_went() -> None:
    metrics = OperatorMetrics()
    with metrics.reconciling() as run:
        run.result = "unavailable"
    assert sample(metrics, "reconcile_total", result="unavailable") == 1
    assert sample(metrics, "reconcile_total", result="ok") == 0


def test_an_exception_is_an_error_and_goes_on() -> None:
    metrics = OperatorMetrics()
    with pytest.raises(KeyError), metrics.reconciling():
        raise KeyError("x")
    assert sample(metrics, "reconcile_total", result="error") == 1


def test_a_look_that_is_cancelled_is_no_error() -> None:
    metrics = OperatorMetrics()
    with pytest.raises(asyncio.CancelledError), metrics.reconciling():
        raise asyncio.CancelledError
    assert sample(metrics, "reconcile_total", result="cancelled") == 1
    assert sample(metrics, "reconcile_total", result="error") == 0


def test_trials_and_wakeups_are_counted() -> None:
    metrics = OperatorMetrics()
    metrics.trial_ended("Pass")
    metrics.trials_running(2)
    metrics.trials_running(1)
    metrics.woken()
    assert sample(metrics, "trials_total", outcome="Pass") == 1
    assert sample(metrics, "running_trials") == 1
    assert sample(metrics, "queue_wakeups_total") == 1


def test_every_series_is_there_before_its_first_event() -> None:
    metrics = OperatorMetrics()
    assert [sample(metrics, "reconcile_total", result=result) for result in RESULTS] == [0, 0, 0, 0]
    assert [sample(metrics, "trials_total", outcome=outcome) for outcome in OUTCOMES] == [0, 0, 0, 0]


def test_words_that_nobody_foresaw_share_one_series() -> None:
    metrics = OperatorMetrics()
    for number in range(100):
        metrics.trial_ended(f"Odd{number}")
        with metrics.reconciling() as run:
            run.result = f"odd{number}"
    assert sample(metrics, "trials_total", outcome="other") == 100
    assert sample(metrics, "reconcile_total", result="other") == 100
    assert len(metrics.render().splitlines()) < 120


def test_two_operators_in_one_process_count_apart() -> None:
    one, other = OperatorMetrics(), OperatorMetrics()
    one.woken()
    assert sample(other, "queue_wakeups_total") == 0
