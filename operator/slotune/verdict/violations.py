"""When a request breaks the promise, and how that is called.

The two targets are one indicator, not two: a promise to a user is kept or broken. Two separate tests would each
allow their own 5 % (mlcommons/inference#2188).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.verdict.promise import Promise

__all__ = ["Judged", "Violation", "judged_requests", "violation_of", "violation_shares"]


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


@dataclass(frozen=True, slots=True)
class Judged:
    """One request of a run's window that was sent."""

    violation: Violation | None
    record: RequestRecord | None
    """None when the run was stopped before this request's fate was known; it then counts as kept."""


def judged_requests(run: RunResult, promise: Promise) -> list[Judged]:
    """The requests that count, in send order.

    A run that went to its end has a record of each. A run that the stop rule ended has records only of requests whose
    fate was known by then, and late ones are known sooner than good ones. Leaving the others out would make the share
    of violations look larger than it is, so every request that was sent before the last known one is counted, as kept:
    a Fail may not rest on requests that never had their time.
    """
    if not run.stopped_early:
        return [Judged(violation_of(record, promise), record) for record in run.records]
    if not run.records:
        return []
    known = {record.index: Judged(_violation_at_stop(record, promise), record) for record in run.records}
    first = min(run.warmup_requests, *known)
    return [known.get(index, Judged(None, None)) for index in range(first, max(known) + 1)]


def violation_shares(runs: Iterable[RunResult], promise: Promise) -> tuple[float, ...]:
    """Violations over requests of each run that sent any."""
    judged = [judged_requests(run, promise) for run in runs]
    return tuple(sum(one.violation is not None for one in run) / len(run) for run in judged if run)


def _violation_at_stop(record: RequestRecord, promise: Promise) -> Violation | None:
    """A request in flight has a record only if its time was up: without a token by then, or with a late one."""
    if record.status is RequestStatus.UNFINISHED and record.finished_s is None:
        return Violation.LATE if record.ttft_s is None or record.ttft_s > promise.ttft_s else None
    return violation_of(record, promise)
