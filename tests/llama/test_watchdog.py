"""A wedged llama-server answers /health with 200 (ggml-org/llama.cpp#27388). Only progress proves life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.server_answers import Slot
from slotune.llama.server_http import HealthState, LlamaServer
from slotune.llama.watchdog import Heartbeat, Sample, Vigil, Watchdog, judge

SLOT = Slot(0, 512, processing=True, task=1, prompt_tokens_processed=100, decoded=5)
BUSY = Sample(0.0, Heartbeat(in_flight=3, token_events=10), decodes=50, slots=(SLOT,))
IDLE = replace(BUSY, client=Heartbeat(0, 10))


def watch(first: Sample, later: Sample, *, until_s: float, every_s: float = 5.0, limit_s: float = 60.0) -> str | None:
    """What is said after ``later`` was seen again and again."""
    vigil = Vigil.begin(first)
    at_s = first.at_s
    while at_s < until_s:
        at_s += every_s
        vigil = judge(vigil, replace(later, at_s=at_s), limit_s)
    return vigil.wedged


def test_requests_in_flight_and_nothing_moves_is_a_wedge_but_not_before_the_limit() -> None:
    assert watch(BUSY, BUSY, until_s=55) is None
    assert watch(BUSY, BUSY, until_s=60) == "3 requests in flight, no token and no decode for 60 s"


def test_a_wedge_whose_slots_hang_says_so() -> None:
    silent = replace(BUSY, decodes=None, slots=None)

    assert watch(BUSY, silent, until_s=60) == (
        "3 requests in flight, no token and no decode for 60 s and /slots does not answer"
    )


def test_an_idle_server_may_stand_still() -> None:
    assert watch(IDLE, IDLE, until_s=600) is None


def test_an_idle_server_must_answer() -> None:
    assert "no request in flight, yet /slots" in (
        watch(IDLE, replace(IDLE, decodes=None, slots=None), until_s=60) or ""
    )


@pytest.mark.parametrize(
    "moving",
    [
        pytest.param(replace(BUSY, client=Heartbeat(3, 11)), id="a token at the client"),
        pytest.param(replace(BUSY, decodes=51), id="a decode at the server"),
        pytest.param(replace(BUSY, slots=(replace(SLOT, prompt_tokens_processed=612),)), id="a prompt further along"),
        pytest.param(replace(BUSY, slots=(replace(SLOT, decoded=6),)), id="a token in a slot"),
    ],
)
def test_any_one_sign_of_life_starts_the_clock_again(moving: Sample) -> None:
    vigil = judge(Vigil.begin(BUSY), replace(moving, at_s=59.0))

    assert judge(vigil, replace(moving, at_s=118.0)).wedged is None
    assert judge(vigil, replace(moving, at_s=119.0)).wedged is not None


def test_a_slow_server_that_streams_tokens_is_busy_and_not_wedged() -> None:
    vigil = Vigil.begin(BUSY)
    for step in range(1, 100):
        vigil = judge(vigil, Sample(step * 10.0, Heartbeat(3, 10 + step)), limit_s=60)

    assert vigil.wedged is None


def test_a_question_left_unanswered_does_not_hide_a_standstill() -> None:
    vigil = Vigil.begin(BUSY)
    for step in range(1, 13):
        answered = step % 2 == 0
        sample = replace(BUSY, at_s=step * 5.0, decodes=50 if answered else None, slots=(SLOT,) if answered else None)
        vigil = judge(vigil, sample)

    assert vigil.wedged is not None


def test_progress_is_seen_across_questions_that_were_not_answered() -> None:
    vigil = Vigil.begin(BUSY)
    for step in range(1, 40):
        answered = step % 2 == 0
        sample = replace(BUSY, at_s=step * 5.0, decodes=50 + step if answered else None, slots=None)
        vigil = judge(vigil, sample)

    assert vigil.wedged is None


def test_work_that_begins_gets_the_whole_limit() -> None:
    vigil = judge(Vigil.begin(IDLE), replace(BUSY, at_s=500.0))

    assert judge(vigil, replace(BUSY, at_s=559.0)).wedged is None


def test_once_wedged_it_stays_wedged() -> None:
    vigil = judge(Vigil.begin(BUSY), replace(BUSY, at_s=60.0))

    assert judge(vigil, replace(BUSY, at_s=61.0, decodes=99)).wedged == vigil.wedged is not None


@given(st.lists(st.tuples(st.floats(0.1, 20), st.booleans(), st.booleans()), max_size=60))
def test_a_wedge_is_never_called_while_tokens_keep_coming(steps: list[tuple[float, bool, bool]]) -> None:
    vigil, at_s, events = Vigil.begin(BUSY), 0.0, 10
    since_token = 0.0
    for pause, token, answers in steps:
        at_s += pause
        since_token = 0.0 if token else since_token + pause
        events += token
        vigil = judge(vigil, Sample(at_s, Heartbeat(1, events), 50 if answers else None), limit_s=30)
        assert vigil.wedged is None or since_token >= 29.99
        if vigil.wedged:
            break


@asynccontextmanager
async def wedged_server() -> AsyncIterator[str]:
    """Answers /health at once and nothing else, ever."""
    closing = asyncio.Event()

    async def health(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def hang(_: web.Request) -> web.Response:
        await closing.wait()
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/slots", hang), web.get("/metrics", hang)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()  # type: ignore[union-attr]  # aiohttp gives the port nowhere else
    finally:
        closing.set()
        await runner.cleanup()


async def test_a_server_that_answers_health_and_hangs_slots_is_found_out() -> None:
    clock = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds
        await asyncio.sleep(0)

    async with wedged_server() as (host, port), LlamaServer(f"http://{host}:{port}", timeout_s=0.05) as server:
        assert await server.health() is HealthState.READY
        watchdog = Watchdog(
            server, lambda: Heartbeat(2, 7), limit_s=30, interval_s=10, clock=lambda: clock, sleep=sleep
        )

        reason = await asyncio.wait_for(watchdog.run(), timeout=10)

    assert reason == "2 requests in flight, no token and no decode for 30 s and /slots does not answer"
