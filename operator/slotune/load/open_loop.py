"""Sends a trace on time and follows every request to its end, in one process.

Open loop: a request goes out when the trace says so, whatever became of those before it. There is no cap
on requests in flight, since a cap would quietly turn overload into a lower rate. A client that falls
behind sends at once and never hides it: TTFT counts from the scheduled time, and a gate reads the lag.

After the window the same traffic goes on until the last measured request has ended, so that stragglers are
not flattered by an emptying server. It only stops short of piling up: what waits behind a full server can't
touch those before it, and llama-server (build 11549) prefills a queued prompt even when its client is gone, so
every one of them would have to be waited for.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp

from slotune.load.bodies import Bodies
from slotune.load.exchange import Tally, exchange
from slotune.load.gates import nearly_largest
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.target import LoadObserver, Target
from slotune.load.trace import Trace, TraceEntry

__all__ = ["OpenLoop"]

LOOP_PROBE_S = 0.05
"""How often the loop's own lag is sampled."""
HEARTBEAT_S = 1.0
_TIMER_SLACK_S = 0.002
"""A timer of the loop may fire a millisecond early; a request must not be called late before it is."""


class OpenLoop:
    """One run of one trace (or of one shard of it). Use once."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        target: Target,
        trace: Trace,
        bodies: Bodies,
        *,
        start: float,
        request_timeout_s: float,
        deadline_s: float | None = None,
        observer: LoadObserver | None = None,
        measured_done: Callable[[], None] | None = None,
    ) -> None:
        """Prepare a run.

        Args:
            session: Where requests go out; see ``open_session``.
            target: The server.
            trace: What to send, and when.
            bodies: Makes the requests.
            start: ``time.perf_counter()`` of the trace's zero; one clock for all processes of a machine.
            request_timeout_s: Seconds from the send after which a request is given up as unfinished.
            deadline_s: The TTFT target; a request without a first token by then is reported as overdue.
            observer: Hears what happens and may end the run.
            measured_done: Called when all measured requests have ended. With it the run goes on until
                :meth:`finish`, because other shards may still have stragglers.
        """
        self._session = session
        self._urls: dict[str, str] = {}
        self._target = target
        self._trace = trace
        self._bodies = bodies
        self._start = start
        self._timeout_s = request_timeout_s
        self._deadline_s = deadline_s
        self._observer = observer or LoadObserver()
        self._measured_done = measured_done
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._records: list[RequestRecord] = []
        self._behind_window: list[RequestRecord] = []
        self._overdue: set[int] = set()
        self._pending = sum(not entry.warmup for entry in trace.entries)
        self._lags: list[float] = []
        self._events_before_window: int | None = None
        self._window_closed = False
        self._tally = Tally()
        self.result = RunResult(
            seed=trace.seed,
            rate=trace.rate,
            trace_hash=trace.hash,
            warmup_requests=trace.warmup_requests,
            window_s=trace.window_s,
        )

    def stop(self) -> None:
        """End early: what is undecided is left out of the result."""
        if not self._over.is_set():
            self.result.stopped_early = True
            self._over.set()

    def finish(self) -> None:
        """End a run whose measured requests are done everywhere."""
        self._over.set()

    async def run(self) -> RunResult:
        """Send, follow, and return what was measured. Cancelling cancels every request."""
        loop = asyncio.get_running_loop()
        now = time.perf_counter()
        marks = [
            loop.call_later(max(0.0, self._start + at - now), self._spawn_in_timer, mark)
            for at, mark in (
                (self._trace.window_start_s, self._window_opens),
                (self._trace.window_end_s, self._window_closes),
            )
        ]
        cpu, clock = time.thread_time(), now
        self._spawn(self._send())
        self._spawn(self._watch())
        if not self._pending:
            self._all_measured()
        try:
            await self._over.wait()
        finally:
            for mark in marks:
                mark.cancel()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._broken is not None:
            raise self._broken
        self.result.client_cpu_share = (time.thread_time() - cpu) / max(1e-9, time.perf_counter() - clock)
        return self._conclude()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._broken is None:
            self._broken = error  # a bug, not a bad answer: those are records
            self._over.set()

    def _now(self) -> float:
        return time.perf_counter() - self._start

    async def _send(self) -> None:
        clock = time.perf_counter
        for entry in itertools.chain(self._trace.entries, self._trace.continuation()):
            path, body = self._bodies(entry)  # before it is due: encoding a long prompt takes a while
            due = self._start + entry.at_s
            while (wait := due - clock()) > 0:  # noqa: ASYNC110 (a clock is awaited; a timer may fire early)
                await asyncio.sleep(wait)
            behind_window = entry.index >= self._trace.warmup_requests + self._trace.requests
            if behind_window and self._enough_waits():
                continue
            measured = not (behind_window or entry.warmup)
            self._spawn(self._request(entry, self._url(path), body, measured=measured))
            await asyncio.sleep(0)  # let it go out before the next body is made

    def _enough_waits(self) -> bool:
        """Whether enough requests from behind the window wait for a slot to fill all that can become free at once."""
        waiting = sum(record.headers_s is None and record.error is None for record in self._behind_window)
        return waiting >= max(1, self._tally.most_started)

    def _url(self, path: str) -> str:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = self._target.url(path)
        return url

    async def _request(self, entry: TraceEntry, url: str, body: bytes, *, measured: bool) -> None:
        record = RequestRecord(entry.index, entry.prompt_id, entry.at_s)
        if not (measured or entry.warmup):
            self._behind_window.append(record)
        alarm = self._begun(record) if measured else None
        asked = entry.max_tokens
        try:
            await exchange(
                self._session,
                url,
                body,
                record,
                asked_tokens=asked,
                exact=self._trace.demand.ignore_eos,
                start=self._start,
                timeout_s=self._timeout_s,
                tally=self._tally,
            )
        finally:
            if alarm is not None:
                alarm.cancel()
            self._count_output(record, asked)
        if measured:
            self._ended(record)

    def _begun(self, record: RequestRecord) -> asyncio.TimerHandle | None:
        self._records.append(record)
        self._observer.sent(record.index)
        now = self._now()  # the request leaves now, whatever time the observer took
        self.result.in_flight_area_s -= now
        if self._deadline_s is None:
            return None
        wait = max(0.0, record.scheduled_s + self._deadline_s - now) + _TIMER_SLACK_S
        return asyncio.get_running_loop().call_later(wait, self._spawn_in_timer, self._check_overdue, record)

    def _count_output(self, record: RequestRecord, asked: int) -> None:
        """Add what the server says it made; without a word from it, the bounds of what it may have made."""
        if record.output_tokens is not None:
            self.result.output_tokens_known += record.output_tokens
            return
        self.result.output_tokens_least += record.token_events
        if record.status is not RequestStatus.REFUSED:
            self.result.output_tokens_most += asked

    def _ended(self, record: RequestRecord) -> None:
        # The integral of requests in flight, telescoped: each one's end minus its begin. One that was
        # given up has no end, so it takes no part.
        ended = record.finished_s if record.finished_s is not None else record.sent_s
        self.result.in_flight_area_s += ended or 0.0
        self._pending -= 1
        wants_stop = self._observer.finished(record)
        if not self._pending:  # nothing is left that a stop could leave out
            self._all_measured()
        elif wants_stop:
            self.stop()

    def _all_measured(self) -> None:
        if self._measured_done is None:
            self._over.set()
        else:
            self._measured_done()

    def _spawn_in_timer(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Do ``work`` as a task: what an observer raises inside a timer would be logged and lost."""
        self._spawn(work(*arguments))

    async def _check_overdue(self, record: RequestRecord) -> None:
        if record.first_token_s is None and record.finished_s is None:
            self._overdue.add(record.index)
            if self._observer.overdue(record):
                self.stop()

    async def _window_opens(self) -> None:
        self._events_before_window = self._tally.token_events
        self._observer.window_opened()

    async def _window_closes(self) -> None:
        self.result.window_token_events = self._tally.token_events - (self._events_before_window or 0)
        self._window_closed = True

    async def _watch(self) -> None:
        """Sample how late the loop itself runs, until the window closes, and beat once a second."""
        clock = time.perf_counter
        beat = clock() + HEARTBEAT_S
        while True:
            planned = clock() + LOOP_PROBE_S
            await asyncio.sleep(LOOP_PROBE_S)
            now = clock()
            if now - self._start <= self._trace.window_end_s:
                self._lags.append(max(0.0, now - planned))
            if now >= beat:
                beat = now + HEARTBEAT_S
                if self._observer.heartbeat(self._tally.token_events, len(self._tasks) - 2):
                    self.stop()

    def _conclude(self) -> RunResult:
        result = self.result
        result.records = sorted(filter(self._is_decided, self._records), key=lambda record: record.index)
        if not self._window_closed:
            passed = self._now() - self._trace.window_start_s
            result.window_s = min(self._trace.window_s, max(0.0, passed))
            if self._events_before_window is not None:
                result.window_token_events = self._tally.token_events - self._events_before_window
        result.client_faults = self._tally.client_faults
        result.loop_lag_p99_s = nearly_largest(self._lags)
        return result

    def _is_decided(self, record: RequestRecord) -> bool:
        """Whether it is known if the request keeps its TTFT target: it ended, was given up, or is late already."""
        if not self.result.stopped_early:
            return True
        return record.finished_s is not None or record.error is not None or record.index in self._overdue
