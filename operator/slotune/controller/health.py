"""The three pages that an operator serves: ``/livez`` and ``/readyz`` for kubelet, ``/metrics`` for Prometheus.

They run on the operator's own event loop on purpose: when it is blocked, they do not answer either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from slotune.controller.heartbeat import Heartbeat
from slotune.controller.metrics import CONTENT_TYPE, OperatorMetrics

__all__ = ["OLDEST_S", "health_app", "metrics_app", "serve_health", "serve_metrics", "serving"]

OLDEST_S = 300.0
"""A heartbeat older than this is none. Longer than a search thinks and than any one question takes."""


async def serve_health(
    heartbeat: Heartbeat,
    port: int,
    trouble: Callable[[], str],
    clock: Callable[[], float],
    *,
    oldest_s: float = OLDEST_S,
) -> None:
    """Serve ``/livez`` and ``/readyz`` until cancelled. OSError when the port is taken."""
    async with serving(health_app(heartbeat, trouble, clock, oldest_s=oldest_s), port):
        await asyncio.Event().wait()


async def serve_metrics(metrics: OperatorMetrics, port: int) -> None:
    """Serve ``/metrics`` until cancelled. OSError when the port is taken."""
    async with serving(metrics_app(metrics), port):
        await asyncio.Event().wait()


def health_app(
    heartbeat: Heartbeat, trouble: Callable[[], str], clock: Callable[[], float], *, oldest_s: float = OLDEST_S
) -> web.Application:
    """``/livez``: 200 while the heartbeat is younger than ``oldest_s``. ``/readyz``: 200 while there is no ``trouble``
    with the API server, and else what it is."""

    async def livez(_: web.Request) -> web.Response:
        age = heartbeat.age(clock())
        if age < oldest_s:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"no heartbeat for {age:.0f} s: at most {oldest_s:g} s are allowed\n")

    async def readyz(_: web.Request) -> web.Response:
        if why := trouble():
            return web.Response(status=503, text=f"not ready: {why}\n")
        return web.Response(text="ok\n")

    app = web.Application()
    app.add_routes([web.get("/livez", livez), web.get("/readyz", readyz)])
    return app


def metrics_app(metrics: OperatorMetrics) -> web.Application:
    """``/metrics``."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.add_routes([web.get("/metrics", page)])
    return app


@asynccontextmanager
async def serving(app: web.Application, port: int, host: str | None = None) -> AsyncIterator[int]:
    """Serve while the body runs, and give the port, which the system chooses for 0. ``host`` None: all addresses."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
