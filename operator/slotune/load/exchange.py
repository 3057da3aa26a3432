"""One request and its answer over HTTP. Whatever the server or the network does ends up in the record."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from slotune.load.answer import Answer, describe_error
from slotune.load.demand import Demand
from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.target import Target
from slotune.load.trace import TraceEntry

__all__ = ["Tally", "exchange", "exchange_alone"]

_ERROR_BODY_BYTES = 4096
_LARGE_BODY_BYTES = 1 << 20
"""aiohttp wants larger bodies as a file, which it sends piece by piece."""
_LINGER_S = 0.5
"""A proxy may keep a connection open behind the last event; nobody waits for that."""
_HEADERS = {"Content-Type": "application/json"}
_OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})
"""What a machine says when it, not the server, can't open another connection."""


@dataclass(slots=True)
class Tally:
    """What all requests of a run add up to while they run."""

    token_events: int = 0
    client_faults: int = 0
    """Requests that this machine could not send."""
    started: int = 0
    """Requests with headers and without an end: a llama-server flushes them when a slot takes the request."""
    most_started: int = 0


async def exchange_alone(
    session: aiohttp.ClientSession,
    target: Target,
    request: tuple[str, bytes],
    entry: TraceEntry,
    *,
    demand: Demand,
    timeout_s: float,
) -> RequestRecord:
    """What came of one request outside of any run: it is due when it is sent.

    Args:
        session: See ``open_session``.
        target: The server.
        request: Path and body, as :class:`~slotune.load.bodies.Bodies` makes them of ``entry``.
        entry: What is asked.
        demand: The workload that it is of.
        timeout_s: Seconds after which the request is given up as unfinished.
    """
    path, body = request
    record = RequestRecord(entry.index, entry.prompt_id, 0.0)
    await exchange(
        session,
        target.url(path),
        body,
        record,
        asked_tokens=entry.max_tokens,
        exact=demand.ignore_eos,
        start=time.perf_counter(),
        timeout_s=timeout_s,
        tally=Tally(),
    )
    return record


async def exchange(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    record: RequestRecord,
    *,
    asked_tokens: int,
    exact: bool,
    start: float,
    timeout_s: float,
    tally: Tally,
) -> None:
    """Send ``body`` and follow the answer to its end. Raises only when cancelled.

    Args:
        session: See ``open_session``.
        url: Where it goes.
        body: JSON that asks for a stream.
        record: Filled in; its ``sent_s`` is set here.
        asked_tokens: Tokens that the request asks for.
        exact: Fewer tokens than that mean a truncated answer (``ignore_eos``).
        start: ``time.perf_counter()`` of the run's zero.
        timeout_s: Seconds after which the request is given up as unfinished.
        tally: Counts token events as they arrive.
    """
    clock = time.perf_counter
    data: Any = body if len(body) < _LARGE_BODY_BYTES else io.BytesIO(body)
    record.sent_s = clock() - start
    post = session.post(url, data=data, headers=_HEADERS, allow_redirects=False)
    try:
        async with asyncio.timeout(timeout_s), post as response:
            record.headers_s = clock() - start
            tally.started += 1
            tally.most_started = max(tally.most_started, tally.started)
            if not 200 <= response.status < 300:
                await _refusal(record, response)
                record.finished_s = clock() - start
                return
            answer = Answer(record, asked_tokens=asked_tokens, exact=exact)
            read = response.content.readany
            while not answer.done:
                chunk = await read()
                now = clock() - start  # before any parsing
                if not chunk:
                    break
                tally.token_events += answer.feed(chunk, now)
            answer.end()
            record.finished_s = clock() - start
            await _linger(response)
    except TimeoutError:
        record.status = RequestStatus.UNFINISHED
        record.error = f"no end after {timeout_s:g} s"
    except aiohttp.ClientConnectorError as error:
        code = error.os_error.errno
        # aiohttp puts the address into strerror; a name that can't be resolved has a code outside errno.
        reason = os.strerror(code) if code is not None and code in errno.errorcode else "the name leads to no address"
        _broken(record, RequestStatus.REFUSED, f"no connection: {reason}", clock() - start)
        tally.client_faults += error.os_error.errno in _OWN_LIMITS
    except (aiohttp.ClientError, OSError) as error:
        stage = "before an answer" if record.headers_s is None else "in the middle of the answer"
        told = f"the connection broke {stage} ({type(error).__name__})"
        _broken(record, RequestStatus.STREAM_ERROR, told, clock() - start)
        tally.client_faults += isinstance(error, OSError) and error.errno in _OWN_LIMITS
    finally:
        tally.started -= record.headers_s is not None


async def _linger(response: aiohttp.ClientResponse) -> None:
    """Let the server finish its response: hanging up before its last bytes looks like a cancelled request."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_LINGER_S):
            while await response.content.readany():
                pass


async def _refusal(record: RequestRecord, response: aiohttp.ClientResponse) -> None:
    said = await response.content.read(_ERROR_BODY_BYTES)
    try:
        reason = describe_error(orjson.loads(said))
    except orjson.JSONDecodeError:
        reason = "without a readable reason"
    record.status = RequestStatus.HTTP_ERROR
    record.error = f"HTTP {response.status}: {reason}"


def _broken(record: RequestRecord, status: RequestStatus, error: str, now: float) -> None:
    record.status = status
    record.error = error
    record.finished_s = now
