"""An address of this machine behind which a server in a pod answers, by way of the API server, while a look goes on.

Whoever asks a llama-server by its URL then asks one in a pod in just the same way. What a person would get with
``kubectl port-forward`` is narrower here: a path that nobody else on this machine can guess, and questions only (GET)
unless a probe was asked for.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

from slotune.controller.cluster import ClusterError
from slotune.gathering.cluster_reader import ClusterReader, PodPlace

__all__ = ["relayed"]

_BEARER: Final = "Bearer "
_NOT_REACHED: Final = 502
"""What the API server can't get from the pod, as proxies say it."""


@asynccontextmanager
async def relayed(reader: ClusterReader, place: PodPlace, *, may_send: bool = False) -> AsyncIterator[str]:
    """The URL, without ``/`` at its end. An answer is passed on as it comes: a stream stays one."""
    relay = _Relay(reader, place, f"/{secrets.token_urlsafe(16)}")
    app = web.Application()
    app.router.add_get(f"{relay.prefix}/{{path:.*}}", relay.answer, allow_head=False)
    if may_send:
        app.router.add_post(f"{relay.prefix}/{{path:.*}}", relay.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}{relay.prefix}"
    finally:
        await runner.cleanup()


class _Relay:
    def __init__(self, reader: ClusterReader, place: PodPlace, prefix: str) -> None:
        self._reader, self._place, self.prefix = reader, place, prefix

    async def answer(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("Authorization", "").removeprefix(_BEARER)
        path = request.raw_path.removeprefix(self.prefix)
        try:
            body = json.loads(await request.read()) if request.method == "POST" else None
        except ValueError:
            return web.Response(status=400, text="only JSON is passed on")
        try:
            async with self._reader.ask_pod(self._place, path, api_key=key or None, body=body) as said:
                if said.status >= 400:
                    return web.Response(status=said.status, body=await said.read(), content_type=said.content_type)
                return await _pass_on(request, said)
        except (ClusterError, aiohttp.ClientError) as error:
            return web.Response(status=_NOT_REACHED, text=str(error))


async def _pass_on(request: web.Request, said: aiohttp.ClientResponse) -> web.StreamResponse:
    passed = web.StreamResponse(status=said.status)
    passed.content_type = said.content_type
    await passed.prepare(request)
    try:
        async for part in said.content.iter_any():
            await passed.write(part)
    except aiohttp.ClientError:  # the status is out: whoever asked sees an answer that is cut off
        passed.force_close()
    return passed
