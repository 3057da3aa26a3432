"""An operator that the API server does not answer says that it is not ready, whichever of its ways is closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import kopf
import pytest
from aiohttp import web

from slotune.controller.cluster import ForbiddenError, UnavailableError
from slotune.controller.contact import (
    FAILING_S,
    PROBE_EVERY_S,
    REQUESTS_S,
    WATCHES_S,
    Contact,
    keep_in_touch,
    troubles,
)
from slotune.controller.handlers import settings_for
from slotune.controller.health import serving
from slotune.controller.kopf_session import with_contact
from tests.controller.fake_cluster import FakeCluster, Request


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def contact_of(clock: Clock, oldest_s: float = 60.0) -> Contact:
    return Contact("requests", oldest_s, clock)


# ---------------------------------------------------------------------------------------------------- what counts


def test_who_was_never_answered_is_not_in_contact() -> None:
    assert contact_of(Clock()).trouble == "requests: the API server has not answered yet"


def test_an_answer_counts_until_it_is_too_old() -> None:
    clock = Clock()
    contact = contact_of(clock)
    contact.heard(200)
    clock.now += 60
    assert contact.trouble == ""
    clock.now += 1
    assert contact.trouble == "requests: no answer of the API server for 61 s"
    contact.heard(404)
    assert contact.trouble == ""


def test_failures_alone_close_a_way_long_before_the_last_answer_is_too_old() -> None:
    clock = Clock()
    contact = contact_of(clock, oldest_s=WATCHES_S)
    contact.heard(200)
    clock.now += 10
    for _ in range(7):
        contact.failed()
        clock.now += 10
    assert contact.trouble == "requests: no answer of the API server for 80 s"


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_one_failure_is_no_trouble_and_an_answer_forgives_them_all(status: int) -> None:
    clock = Clock()
    contact = contact_of(clock, oldest_s=WATCHES_S)
    contact.heard(200)
    contact.heard(status)
    clock.now += FAILING_S
    assert contact.trouble == ""
    contact.heard(200)
    clock.now += 2 * FAILING_S
    assert contact.trouble == ""


def test_an_operator_is_ready_once_it_has_started_and_each_of_its_ways_is_open() -> None:
    clock = Clock()
    requests, watches = contact_of(clock), Contact("watches", WATCHES_S, clock)
    requests.heard(200)
    assert troubles(False, [requests]) == "the caches are not filled yet"
    assert troubles(True, [requests, watches]) == "watches: the API server has not answered yet"
    watches.heard(200)
    assert troubles(True, [requests, watches]) == ""


def test_a_quiet_operator_is_never_taken_for_one_without_contact() -> None:
    """Two questions fit into the silence of its requests, and a watch ends before its own is over."""
    assert settings_for(cluster_wide=True).watching.server_timeout == 300
    assert 300 + settings_for(cluster_wide=True).watching.inactivity_timeout < WATCHES_S
    assert REQUESTS_S >= 2 * PROBE_EVERY_S


# ---------------------------------------------------------------------------------------------------- asking


class Pinged(FakeCluster):
    """Tells its contact of each answer, and the test of each question."""

    def __init__(self, contact: Contact, count: int) -> None:
        super().__init__(before=self._count)
        self.contact, self.left, self.done = contact, count, asyncio.Event()
        self.answer: Exception | None = None

    def _count(self, _: Request) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()
        if isinstance(self.answer, UnavailableError):
            self.contact.failed()
        else:
            self.contact.heard(200 if self.answer is None else 403)
        if self.answer is not None:
            raise self.answer


@contextlib.asynccontextmanager
async def touched(cluster: Pinged, every_s: float, again_s: float = 0.0) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_in_touch(cluster, cluster.contact, every_s, again_s))
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "answer", [None, UnavailableError("GET /readyz", None, "away"), ForbiddenError("GET /readyz", 403, "no")]
)
async def test_an_operator_with_nothing_to_ask_asks_again_and_again_whatever_the_answer(
    answer: Exception | None,
) -> None:
    cluster = Pinged(Contact("requests", 60), 3)
    cluster.answer = answer
    async with touched(cluster, every_s=0.001), asyncio.timeout(5):
        await cluster.done.wait()


async def test_an_operator_that_was_just_answered_does_not_ask() -> None:
    contact = Contact("requests", 60)
    contact.heard(200)
    cluster = Pinged(contact, 1)
    async with touched(cluster, every_s=3600):
        for _ in range(10):
            await asyncio.sleep(0)
    assert cluster.requests == []


# ---------------------------------------------------------------------------------------------------- kopf's way


@dataclass
class Watched:
    """An API server that has one kind, as kopf sees it."""

    status: int = 200
    asked: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.headers.get("Authorization", ""))
        return web.json_response({}, status=self.status)


@pytest.mark.parametrize(("status", "want"), [(200, ""), (404, ""), (503, "has not answered"), (401, "has not")])
async def test_each_answer_to_kopf_is_heard(status: int, want: str) -> None:
    watched, contact = Watched(status), Contact("watches", WATCHES_S)
    app = web.Application()
    app.router.add_get("/apis", watched.handle)
    async with serving(app, 0, "127.0.0.1") as port:
        session = with_contact(kopf.ConnectionInfo(server=f"http://127.0.0.1:{port}", token="t"), contact)
        async with session.aiohttp_session as http, http.get(f"{session.server}/apis") as answer:
            assert answer.status == status
    assert watched.asked == ["Bearer t"]
    assert want in contact.trouble
    assert bool(want) == bool(contact.trouble)


async def test_a_server_that_is_not_there_for_kopf_is_heard_of() -> None:
    clock = Clock()
    contact = Contact("watches", WATCHES_S, clock)
    contact.heard(200)
    session = with_contact(kopf.ConnectionInfo(server="http://127.0.0.1:9"), contact)
    async with session.aiohttp_session as http:
        with pytest.raises(aiohttp.ClientConnectorError):
            await http.get(session.server)
    clock.now += FAILING_S + 1
    assert contact.trouble


async def test_kopf_knows_credentials_again_that_were_refused() -> None:
    """Else it would try a revoked token without end, and as fast as it can."""
    info, contact = kopf.ConnectionInfo(server="http://127.0.0.1:9", token="t"), Contact("watches", WATCHES_S)
    one, two = with_contact(info, contact), with_contact(info, contact)
    other = with_contact(kopf.ConnectionInfo(server="http://127.0.0.1:9", token="u"), contact)
    async with one.aiohttp_session, two.aiohttp_session, other.aiohttp_session:
        assert one == two
        assert one != other
        assert "t'" not in repr(one)
