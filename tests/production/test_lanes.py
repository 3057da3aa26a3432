"""Who never answers holds up nobody but others who never answer."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from slotune.production.lanes import Lanes
from slotune.production.prometheus import PrometheusReader
from slotune.production.readings import Unreachable, Value
from tests.production.answering import answering, result


@pytest.fixture
def silence() -> Iterator[str]:
    """Address of a host that takes every connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """Questions wait for it."""
    event = threading.Event()
    yield event
    event.set()


async def test_the_time_for_an_answer_counts_from_when_a_thread_takes_the_question_up(held):
    lanes = Lanes(threads=1)
    first = asyncio.create_task(lanes.ask("a", held.wait, 30))
    await asyncio.sleep(0)
    second = asyncio.create_task(lanes.ask("b", lambda: "here", 0.2))
    await asyncio.wait({second}, timeout=0.4)
    assert not second.done()
    held.set()
    assert await second == "here"
    await first


async def test_who_was_silent_waits_among_the_silent_and_is_believed_when_he_answers(held):
    lanes = Lanes(threads=1, slow_threads=1)
    with pytest.raises(TimeoutError):
        await lanes.ask("dead", held.wait, 0.01)
    held.set()
    held.clear()
    waits = asyncio.create_task(lanes.ask("dead", held.wait, 30))
    assert await asyncio.wait_for(lanes.ask("alive", lambda: "here", 5), 5) == "here"
    held.set()
    await waits
    assert await lanes.ask("dead", lambda: threading.current_thread().name, 5) == "answers_0"


async def test_a_question_that_nobody_waits_for_any_more_is_never_asked(held):
    lanes, asked = Lanes(threads=1), []
    first = asyncio.create_task(lanes.ask("a", held.wait, 30))
    await asyncio.sleep(0)
    second = asyncio.create_task(lanes.ask("b", lambda: asked.append("b"), 30))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    held.set()
    await first
    await lanes.ask("c", lambda: None, 5)
    assert asked == []


async def test_silent_hosts_keep_no_other_from_being_read_nor_the_loop_from_its_own_threads(silence):
    at = datetime.now(UTC)
    with answering(result([{"metric": {}, "value": [1, "2"]}])) as alive:
        dead = [asyncio.create_task(PrometheusReader(silence, 2).scalar("up", at)) for _ in range(24)]
        await asyncio.sleep(0)
        began = time.monotonic()
        assert await PrometheusReader(alive, 5).scalar("up", at) == Value(2)
        assert await asyncio.to_thread(lambda: "here") == "here"
        await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert time.monotonic() - began < 1.5
        assert all(isinstance(reading, Unreachable) for reading in await asyncio.gather(*dead))
