"""The load client in several processes, for rates above what one event loop carries.

The trace is drawn once and dealt out, so shards are disjoint and together are exactly the trace (a seed per
worker would repeat the same few gaps, or change the crowd with the number of workers). Workers start on one
clock after all of them are ready, keep up the load until the last straggler of *all* has ended, and obey
one stop. They are children in a session of their own: an interrupt reaches the parent alone, and they end
by themselves when it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import slotune
from slotune.load.client import run_load, watched_server
from slotune.load.demand import Demand
from slotune.load.gates import check_run
from slotune.load.records import RunResult
from slotune.load.shard_link import ShardJob, pack, receive
from slotune.load.target import LoadObserver, Target
from slotune.load.trace import Trace

__all__ = ["ShardError", "processes_for", "run_sharded"]

CHUNKS_PER_PROCESS = 17_000
"""Work units that one process carries in a second: 200 requests/s of 64 tokens, which bench/load_client.py checks."""
REQUEST_CHUNKS = 20
"""Opening and closing a request costs about as much as reading this many chunks."""
READY_TIMEOUT_S = 60.0
END_TIMEOUT_S = 10.0


class ShardError(RuntimeError):
    """A worker process could not be started: nothing was measured."""


def processes_for(trace: Trace) -> int:
    """Return how many processes a trace takes, at most one for each core that this process may use."""
    tokens = sum(entry.max_tokens for entry in trace.entries) / len(trace.entries)
    needed = math.ceil(trace.rate * (tokens + REQUEST_CHUNKS) / CHUNKS_PER_PROCESS)
    return max(1, min(needed, len(os.sched_getaffinity(0))))


async def run_sharded(
    target: Target,
    trace: Trace,
    demand: Demand,
    *,
    request_timeout_s: float = 300.0,
    vocabulary: int | None = None,
    deadline_s: float | None = None,
    observer: LoadObserver | None = None,
    processes: int | None = None,
) -> RunResult:
    """Do what ``run_load`` does, in as many processes as the trace takes.

    The observer hears the same things, in the parent; a record reaches it as a copy. A worker that dies
    makes the run Invalid.

    Args:
        target: The server.
        trace: From ``build_trace``, whole.
        demand: The demand that the trace was drawn from.
        request_timeout_s: Seconds after which a request is given up as unfinished.
        vocabulary: Tokens of the model; only synthetic prompts need it.
        deadline_s: The TTFT target.
        observer: Hears what happens, and may end the run early.
        processes: How many; None decides from rate and tokens.

    Raises:
        DemandError: the vocabulary is missing.
        ShardError: a worker did not start.
    """
    count = processes_for(trace) if processes is None else processes
    if count == 1:
        return await run_load(
            target,
            trace,
            demand,
            request_timeout_s=request_timeout_s,
            vocabulary=vocabulary,
            deadline_s=deadline_s,
            observer=observer,
        )
    jobs = [
        ShardJob(target, trace.shard(number, count), request_timeout_s, vocabulary, deadline_s)
        for number in range(count)
    ]
    async with contextlib.AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_worker(job)) for job in jobs]
        await _all_ready(workers)
        async with watched_server(target) as surroundings:
            crew = _Crew(workers, observer or LoadObserver())
            results = await crew.run(surroundings.start)
    result = _merged(trace, results)
    surroundings.complete(result)
    result.invalid_reasons = check_run(result, deadline_s)
    if len(results) < count:
        result.invalid_reasons.insert(
            0, ("LoadProcessDied", f"{count - len(results)} of {count} client processes died: out of memory?")
        )
    return result


class _Crew:
    """Relays between the workers and one observer."""

    def __init__(self, workers: list[asyncio.subprocess.Process], observer: LoadObserver) -> None:
        self._workers = workers
        self._observer = observer
        self._results: list[RunResult] = []
        self._beats: dict[int, tuple[int, int]] = {}
        self._measured = 0
        self._opened = False

    async def run(self, start: float) -> list[RunResult]:
        """Start all workers, return the results of those that lived to give one."""
        self._tell("start", start)
        async with asyncio.TaskGroup() as group:
            for number, worker in enumerate(self._workers):
                group.create_task(self._listen(number, worker))
        return self._results

    async def _listen(self, number: int, worker: asyncio.subprocess.Process) -> None:
        assert worker.stdout is not None
        while (message := await receive(worker.stdout)) is not None:
            kind, value = message
            if kind == "result":
                self._results.append(value)
                return
            if self._heard(number, kind, value):
                self._tell("stop")
        self._tell("stop")  # it died: the others measure half of a load

    def _heard(self, number: int, kind: str, value: Any) -> bool:
        """Pass a message on; return whether the run must stop."""
        if kind == "finished":
            return self._observer.finished(value)
        if kind == "overdue":
            return self._observer.overdue(value)
        if kind == "sent":
            self._observer.sent(value)
        elif kind == "window" and not self._opened:
            self._opened = True
            self._observer.window_opened()
        elif kind == "beat":
            self._beats[number] = value
            if number == min(self._beats):
                events, in_flight = (sum(column) for column in zip(*self._beats.values(), strict=True))
                return self._observer.heartbeat(events, in_flight)
        elif kind == "measured":
            self._measured += 1
            if self._measured == len(self._workers):
                self._tell("finish")
        return False

    def _tell(self, kind: str, value: object = None) -> None:
        for worker in self._workers:
            _write(worker, kind, value)


def _write(worker: asyncio.subprocess.Process, kind: str, value: object = None) -> None:
    """Send a message; to a worker that is gone, nothing: whoever reads from it finds that out."""
    if worker.stdin is not None and not worker.stdin.is_closing():
        worker.stdin.write(pack(kind, value))


@contextlib.asynccontextmanager
async def _worker(job: ShardJob) -> AsyncIterator[asyncio.subprocess.Process]:
    root = str(Path(slotune.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "slotune.load.shard_worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        _write(process, "job", job)
        yield process
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _all_ready(workers: list[asyncio.subprocess.Process]) -> None:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            for worker in workers:
                assert worker.stdout is not None
                message = await receive(worker.stdout)
                if message is None or message[0] != "ready":
                    raise ShardError(f"a client process ended with code {await worker.wait()} before it was ready")
    except TimeoutError as error:
        raise ShardError(f"client processes were not ready within {READY_TIMEOUT_S:g} s: is there CPU left?") from error


def _merged(trace: Trace, results: list[RunResult]) -> RunResult:
    merged = RunResult(
        seed=trace.seed,
        rate=trace.rate,
        trace_hash=trace.hash,
        warmup_requests=trace.warmup_requests,
        processes=len(results),
    )
    for result in results:
        merged.records += result.records
        merged.stopped_early |= result.stopped_early
        merged.window_s = max(merged.window_s, result.window_s)
        merged.loop_lag_p99_s = max(merged.loop_lag_p99_s, result.loop_lag_p99_s)
        merged.client_cpu_share = max(merged.client_cpu_share, result.client_cpu_share)
        merged.in_flight_area_s += result.in_flight_area_s
        merged.window_token_events += result.window_token_events
        merged.output_tokens_known += result.output_tokens_known
        merged.output_tokens_least += result.output_tokens_least
        merged.output_tokens_most += result.output_tokens_most
        merged.client_faults += result.client_faults
    merged.records.sort(key=lambda record: record.index)
    return merged
