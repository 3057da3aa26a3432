"""When a request breaks the promise."""

from __future__ import annotations

import pytest

from slotune.load.records import RequestRecord, RequestStatus
from slotune.verdict.promise import Promise
from slotune.verdict.violations import Violation, judged_requests, violation_of, violation_shares
from tests.verdict.builders import PROMISE, record, run

CASES = {
    "in time and fast enough": (record(), None),
    "exactly in time": (record(ttft=1.0), None),
    "exactly fast enough": (record(speed=30.0, scheduled=0.0), None),
    "a little late": (record(ttft=1.001), Violation.LATE),
    "in time but too slow": (record(speed=29.9), Violation.TOO_SLOW),
    "late and too slow is late": (record(ttft=3.0, speed=10), Violation.LATE),
    "one token has no speed": (record(tokens=1, speed=1e-9), None),
    "all tokens in one event are fast": (record(speed=float("inf")), None),
    "an answer outside 2xx": (record(ttft=None, status=RequestStatus.HTTP_ERROR), Violation.FAILED),
    "a broken stream after good tokens": (record(status=RequestStatus.STREAM_ERROR), Violation.FAILED),
    "no connection": (record(ttft=None, status=RequestStatus.REFUSED), Violation.FAILED),
    "a stream without a token": (record(ttft=None, status=RequestStatus.NO_TOKENS), Violation.NO_TOKENS),
    "an ok that never brought a token": (record(ttft=None), Violation.NO_TOKENS),
    "the context ran out": (record(status=RequestStatus.TRUNCATED), Violation.TRUNCATED),
    "still running at the limit": (record(status=RequestStatus.UNFINISHED), Violation.UNFINISHED),
}


@pytest.mark.parametrize(("request_", "want"), CASES.values(), ids=CASES.keys())
def test_one_request(request_: RequestRecord, want: Violation | None) -> None:
    assert violation_of(request_, PROMISE) is want


def test_a_promise_without_a_speed_ignores_the_speed() -> None:
    assert violation_of(record(speed=0.1), Promise(ttft_s=1.0)) is None


def test_a_late_client_makes_a_request_late() -> None:
    late = record(ttft=1.2)
    late.sent_s = late.scheduled_s + 0.9  # the server answered 0.3 s after it was asked
    assert violation_of(late, PROMISE) is Violation.LATE


def test_requests_in_flight_at_a_stop_count_as_kept_unless_they_were_late() -> None:
    ended_late = record(10, ttft=4.0)
    token_came_late = RequestRecord(index=12, prompt_id=12, scheduled_s=6.0, sent_s=6.0, first_token_s=7.5)
    no_token_in_time = RequestRecord(index=14, prompt_id=14, scheduled_s=8.0, sent_s=8.0)
    # Requests 11 and 13 were in flight with their fate open, so they have no record; 15 and later were not waited for.
    stopped = run([ended_late, token_came_late, no_token_in_time], stopped=True)
    stopped.warmup_requests = 10
    judged = judged_requests(stopped, PROMISE)
    assert [one.violation for one in judged] == [Violation.LATE, None, Violation.LATE, None, Violation.LATE]
    assert [one.record and one.record.index for one in judged] == [10, None, 12, None, 14]


def test_a_request_given_up_at_its_time_limit_is_unfinished_also_when_the_run_was_stopped() -> None:
    given_up = record(0, status=RequestStatus.UNFINISHED)
    assert [one.violation for one in judged_requests(run([given_up], stopped=True), PROMISE)] == [Violation.UNFINISHED]


def test_a_run_stopped_before_anything_was_known_counts_nothing() -> None:
    assert judged_requests(run([], stopped=True), PROMISE) == []


def test_the_same_requests_are_violations_when_the_run_went_to_its_end() -> None:
    open_end = RequestRecord(index=0, prompt_id=0, scheduled_s=0.0, sent_s=0.0)
    assert [one.violation for one in judged_requests(run([open_end]), PROMISE)] == [Violation.UNFINISHED]


def test_shares_are_per_run_and_skip_empty_ones() -> None:
    runs = [run([record(0), record(1, ttft=2.0)]), run([]), run([record(0)])]
    assert violation_shares(runs, PROMISE) == (0.5, 0.0)
