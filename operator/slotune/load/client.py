"""Measure one run: load from a trace, the server's own counters around it, and whether the numbers can be trusted.

This is the whole client for rates that one process carries; ``shards.run_sharded`` takes the same arguments
and uses more processes when it must.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand
from slotune.load.gates import check_run
from slotune.load.gauges import Gauges, Sampler, wait_idle
from slotune.load.open_loop import OpenLoop
from slotune.load.quiet import resting_collector
from slotune.load.records import RunResult
from slotune.load.target import LoadObserver, Target, allow_many_connections, open_session
from slotune.load.trace import Trace

__all__ = ["LoadObserver", "Surroundings", "Target", "run_load", "watched_server"]

IDLE_BEFORE_S = 60.0
"""Longest wait for an idle server before a run: it drains what an overloaded run before left in its HTTP queue."""

IDLE_AFTER_S = 15.0
"""Longest wait for it afterwards; without it the counters can't be compared, which is no fault."""

LEAD_S = 0.1
"""Between the decision to start and the trace's zero: the first request must not be late."""


async def run_load(
    target: Target,
    trace: Trace,
    demand: Demand,
    *,
    request_timeout_s: float = 300.0,
    vocabulary: int | None = None,
    deadline_s: float | None = None,
    observer: LoadObserver | None = None,
) -> RunResult:
    """Send ``trace`` to ``target`` and return what came of the measured requests.

    Nothing a server does raises: a refused or broken request is a record. Run it on uvloop for rates above
    a few requests per second. Cancelling it cancels every request.

    Args:
        target: The server.
        trace: From ``build_trace``; its warm-up is sent and forgotten.
        demand: The demand that the trace was drawn from.
        request_timeout_s: Seconds after which a request is given up as unfinished.
        vocabulary: Tokens of the model; only synthetic prompts need it.
        deadline_s: The TTFT target. It makes ``observer.overdue`` speak and sets the limits of some gates.
        observer: Hears what happens, and may end the run early; then the result has decided requests only.

    Raises:
        DemandError: the vocabulary is missing.
    """
    allow_many_connections()
    bodies = Bodies(demand, seed=trace.seed, vocabulary=vocabulary, model=target.model)
    # The collector rests before the start is set: its last pass takes longer than the lead.
    with resting_collector():
        async with open_session(target) as session, watched_server(target) as surroundings:
            loop = OpenLoop(
                session,
                target,
                trace,
                bodies,
                start=surroundings.start,
                request_timeout_s=request_timeout_s,
                deadline_s=deadline_s,
                observer=observer,
            )
            result = await loop.run()
    surroundings.complete(result)
    result.invalid_reasons = check_run(result, deadline_s)
    return result


@dataclass(slots=True)
class Surroundings:
    """What the server said about itself around a run."""

    start: float
    """``time.perf_counter()`` of the trace's zero."""
    sampler: Sampler
    before: Gauges | None = None
    after: Gauges | None = None

    def complete(self, result: RunResult) -> None:
        """Write it into ``result``."""
        result.busy_samples = self.sampler.samples
        result.busy_slots = self.sampler.busy_slots()
        if self.before is None:
            return
        result.busy_before = (self.before.processing or 0) + (self.before.deferred or 0)
        if self.after is None or not self.after.idle:
            return  # the counter moves when a slot is released: it is still behind
        before, after = self.before.predicted_tokens, self.after.predicted_tokens
        if before is not None and after is not None and after >= before:  # else it was started anew
            result.server_output_tokens = after - before


@contextlib.asynccontextmanager
async def watched_server(target: Target) -> AsyncIterator[Surroundings]:
    """Read the server's counters when it is idle before and after, and sample its gauges in between.

    The one scraper of a run, however many processes send load.
    """
    async with open_session(target) as session:
        before = await wait_idle(session, target, timeout_s=IDLE_BEFORE_S)
        start = time.perf_counter() + LEAD_S
        surroundings = Surroundings(start, Sampler(session, target, start=start), before)
        sampling = asyncio.create_task(surroundings.sampler.run())
        try:
            yield surroundings
        finally:
            sampling.cancel()
            await asyncio.wait({sampling})
        surroundings.after = await wait_idle(session, target, timeout_s=IDLE_AFTER_S)
