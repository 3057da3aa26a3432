"""Where load goes, how a session to it is set up, and who hears what happens."""

from __future__ import annotations

import resource
import ssl
from dataclasses import dataclass, field

import aiohttp

from slotune.load.records import RequestRecord

__all__ = ["LoadObserver", "Target", "allow_many_connections", "open_session"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server that speaks llama-server's HTTP."""

    base_url: str
    """``http://host:port``, with a path when the server lives under one."""
    model: str = ""
    """Alias sent with chat requests; empty leaves it out."""
    api_key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """How the server behind ``https`` is checked; None: as the system does it, by name and authority."""

    def url(self, path: str) -> str:
        """Return the address of ``path``; a base that ends in ``/`` or ``/v1`` is understood."""
        return self.base_url.rstrip("/").removesuffix("/v1") + path


class LoadObserver:
    """Hears about measured requests while they happen. Methods run on the loop: they must be quick.

    A method that returns True ends the run early: nothing more is sent and what is in flight is cancelled.
    """

    def window_opened(self) -> None:
        """The warm-up is over: measured requests follow."""

    def sent(self, index: int) -> None:
        """Request ``index`` was sent."""

    def overdue(self, record: RequestRecord) -> bool:
        """The target for TTFT has passed without a first token: the request is a violation already.

        It is followed to its end, so :meth:`finished` comes later for the same ``record.index``.
        """
        return False

    def finished(self, record: RequestRecord) -> bool:
        """A request ended, well or not."""
        return False

    def heartbeat(self, token_events: int, in_flight: int) -> bool:
        """Called about once a second with token events so far and requests in flight, warm-up included.

        Requests in flight and no new token event for long means that the server is wedged.
        """
        return False


def open_session(target: Target) -> aiohttp.ClientSession:
    """Open a session that never holds a request back.

    Every request gets its own connection: a kept one may be closed by the server (after 5 s idle, or 100
    requests) in the moment it is used again, and idle ones occupy llama-server's HTTP threads
    (ggml-org/llama.cpp#5827). It costs under a millisecond.
    """
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}  # compression would buffer tokens
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, force_close=True, ttl_dns_cache=None, ssl=True if target.tls is None else target.tls
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
    )


def allow_many_connections() -> None:
    """Raise this process's limit of open files as far as it may: each request in flight holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
