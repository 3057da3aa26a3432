"""What the tests of the client share: a workload, and one run of it against a mock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from bench.mock_server import END, MockServer, Received, Script, chunk, document, event, http_head, last, token
from slotune.load.client import LoadObserver, Target, run_load
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.records import RunResult
from slotune.load.trace import build_trace

VOCABULARY = 1000

DEMAND = Demand(peak_rate=1.0, output_tokens=3, synthetic=SyntheticPrompts(input_tokens_mean=20))


def answer(tokens: int = 3, *, first_s: float = 0.05, gap_s: float = 0.01, headers_s: float = 0.0) -> Script:
    """Return an answer of /completion with known times."""
    script = [(headers_s, http_head())]
    script += [(first_s + number * gap_s, chunk(event(token(number=number + 1)))) for number in range(tokens)]
    return [*script, (first_s + (tokens - 1) * gap_s, chunk(event(last(tokens))) + END)]


def serve(respond: Callable[[Received], Script] | Script) -> MockServer:
    """Return a server of generation alone: it has no metrics."""

    def route(received: Received) -> Script:
        if received.method != "POST":
            return document("{}", status="501 Not Implemented")
        return respond(received) if callable(respond) else respond

    return MockServer(route)


def generations(server: MockServer) -> list[Received]:
    """Return the requests that asked for tokens."""
    return [received for received in server.requests if received.method == "POST"]


async def load(
    server: MockServer,
    *,
    demand: Demand = DEMAND,
    requests: int = 3,
    warmup: int = 0,
    rate: float = 50.0,
    seed: int = 1,
    timeout_s: float = 5.0,
    deadline_s: float | None = None,
    observer: LoadObserver | None = None,
) -> RunResult:
    """Run a short load."""
    trace = build_trace(demand, rate=rate, seed=seed, requests=requests, warmup_requests=warmup)
    return await run_load(
        Target(server.url),
        trace,
        demand,
        request_timeout_s=timeout_s,
        vocabulary=VOCABULARY,
        deadline_s=deadline_s,
        observer=observer,
    )


def asking(output_tokens: int) -> Demand:
    """Return the usual demand with another output length."""
    return replace(DEMAND, output_tokens=output_tokens)


async def until(condition: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
    """Wait for ``condition``, or fail."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 (the mock has no events for every condition)
            await asyncio.sleep(0.01)
