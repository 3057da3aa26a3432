"""Records and runs of which only what matters is stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.verdict.promise import Promise

PROMISE = Promise(ttft_s=1.0, tokens_per_second_per_user=30)

__all__ = ["PROMISE", "record", "run", "run_of_marks", "runs_of_counts"]


def record(
    index: int = 0,
    *,
    ttft: float | None = 0.4,
    speed: float = 60.0,
    tokens: int = 101,
    status: RequestStatus = RequestStatus.OK,
    scheduled: float | None = None,
    queue: float = 0.0,
) -> RequestRecord:
    """A request sent when it was due; ``ttft`` None brought no token."""
    begin = float(index) if scheduled is None else scheduled
    first = None if ttft is None else begin + ttft
    last = None if first is None else first + (tokens - 1) / speed
    return RequestRecord(
        index=index,
        prompt_id=index,
        scheduled_s=begin,
        status=status,
        sent_s=begin,
        headers_s=None if ttft is None else begin + queue,
        first_token_s=first,
        last_token_s=last,
        finished_s=last,
        output_tokens=None if ttft is None else tokens,
    )


def run(records: Sequence[RequestRecord], *, stopped: bool = False, gates: Iterable[tuple[str, str]] = ()) -> RunResult:
    """One run at a request per second."""
    return RunResult(seed=1, rate=1.0, records=list(records), stopped_early=stopped, invalid_reasons=list(gates))


def run_of_marks(marks: Iterable[bool], *, stopped: bool = False) -> RunResult:
    """A late request for each mark, a good one otherwise."""
    return run([record(i, ttft=1.5 if mark else 0.4) for i, mark in enumerate(marks)], stopped=stopped)


def runs_of_counts(counts: Sequence[int], requests: int = 200) -> list[RunResult]:
    """Runs with so many late requests each, spread evenly so that none has a late neighbour."""
    runs = []
    for count in counts:
        late = {(2 * k + 1) * requests // (2 * count) for k in range(count)}
        runs.append(run_of_marks(i in late for i in range(requests)))
    return runs
