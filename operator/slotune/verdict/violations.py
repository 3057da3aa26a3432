"""When a request breaks the promise, and how that is called.

The two targets are one indicator, not two: a promise to a user is kept or broken. Two separate tests would each
allow their own 5 % (mlcommons/inference#2188).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.verdict.promise import Promise

__all__ = ["Violation", "judged_records", "run_violations", "violation_of", "violation_shares"]


class Violation(enum.StrEnum):
    """How a request broke the promise. The first that applies, in this order, names it."""

    FAILED = "Failed"  # an HTTP error, a broken stream, no connection
    NO_TOKENS = "NoTokens"  # the stream ended well, but nothing was generated
    TRUNCATED = "Truncated"  # the context ran out
    UNFINISHED = "Unfinished"  # still running at the time limit
    LATE = "Late"  # the first token came after the promised time
    TOO_SLOW = "TooSlow"  # fewer tokens per second than promised

    @property
    def words(self) -> str:
        """How a sentence says it, after "were"."""
        return _WORDS[self]


_WORDS = {
    Violation.FAILED: "failed",
    Violation.NO_TOKENS: "without a token",
    Violation.TRUNCATED: "truncated",
    Violation.UNFINISHED: "unfinished",
    Violation.LATE: "late",
    Violation.TOO_SLOW: "too slow",
}

_BY_STATUS = {
    RequestStatus.HTTP_ERROR: Violation.FAILED,
    RequestStatus.STREAM_ERROR: Violation.FAILED,
    RequestStatus.REFUSED: Violation.FAILED,
    RequestStatus.NO_TOKENS: Violation.NO_TOKENS,
    RequestStatus.TRUNCATED: Violation.TRUNCATED,
    RequestStatus.UNFINISHED: Violation.UNFINISHED,
}

_BY_ANSWER = frozenset(RequestStatus) - {RequestStatus.UNFINISHED}
"""Ends that a request can only have after it was sent, or tried."""


def violation_of(record: RequestRecord, promise: Promise) -> Violation | None:
    """How a request that has ended broke the promise; None when it kept it.

    An answer of a single token has no speed, so only its first token is judged.
    """
    if record.status in _BY_STATUS:
        return _BY_STATUS[record.status]
    if record.ttft_s is None:
        return Violation.NO_TOKENS
    if record.ttft_s > promise.ttft_s:
        return Violation.LATE
    owed = promise.tokens_per_second_per_user
    if owed is not None and record.tokens_per_second is not None and record.tokens_per_second < owed:
        return Violation.TOO_SLOW
    return None


def judged_records(run: RunResult) -> list[RequestRecord]:
    """The requests of the window that count: all, or those that were sent when the stop rule ended the run."""
    if not run.stopped_early:
        return run.records
    return [record for record in run.records if record.sent_s is not None or record.status in _BY_ANSWER]


def run_violations(run: RunResult, promise: Promise) -> list[Violation | None]:
    """One entry per record of :func:`judged_records`.

    When the stop rule ended the run, requests in flight were cut off by us, not by the server. They count as kept
    unless they were late already by then: a Fail may not rest on requests that never had their time.
    """
    records = judged_records(run)
    if not run.stopped_early:
        return [violation_of(record, promise) for record in records]
    end = _last_moment(records)
    return [_violation_at_stop(record, promise, end) for record in records]


def violation_shares(runs: Iterable[RunResult], promise: Promise) -> tuple[float, ...]:
    """Violations over requests of each run that sent any."""
    marks = [run_violations(run, promise) for run in runs]
    return tuple(sum(mark is not None for mark in run) / len(run) for run in marks if run)


def _violation_at_stop(record: RequestRecord, promise: Promise, end: float) -> Violation | None:
    if record.status is not RequestStatus.UNFINISHED:
        return violation_of(record, promise)
    ttft = end - record.scheduled_s if record.ttft_s is None else record.ttft_s
    return Violation.LATE if ttft > promise.ttft_s else None


def _last_moment(records: Iterable[RequestRecord]) -> float:
    """The latest time that any request speaks of: the run was stopped then or a little later."""
    return max(
        (moment for record in records for moment in _moments(record) if moment is not None),
        default=0.0,
    )


def _moments(record: RequestRecord) -> tuple[float | None, ...]:
    return (record.sent_s, record.headers_s, record.first_token_s, record.last_token_s, record.finished_s)
