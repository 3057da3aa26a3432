"""An address of this machine behind which a server in a pod answers, by way of the API server, while a look goes on.

Whoever asks a llama-server by its URL then asks one in a pod in just the same way. What a person would get with ``kubectl
port-forward`` is narrower here: questions only (GET), and a path that nobody else on this machine can guess.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from slotune.controller.cluster import ClusterError
from slotune.controller.listening import Listening
from slotune.gathering.cluster_reader import ClusterReader

__all__ = ["relayed"]

_BEARER: Final = "Bearer "


@asynccontextmanager
async def relayed(reader: ClusterReader, namespace: str, pod: str, listening: Listening) -> AsyncIterator[str]:
    """The URL, without ``/`` at its end. What the API server can't get from the pod is answered with 502."""
    secret = secrets.token_urlsafe(16)

    async def answer(request: web.Request) -> web.Response:
        key = request.headers.get("Authorization", "").removeprefix(_BEARER)
        path = request.raw_path.removeprefix(f"/{secret}")
        try:
            said = await reader.ask_pod(
                namespace,
                pod,
                listening.port,
                f"{listening.prefix}{path}",
                encrypted=listening.is_encrypted,
                api_key=key or None,
            )
        except ClusterError as error:
            return web.Response(status=502, text=error.message)
        return web.Response(status=said.status, body=said.body, headers={"Content-Type": said.content_type})

    app = web.Application()
    app.router.add_get(f"/{secret}/{{path:.*}}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/{secret}"
    finally:
        await runner.cleanup()
