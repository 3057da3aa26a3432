"""Stop when a pass has become impossible, never before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.load.records import RequestStatus
from slotune.verdict.curtailment import StopRule, Tally, look_confidence
from slotune.verdict.judge import judge
from slotune.verdict.verdicts import Outcome
from slotune.verdict.violations import Violation
from tests.verdict.builders import PROMISE, record, run_of_marks


def test_the_limit_is_that_of_all_planned_requests() -> None:
    assert StopRule(200, PROMISE, 0.95).limit == 4
    assert StopRule(1000, PROMISE, 0.95).limit == 38


def test_extensions_raise_the_limit_and_share_the_confidence() -> None:
    assert look_confidence(0.95, 2) == pytest.approx(0.975)
    assert StopRule(1000, PROMISE, 0.95).limit < StopRule(2000, PROMISE, 0.95, looks=2).limit < 83


def test_no_looks_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="looks is 0"):
        look_confidence(0.95, 0)


def test_the_violation_after_the_limit_stops_the_trial() -> None:
    tally = Tally(StopRule(200, PROMISE, 0.95))
    stops = [tally.ended(record(i, ttft=2.0)) for i in range(5)]
    assert stops == [False, False, False, False, True]
    assert (tally.violations, tally.requests, tally.limit) == (5, 5, 4)


def test_a_request_that_waits_too_long_counts_at_once_and_only_once() -> None:
    tally = Tally(StopRule(200, PROMISE, 0.95))
    tally.overdue(7)
    tally.overdue(7)
    tally.ended(record(7, ttft=3.0))
    assert (tally.requests, tally.violations) == (1, 1)
    tally.next_run()
    tally.ended(record(7, ttft=3.0))
    assert (tally.requests, tally.violations) == (2, 2)


def test_kinds_are_counted_apart() -> None:
    tally = Tally(StopRule(1000, PROMISE, 0.95))
    for one in (record(0), record(1, ttft=2.0), record(2, speed=1), record(3, status=RequestStatus.TRUNCATED)):
        tally.ended(one)
    assert tally.kinds == {Violation.LATE: 1, Violation.TOO_SLOW: 1, Violation.TRUNCATED: 1}


def test_a_trial_too_short_to_pass_stops_when_the_promise_is_shown_broken() -> None:
    rule = StopRule(20, PROMISE, 0.95)
    assert rule.limit == -1
    assert not rule.is_lost(0, 20)
    assert not rule.is_lost(2, 20)
    assert rule.is_lost(4, 20)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 0.3))
def test_nothing_that_could_have_passed_is_stopped(seed: int, share: float) -> None:
    generator = np.random.default_rng(seed)
    runs = [run_of_marks([bool(mark) for mark in generator.random(100) < share]) for _ in range(3)]
    tally = Tally(StopRule(300, PROMISE, 0.9))
    stopped = False
    for one in runs:
        for request in one.records:
            stopped = tally.ended(request) or stopped
        tally.next_run()
    verdict = judge(runs, PROMISE, confidence=0.9, planned_requests=300)
    assert not (stopped and verdict.outcome is Outcome.PASS)
    assert tally.violations == verdict.violations
