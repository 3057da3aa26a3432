"""When a request breaks the promise."""

from __future__ import annotations

import pytest

from slotune.load.records import RequestRecord, RequestStatus
from slotune.verdict.promise import Promise
from slotune.verdict.violations import Violation, run_violations, violation_of, violation_shares
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


def test_requests_cut_off_by_the_stop_rule_are_no_violations() -> None:
    cut = RequestRecord(index=3, prompt_id=3, scheduled_s=9.8, sent_s=9.8)
    waiting_too_long = RequestRecord(index=2, prompt_id=2, scheduled_s=8.0, sent_s=8.0)
    decoding = RequestRecord(index=1, prompt_id=1, scheduled_s=6.0, sent_s=6.0, headers_s=6.1, first_token_s=6.5)
    ended = record(0, scheduled=5.0, ttft=4.0, speed=100)  # last token at 10.0
    never_sent = RequestRecord(index=4, prompt_id=4, scheduled_s=12.0)
    stopped = run([ended, decoding, waiting_too_long, cut, never_sent], stopped=True)
    assert run_violations(stopped, PROMISE) == [Violation.LATE, None, Violation.LATE, None]


def test_the_same_requests_are_violations_when_the_run_went_to_its_end() -> None:
    open_end = RequestRecord(index=0, prompt_id=0, scheduled_s=0.0, sent_s=0.0)
    assert run_violations(run([open_end]), PROMISE) == [Violation.UNFINISHED]


def test_shares_are_per_run_and_skip_empty_ones() -> None:
    runs = [run([record(0), record(1, ttft=2.0)]), run([]), run([record(0)])]
    assert violation_shares(runs, PROMISE) == (0.5, 0.0)
