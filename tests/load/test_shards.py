"""Several processes send one trace: nothing twice, nothing lost, one stop, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench.mock_server import STALL, Received, Script
from slotune.load import shards
from slotune.load.client import LoadObserver, Target
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.shards import ShardError, processes_for, run_sharded
from slotune.load.trace import Trace, build_trace
from tests.load.serving import DEMAND, VOCABULARY, answer, generations, serve, until


def trace_of(*, rate: float = 60.0, requests: int = 60, warmup: int = 10) -> Trace:
    return build_trace(DEMAND, rate=rate, seed=5, requests=requests, warmup_requests=warmup)


class Recorder(LoadObserver):
    def __init__(self) -> None:
        self.windows = 0
        self.sent_requests: list[int] = []
        self.done: list[int] = []
        self.beats: list[tuple[int, int]] = []

    def window_opened(self) -> None:
        self.windows += 1

    def sent(self, index: int) -> None:
        self.sent_requests.append(index)

    def finished(self, record: RequestRecord) -> bool:
        self.done.append(record.index)
        return False

    def heartbeat(self, token_events: int, in_flight: int) -> bool:
        self.beats.append((token_events, in_flight))
        return False


@pytest.mark.alone
async def test_two_processes_send_exactly_the_trace() -> None:
    trace = trace_of()
    recorder = Recorder()
    async with serve(answer(first_s=0.3)) as server:
        result = await run_sharded(
            Target(server.url), trace, DEMAND, vocabulary=VOCABULARY, observer=recorder, processes=2
        )
        arrived = [received.arrived_s for received in generations(server)]
        bodies = {received.body for received in generations(server)}
    want = list(range(10, 70))
    assert [record.index for record in result.records] == want
    assert all(record.status is RequestStatus.OK for record in result.records)
    assert (result.processes, result.trace_hash, result.window_s) == (2, trace.hash, trace.window_s)
    assert len(bodies) == len(arrived)
    assert recorder.windows == 1
    assert sorted(recorder.sent_requests) == sorted(recorder.done) == want
    assert sum(beat[0] for beat in recorder.beats[:1]) > 0
    # One clock: together they keep the schedule of the one trace.
    planned = np.array([entry.at_s for entry in trace.entries])
    offsets = np.sort(arrived)[:70] - planned
    assert offsets.max() - offsets.min() < 0.25
    assert result.in_flight_area_s == pytest.approx(
        sum((record.finished_s or 0) - (record.sent_s or 0) for record in result.records), rel=0.05
    )
    assert result.output_tokens_known >= 3 * 70


@pytest.mark.alone
async def test_every_process_keeps_up_the_load_until_the_last_straggler_of_all() -> None:
    def respond(received: Received) -> Script:
        return answer(first_s=1.2) if generations(server)[19:20] == [received] else answer(first_s=0.01)

    async with serve(respond) as server:
        result = await run_sharded(
            Target(server.url), trace_of(requests=10), DEMAND, vocabulary=VOCABULARY, processes=2
        )
        sent = len(generations(server))
    assert len(result.records) == 10
    assert sent > 60


async def test_a_stop_reaches_every_process() -> None:
    class StopAtFive(Recorder):
        def overdue(self, record: RequestRecord) -> bool:
            self.done.append(record.index)
            return len(self.done) == 5

    async with serve([(0.0, STALL)]) as server:
        result = await run_sharded(
            Target(server.url),
            trace_of(requests=2000, warmup=0),
            DEMAND,
            vocabulary=VOCABULARY,
            deadline_s=0.2,
            observer=StopAtFive(),
            processes=2,
        )
        await until(lambda: not server.in_flight)
    assert result.stopped_early
    assert 5 <= len(result.records) < 200
    assert all(record.status is RequestStatus.UNFINISHED for record in result.records)


async def test_a_process_that_dies_makes_the_run_invalid_and_ends_it() -> None:
    class Killer(Recorder):
        def sent(self, index: int) -> None:
            if index == 20:
                os.kill(workers[0].pid, signal.SIGKILL)

    workers: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*arguments: object, **options: object) -> asyncio.subprocess.Process:
        workers.append(await start(*arguments, **options))  # type: ignore[arg-type]
        return workers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards.asyncio, "create_subprocess_exec", noted)
        async with serve(answer()) as server:
            result = await run_sharded(
                Target(server.url),
                trace_of(requests=2000),
                DEMAND,
                vocabulary=VOCABULARY,
                observer=Killer(),
                processes=2,
            )
    assert result.invalid_reasons[0][0] == "LoadProcessDied"
    assert len(result.records) < 500
    assert all(worker.returncode is not None for worker in workers)


async def test_workers_that_can_not_start_are_an_error() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards.sys, "executable", "/bin/false")
        async with serve(answer()) as server:
            with pytest.raises(ShardError, match="ended with code 1 before it was ready"):
                await run_sharded(Target(server.url), trace_of(), DEMAND, vocabulary=VOCABULARY, processes=2)


async def test_workers_that_are_not_ready_in_time_are_an_error() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "READY_TIMEOUT_S", 0.01)
        async with serve(answer()) as server:
            with pytest.raises(ShardError, match=r"not ready within 0\.01 s: is there CPU left"):
                await run_sharded(Target(server.url), trace_of(), DEMAND, vocabulary=VOCABULARY, processes=2)


async def test_cancelling_ends_every_process() -> None:
    async with serve([(0.0, STALL)]) as server:
        run = asyncio.create_task(
            run_sharded(Target(server.url), trace_of(), DEMAND, vocabulary=VOCABULARY, processes=2)
        )
        await until(lambda: server.in_flight > 5, timeout_s=20)
        started = time.monotonic()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert time.monotonic() - started < shards.END_TIMEOUT_S  # they ended by themselves
        await until(lambda: not server.in_flight)


def children_of(pid: int) -> list[Path]:
    return [Path("/proc") / child for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_no_process_outlives_a_killed_parent() -> None:
    """kill -9 leaves no time to clean up: the workers notice by themselves."""
    program = """
import asyncio, sys
from slotune.load.client import Target
from slotune.load.shards import run_sharded
from tests.load.test_shards import DEMAND, VOCABULARY, trace_of
asyncio.run(run_sharded(Target(sys.argv[1]), trace_of(requests=4000), DEMAND, vocabulary=VOCABULARY, processes=2))
"""
    root = Path(__file__).parents[2]
    async with serve(answer()) as server:
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, server.url, cwd=root)
        await until(lambda: len(generations(server)) > 20, timeout_s=30)
        children = children_of(parent.pid)
        assert len(children) == 2
        parent.kill()
        await parent.wait()
        await until(lambda: not any(child.exists() for child in children))


async def test_below_the_limit_there_is_one_process() -> None:
    async with serve(answer()) as server:
        result = await run_sharded(Target(server.url), trace_of(requests=5), DEMAND, vocabulary=VOCABULARY)
    assert result.processes == 1
    assert len(result.records) == 5


@pytest.mark.parametrize(
    ("rate", "tokens", "want"),
    [(6.0, 250, 1), (200.0, 64, 1), (210.0, 64, 2), (100.0, 250, 2), (800.0, 64, 4), (8000.0, 64, 4)],
)
def test_the_number_of_processes_follows_chunks_and_cores(rate: float, tokens: int, want: int) -> None:
    demand = Demand(peak_rate=1.0, output_tokens=tokens, synthetic=SyntheticPrompts(10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards.os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
        assert processes_for(build_trace(demand, rate=rate, seed=1, requests=10)) == want
