"""A requests session whose calls end: after a time, at a size, and by the hand of whoever waits for them.

A time-out of requests bounds each wait for bytes, not the call: a server that sends one byte every few seconds holds
a thread for hours, and a thread cannot be cancelled. So every socket that the session opens is known to a
:class:`Line`, and :meth:`Line.cut` shuts them down from outside: the thread's next read ends at once, in a TLS
handshake too. The look-up of a host's name alone keeps the system's own limit.

Nothing of the environment is used: with ``trust_env`` requests would replace the Authorization header by an entry of
``~/.netrc``, and send the token through any ``HTTP_PROXY``.
"""

from __future__ import annotations

import io
import socket
import threading
from contextlib import suppress
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

__all__ = ["AnswerTooLargeError", "BoundedAdapter", "Line", "bounded_session"]


class AnswerTooLargeError(requests.RequestException):
    """The answer has more bytes than anyone will read."""


class Line:
    """The open sockets of one call; may be cut from any thread, before, during and after the call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def watch(self, sock: socket.socket) -> None:
        """Remember a socket. A duplicate is kept: TLS takes the original's descriptor away."""
        with self._lock:
            if self._is_cut:
                sock.close()
                raise ConnectionAbortedError("the call was given up")
            self._sockets.append(sock.dup())

    def cut(self) -> None:
        """End the call. Harmless when it has ended."""
        with self._lock:
            self._is_cut = True
            for sock in self._sockets:
                with suppress(OSError):  # the other side may have closed it
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            self._sockets.clear()


class BoundedAdapter(HTTPAdapter):
    """Reads answers of at most ``largest`` bytes, retries nothing, and shows its sockets to ``line``."""

    def __init__(self, line: Line, largest: int) -> None:
        self._line = line
        self._largest = largest
        super().__init__(max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        """The pools of requests, with connections that are watched."""
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs)
        self.poolmanager.pool_classes_by_scheme = _watched_pools(self._line)

    def send(  # noqa: PLR0917 - the signature is requests'
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: dict[str, str] | None = None,
    ) -> requests.Response:
        """Send, and read the whole answer unless it is too large."""
        response = super().send(request, True, timeout, verify, cert, proxies)
        try:
            body = response.raw.read(self._largest + 1, decode_content=True)
        finally:
            response.raw.close()
        if len(body) > self._largest:
            raise AnswerTooLargeError(f"more than {self._largest} bytes", request=request)
        response.raw = io.BytesIO(body)
        return response


def bounded_session(adapter: BoundedAdapter, *, verify: str | bool = True) -> requests.Session:
    """A session for one call. ``verify`` is requests' own: True, or the file of a certificate authority."""
    session = requests.Session()
    session.trust_env = False
    session.max_redirects = 0  # a query is never redirected, a log-in page is
    session.verify = verify
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


def _watched_pools(line: Line) -> dict[str, type]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            sock = super()._new_conn()
            line.watch(sock)
            return sock

    class Encrypted(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            sock = super()._new_conn()
            line.watch(sock)
            return sock

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class EncryptedPool(HTTPSConnectionPool):
        ConnectionCls = Encrypted

    return {"http": PlainPool, "https": EncryptedPool}
