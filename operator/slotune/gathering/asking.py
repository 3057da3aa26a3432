"""One question to a server over HTTP, bounded in time and in size; what comes instead of an answer has a cause.

A diagnosis must tell a closed port from a wrong name, a certificate and a firewall, and it asks addresses where
anything may live, so it reads no answer beyond a limit and follows no redirect. Trials talk to servers that they
started, and use :class:`slotune.llama.server_http.LlamaServer`. Each question has its own connection, as there.
"""

from __future__ import annotations

import asyncio
import enum
import os
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

__all__ = ["LARGEST_BODY", "Answer", "Asker", "Cause", "Silence"]

LARGEST_BODY = 8 * 1024 * 1024
"""Bytes. 256 slots with all their parameters come to 1 MiB."""

CONNECT_LIMIT_S = 3.0

_TOO_LONG = f"its answer is longer than {LARGEST_BODY // 2**20} MiB"
_BROKEN_OFF = re.compile(r"disconnected|closed connection")
"""What the client says of a server that hung up, apart from one that says what is no HTTP."""
_ANY_WINDOW = 32 + zlib.MAX_WBITS
"""For zlib: gzip or deflate, as its head says."""


class Cause(enum.Enum):
    """Why there is no answer."""

    NOTHING_LISTENS = "nothing listens there: is the port right, and has the server got its model yet?"
    NO_SUCH_NAME = "the name leads to no address: is it spelled right, and known on this machine?"
    NO_WAY = "it can't be reached from here"
    NO_CONNECTION = "no connection came about: is the address right, and does no firewall stand between?"
    UNTRUSTED = "its certificate is not trusted here: name its authority's file in the variable SSL_CERT_FILE"
    NO_TLS = "it does not speak TLS there: try http:// in place of https://"
    HUNG_UP = "it hung up without an HTTP answer: is it llama-server's port? If it speaks TLS, give https://"
    NO_HTTP = "what comes back is no HTTP: is it llama-server's port, and does nothing in between garble it?"
    SLOW = "no answer came in time"
    ENDLESS = "its answer has no end"


@dataclass(frozen=True, slots=True)
class Answer:
    """Whatever came back."""

    path: str
    status: int
    seconds: float
    """From the question to the last byte."""
    at_s: float = 0.0
    """When that came, on the asker's clock."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters."""
    body: bytes = field(default=b"", repr=False)

    @property
    def json(self) -> Any:
        """The body. Raises ValueError."""
        return orjson.loads(self.body)

    @property
    def json_or_none(self) -> Any:
        """The body; None when it is no JSON."""
        try:
            return self.json
        except ValueError:
            return None

    @property
    def text(self) -> str:
        """The body, with signs in place of bytes that are no text."""
        return self.body.decode("utf-8", "replace")

    @property
    def is_page(self) -> bool:
        """Whether it is made for a browser."""
        return "html" in self.headers.get("content-type", "") or self.body[:200].lstrip()[:1] == b"<"


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer."""

    path: str
    cause: Cause
    seconds: float
    words: str
    """For people: the cause, and what the system said or the limit that passed."""


class Asker:
    """Asks one server. Use as an async context manager.

    Args:
        base: address without a path of its own kind, see :func:`slotune.gathering.address.base_address`.
        key: sent as a bearer token.
        clock: seconds, monotonic.
    """

    def __init__(self, base: str, key: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.base = base
        self.has_key = key is not None
        self._clock = clock
        headers = {"Accept-Encoding": "identity"}  # which some proxies do not heed
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._client = httpx.AsyncClient(
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(None, connect=CONNECT_LIMIT_S),
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=ssl.create_default_context(),  # the system's authorities, and SSL_CERT_FILE
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, path: str, limit_s: float) -> Answer | Silence:
        """Ask for ``path`` and wait at most ``limit_s`` seconds. Raises only when cancelled."""
        begun = self._clock()
        body = bytearray()
        try:
            async with asyncio.timeout(limit_s), self._client.stream("GET", path) as response:
                async for piece in response.aiter_raw():
                    body += piece
                    if len(body) > LARGEST_BODY:
                        return Silence(path, Cause.ENDLESS, self._clock() - begun, _TOO_LONG)
            headers = {name.lower(): value for name, value in response.headers.items()}
            now = self._clock()
            unfolded = _unfolded(bytes(body), headers.get("content-encoding", ""))
            if len(unfolded) > LARGEST_BODY:
                return Silence(path, Cause.ENDLESS, now - begun, _TOO_LONG)
            return Answer(path, response.status_code, now - begun, now, headers, unfolded)
        except TimeoutError:
            return Silence(path, Cause.SLOW, self._clock() - begun, f"no answer within {limit_s:.3g} s")
        except httpx.HTTPError as error:
            cause, words = _told(error)
            return Silence(path, cause, self._clock() - begun, words)


def _unfolded(body: bytes, encoding: str) -> bytes:
    """What a proxy has packed, up to one byte more than may be read; as it came where that can't be unpacked."""
    if encoding.strip().lower() not in {"gzip", "x-gzip", "deflate"}:
        return body
    try:
        return zlib.decompressobj(_ANY_WINDOW).decompress(body, LARGEST_BODY + 1)
    except zlib.error:
        return body


def _told(error: httpx.HTTPError) -> tuple[Cause, str]:
    """What is behind the client's error."""
    for one in _behind(error):
        cause = _CAUSES.get(type(one))
        if cause is not None:
            said = _untrusted(one) if isinstance(one, ssl.SSLCertVerificationError) else ""
            return cause, f"{cause.value} ({said})" if said else cause.value
        if isinstance(one, ssl.SSLError):
            return Cause.NO_TLS, Cause.NO_TLS.value
        if isinstance(one, OSError) and one.errno is not None and not isinstance(error, httpx.ReadError):
            return Cause.NO_WAY, f"{Cause.NO_WAY.value} ({os.strerror(one.errno)})"
    if isinstance(error, httpx.ConnectTimeout):
        return Cause.NO_CONNECTION, f"{Cause.NO_CONNECTION.value} ({CONNECT_LIMIT_S:.3g} s passed)"
    if isinstance(error, httpx.ConnectError):
        return Cause.NO_WAY, Cause.NO_WAY.value
    is_foreign = isinstance(error, httpx.RemoteProtocolError) and not _BROKEN_OFF.search(str(error))
    cause = Cause.NO_HTTP if is_foreign else Cause.HUNG_UP
    return cause, cause.value


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with a certificate, and with the file that should vouch for it, which is left out in silence."""
    file = os.environ.get("SSL_CERT_FILE")
    if file:
        try:
            ssl.create_default_context(cafile=file)
        except OSError:  # SSLError too
            return f"{error.verify_message}; SSL_CERT_FILE names {file}, which holds none that can be read"
    return error.verify_message


_CAUSES: Mapping[type[BaseException], Cause] = {
    ConnectionRefusedError: Cause.NOTHING_LISTENS,
    ConnectionResetError: Cause.HUNG_UP,
    BrokenPipeError: Cause.HUNG_UP,
    socket.gaierror: Cause.NO_SUCH_NAME,
    ssl.SSLCertVerificationError: Cause.UNTRUSTED,
}


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error, and all that it came from: the innermost is the one that knows."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
