"""The process that sends one shard of a trace: ``python -m slotune.load.shard_worker``, started by ``shards``.

It speaks over its standard input and output. It prepares everything, says that it is ready, and begins at a
time that the parent names for all shards on the machine's one monotonic clock.
"""

from __future__ import annotations

import asyncio
import os
import sys

import uvloop

from slotune.load.bodies import Bodies
from slotune.load.open_loop import OpenLoop
from slotune.load.quiet import resting_collector
from slotune.load.records import RequestRecord
from slotune.load.shard_link import ShardJob, pack, receive
from slotune.load.target import LoadObserver, allow_many_connections, open_session


class _Relay(LoadObserver):
    """Tells the parent what happens; the parent decides."""

    def __init__(self, writer: asyncio.WriteTransport) -> None:
        self._writer = writer

    def tell(self, kind: str, value: object = None) -> None:
        """Send a message; with the parent gone there is nobody to tell, and the end of input ends this process."""
        if not self._writer.is_closing():
            self._writer.write(pack(kind, value))

    def window_opened(self) -> None:
        self.tell("window")

    def sent(self, index: int) -> None:
        self.tell("sent", index)

    def overdue(self, record: RequestRecord) -> bool:
        self.tell("overdue", record)
        return False

    def finished(self, record: RequestRecord) -> bool:
        self.tell("finished", record)
        return False

    def heartbeat(self, token_events: int, in_flight: int) -> bool:
        self.tell("beat", (token_events, in_flight))
        return False


class _Output(asyncio.BaseProtocol):
    """Knows when all that was written has left."""

    def __init__(self, flushed: asyncio.Event) -> None:
        self._flushed = flushed

    def connection_lost(self, exc: Exception | None) -> None:
        self._flushed.set()


async def _serve(output: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    flushed = asyncio.Event()
    writer, _ = await loop.connect_write_pipe(lambda: _Output(flushed), os.fdopen(output, "wb"))
    message = await receive(reader)
    if message is None:
        return
    job: ShardJob = message[1]
    trace = job.trace
    allow_many_connections()
    bodies = Bodies(trace.demand, seed=trace.seed, vocabulary=job.vocabulary, model=job.target.model)
    # Everything that takes time comes before "ready", the collector's last pass too.
    with resting_collector():
        async with open_session(job.target) as session:
            parent = _Relay(writer)
            parent.tell("ready")
            message = await receive(reader)
            if message is None or message[0] != "start":
                return
            open_loop = OpenLoop(
                session,
                job.target,
                trace,
                bodies,
                start=message[1],
                request_timeout_s=job.request_timeout_s,
                deadline_s=job.deadline_s,
                observer=parent,
                measured_done=lambda: parent.tell("measured"),
            )
            run = asyncio.create_task(open_loop.run())
            orders = asyncio.create_task(_obey(reader, open_loop, run))
            try:
                result = await run
            except asyncio.CancelledError:
                return  # the parent is gone: nobody waits for a result
            finally:
                orders.cancel()
    parent.tell("result", result)
    writer.close()
    await flushed.wait()


async def _obey(reader: asyncio.StreamReader, open_loop: OpenLoop, run: asyncio.Task[object]) -> None:
    while (message := await receive(reader)) is not None:
        if message[0] == "stop":
            open_loop.stop()
        elif message[0] == "finish":
            open_loop.finish()
    run.cancel()


def main() -> None:
    """Run until the parent has the result, or is gone."""
    output = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not end up between the messages
    uvloop.run(_serve(output))


if __name__ == "__main__":
    main()
