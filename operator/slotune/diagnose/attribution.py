"""Where the time to the first token went: queue, prefill, contention, overhead.

The server's own timings can't say it. ``prompt_ms`` starts when a slot takes the request, so the queue is missing from
it, and /metrics has no histogram. But llama-server flushes the response headers when a slot takes the request
(build 11549), so the client saw both ends of the queue:

    scheduled   sent        headers                              first token
        |- lag --|-- queue ----|----- reading the prompt --------------|
                  ^ overhead                prefill | contention

An idle probe tells prefill from contention: what the prompt would have taken with nobody else in the batch.
The reasoning is in docs/how-it-measures.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import Attribution, IdleProbe

__all__ = ["attribute", "attribute_runs", "slowest"]

SAMPLE_SLACK_S = 0.6
"""Gauges are sampled once a second: half of that, and a little, on either side of a wait."""


def attribute_runs(runs: Sequence[RunResult], probe: IdleProbe) -> tuple[Attribution | None, Attribution | None]:
    """(over all requests of a trial, over its slowest 5 %): a trial result's ``attribution`` and ``slowest``.

    The slowest include requests that still waited when the run was stopped, as if answered then: an overloaded server
    may have answered none, and the wait so far says where they were stuck.
    """
    records = [record for run in runs for record in run.records]
    answered = [(run, record) for run in runs for record in _answered_at_stop(run)]
    latest = slowest([record for _, record in answered])
    ours = {id(record) for record in latest}
    busy = _busy_while_waiting([(run, record) for run, record in answered if id(record) in ours])
    return attribute(records, probe, _busy_slots(runs)), attribute(latest, probe, busy)


def attribute(
    records: Sequence[RequestRecord], probe: IdleProbe, busy_slots: float | None = None
) -> Attribution | None:
    """Mean parts of TTFT (seconds) over the requests that got a first token; None when none did.

    The parts of each request are never negative and add up to its TTFT. ``overhead_s`` holds the client's lag too.
    """
    parts = [part for record in records if (part := _split(record, probe)) is not None]
    if not parts:
        return None
    return Attribution(
        queue_s=fmean(part.queue_s for part in parts),
        prefill_s=fmean(part.prefill_s for part in parts),
        contention_s=fmean(part.contention_s for part in parts),
        overhead_s=fmean(part.overhead_s for part in parts),
        cached_share=_cached_share(records),
        busy_slots=busy_slots,
    )


def slowest(records: Sequence[RequestRecord], share: float = 0.05) -> list[RequestRecord]:
    """The ``share`` of requests with the latest first tokens, at least one: what p95 is made of.

    The mean hides what breaks a promise: with one request in ten queueing, it says that prefill matters most.
    """
    answered = [(ttft, record) for record in records if (ttft := record.ttft_s) is not None]
    answered.sort(key=lambda pair: (-pair[0], pair[1].index))
    return [record for _, record in answered[: math.ceil(share * len(answered))]]


def _answered_at_stop(run: RunResult) -> list[RequestRecord]:
    """The run's records, those without an answer answered at the last moment that any record speaks of."""
    if not run.stopped_early:
        return run.records
    end = max((moment for record in run.records for moment in _moments(record) if moment is not None), default=0.0)
    return [
        replace(record, headers_s=end if record.headers_s is None else record.headers_s, first_token_s=end)
        if record.first_token_s is None and record.status is RequestStatus.UNFINISHED
        else record
        for record in run.records
    ]


def _moments(record: RequestRecord) -> tuple[float | None, ...]:
    return record.sent_s, record.headers_s, record.first_token_s, record.last_token_s, record.finished_s


@dataclass(frozen=True, slots=True)
class _Parts:
    queue_s: float
    prefill_s: float
    contention_s: float
    overhead_s: float


def _split(record: RequestRecord, probe: IdleProbe) -> _Parts | None:
    if record.first_token_s is None:
        return None
    sent = record.scheduled_s if record.sent_s is None else record.sent_s
    to_first = max(0.0, record.first_token_s - sent)
    if record.headers_s is not None:
        before_slot = min(max(0.0, record.headers_s - sent), to_first)
    elif record.prompt_ms is not None:
        # A proxy in between may hold the headers back; the server's own clock then says how long the prompt took.
        before_slot = max(0.0, to_first - record.prompt_ms / 1000)
    else:
        before_slot = 0.0
    overhead = min(before_slot, probe.overhead_s)
    reading = to_first - before_slot
    alone = reading if record.prompt_tokens is None else record.prompt_tokens / probe.prefill_tokens_per_s
    prefill = min(reading, alone)
    return _Parts(
        queue_s=before_slot - overhead,
        prefill_s=prefill,
        contention_s=reading - prefill,
        overhead_s=overhead + max(0.0, sent - record.scheduled_s),
    )


def _cached_share(records: Sequence[RequestRecord]) -> float | None:
    """Cached over all prompt tokens. A server that never said is None, which is not "nothing was cached"."""
    said = [
        (record.cached_tokens, record.prompt_tokens)
        for record in records
        if record.cached_tokens is not None and record.prompt_tokens is not None
    ]
    total = sum(cached + computed for cached, computed in said)
    return sum(cached for cached, _ in said) / total if total else None


def _busy_while_waiting(waits: Sequence[tuple[RunResult, RequestRecord]]) -> float | None:
    """Most slots at work while one of the requests waited for one; None when no sample was taken just then.

    The mean over a run with quiet stretches says that slots were free, when none was in the burst that made requests
    late.
    """
    seen = [
        busy
        for run, record in waits
        if record.sent_s is not None
        for at, busy, _ in run.busy_samples
        if record.sent_s - SAMPLE_SLACK_S <= at <= (record.headers_s or record.sent_s) + SAMPLE_SLACK_S
    ]
    return float(max(seen)) if seen else None


def _busy_slots(runs: Sequence[RunResult]) -> float | None:
    """Mean slots at work: by the server's counters, else by samples of its gauges; None when it showed neither."""
    counted = [run.busy_slots for run in runs if run.busy_slots is not None]
    sampled = [busy for run in runs for _, busy, _ in run.busy_samples]
    return fmean(counted or sampled) if counted or sampled else None
