"""When a failure is tried again follows from the status alone, so a new process waits no less and no longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1.deployment_status import Failures
from slotune.controller.backoff import FIRST_S, LONGEST_S, failed_again, seconds_left, wait_s

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@given(st.integers(0, 10_000))
def test_waits_double_up_to_a_bound(failures):
    assert FIRST_S <= wait_s(failures) <= LONGEST_S
    assert wait_s(failures) <= wait_s(failures + 1) <= 2 * wait_s(failures)


def test_nothing_that_failed_is_tried_at_once():
    assert seconds_left(None, NOW) == seconds_left(Failures(), NOW) == seconds_left(Failures(count=3), NOW) == 0


@given(st.lists(st.integers(0, 3000), max_size=20))
def test_failures_within_the_wait_for_the_last_one_are_still_that_one(pauses):
    failures, now = failed_again(None, "Forbidden", NOW), NOW
    assert failures.count == 1
    for pause in pauses:
        now += timedelta(seconds=pause)
        left, before = seconds_left(failures, now), failures
        failures = failed_again(failures, "Forbidden", now)
        assert failures == before if left > 0 else failures.count == before.count + 1


def test_another_reason_counts_as_another_failure_in_the_row():
    first = failed_again(None, "Forbidden", NOW)
    second = failed_again(first, "ImagePullFailed", NOW)
    assert (second.count, second.reason) == (2, "ImagePullFailed")


def test_a_clock_that_went_back_makes_nobody_wait_for_ever():
    failures = failed_again(None, "Forbidden", NOW + timedelta(days=1))
    assert seconds_left(failures, NOW + timedelta(days=1, seconds=wait_s(1))) == 0
    assert seconds_left(failures, NOW) == 0
