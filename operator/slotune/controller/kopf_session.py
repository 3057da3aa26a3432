"""kopf's connection to the API server, as kopf itself would make it, but for one thing: every answer is heard of.

kopf tells nobody whether its watches get through. Its messages in the log are no fact to build on, and events say
nothing in a cluster in which nothing happens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import kopf

from slotune.controller.contact import Contact

__all__ = ["with_contact"]


def with_contact(info: kopf.ConnectionInfo, contact: Contact) -> kopf.AiohttpSession:
    """What kopf needs to connect, in the same way as from ``info`` by itself, with every answer told to ``contact``."""
    trace = aiohttp.TraceConfig()

    async def answered(_: aiohttp.ClientSession, __: Any, end: aiohttp.TraceRequestEndParams) -> None:
        contact.heard(end.response.status)

    async def failed(_: aiohttp.ClientSession, __: Any, end: aiohttp.TraceRequestExceptionParams) -> None:
        if not isinstance(end.exception, asyncio.CancelledError):  # kopf gave it up itself
            contact.failed()

    trace.on_request_end.append(answered)
    trace.on_request_exception.append(failed)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),  # a watch holds its connection for ever
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        trace_configs=[trace],
    )
    return _Session(
        server=info.server,
        aiohttp_session=session,
        info=info,
        default_namespace=info.default_namespace,
        priority=info.priority,
        expiration=info.expiration,
    )


@dataclass(frozen=True, kw_only=True)
class _Session(kopf.AiohttpSession):
    """Equal to another one of the same credentials: kopf must know those again that were refused, or it would try
    them without end."""

    aiohttp_session: aiohttp.ClientSession = field(compare=False, repr=False)
    info: kopf.ConnectionInfo = field(repr=False)
