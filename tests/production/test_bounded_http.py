"""A call ends when it must, whatever the other side does, and leaves no connection and no thread behind."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from slotune.production.bounded_http import Line
from slotune.production.prometheus import PrometheusReader
from slotune.production.readings import Reading, Unreachable


async def ask(url: str, *, timeout_s: float) -> Reading:
    return await PrometheusReader(url, timeout_s).scalar("up", datetime.now(UTC))


def _goes_on(client: socket.socket) -> bool:
    """Read what came within a moment; whether more may come."""
    try:
        while client.recv(1000):
            pass
    except TimeoutError:
        return True
    return False


@contextmanager
def listening(drip: bytes = b"") -> Iterator[tuple[str, list[threading.Thread]]]:
    """A socket that takes connections and sends ``drip`` byte by byte, or nothing; ended by its clients alone."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve(client: socket.socket) -> None:
            client.settimeout(0.02)
            with client:
                for byte in drip or b"-" * 1000:
                    try:
                        if drip:
                            client.send(bytes([byte]))
                        if not _goes_on(client):
                            break
                    except OSError:
                        break

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=serve, args=(client,)))
                threads[-1].start()

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", threads
        finally:
            server.shutdown(socket.SHUT_RDWR)
            acceptor.join()


@pytest.mark.parametrize(
    "drip",
    [
        pytest.param(b"", id="says nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 900, id="sends a header byte by byte"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n" + b"x" * 900, id="sends a body byte by byte"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_that_hangs_costs_the_limit_and_no_thread(drip: bytes, scheme: str) -> None:
    with listening(drip) as (url, threads):
        began = time.monotonic()
        reading = await ask(url.replace("http", scheme), timeout_s=0.3)
        took = time.monotonic() - began
        for thread in threads:
            await asyncio.to_thread(thread.join, 5)
        assert not any(thread.is_alive() for thread in threads), "its connection was left open"
    assert took < 2
    assert isinstance(reading, Unreachable)
    assert "no whole answer within 0.3 s" in reading.reason or scheme == "https"


async def test_a_cancelled_call_closes_its_connection() -> None:
    with listening() as (url, threads):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await ask(url, timeout_s=60)
        assert threads, "it never connected"
        await asyncio.to_thread(threads[0].join, 5)
        assert not threads[0].is_alive()


def test_a_line_that_was_cut_before_the_call_refuses_its_sockets() -> None:
    line = Line()
    line.cut()
    one, other = socket.socketpair()
    with one, other:
        with pytest.raises(ConnectionAbortedError):
            line.watch(one)
        assert one.fileno() == -1
