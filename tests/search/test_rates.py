"""A slow owed rate is approached from above; a quick one is asked directly."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from slotune.search.problem import Measurement
from slotune.search.rates import PATIENCE_S, rates_to_try, requests_per_run, seconds_at
from slotune.verdict.promise import Promise

DEFAULT = Measurement()


def test_a_rate_that_is_quick_enough_is_the_only_one():
    assert rates_to_try(6.0, math.inf, DEFAULT) == (6.0,)


def test_a_slow_rate_is_approached_from_one_that_takes_minutes():
    rates = rates_to_try(0.1, math.inf, DEFAULT)
    assert seconds_at(rates[0], DEFAULT) <= PATIENCE_S * 1.0001
    assert rates[-1] == 0.1


def test_no_rate_lies_above_what_the_bound_allows():
    assert max(rates_to_try(0.1, 0.5, DEFAULT)) <= 0.4


@given(st.floats(1e-3, 50), st.floats(1e-3, 1e3) | st.just(math.inf))
def test_rates_fall_towards_the_owed_one_which_is_always_last(owed, capacity):
    rates = rates_to_try(owed, capacity, DEFAULT)
    assert rates[-1] == owed
    assert list(rates) == sorted(rates, reverse=True)
    assert len(set(rates)) == len(rates)


def test_a_confirmation_that_may_err_less_gets_the_requests_and_the_time_for_it():
    few = Measurement(confidence=0.8, requests_per_run=20, runs=2, extensions=0)
    promise = Promise(1.0)
    assert requests_per_run(few, promise, 0.8) == 20
    assert requests_per_run(few, promise, 0.975) == 36  # 72 without a violation show 97.5 %
    assert seconds_at(1.0, few, per_run=36) == 2 * (36 + few.warmup_requests)
