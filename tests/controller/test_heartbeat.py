"""An operator that is stuck says so, and one that has nothing to do does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from slotune.controller.health import health_app, metrics_app, serve_health, serving
from slotune.controller.heartbeat import Heartbeat, got_somewhere, keep_beating
from slotune.controller.metrics import OperatorMetrics


async def get(app: web.Application, path: str) -> tuple[int, str, str]:
    """Status, text and type of a page on loopback."""
    async with (
        serving(app, 0, "127.0.0.1") as port,
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text(), answer.headers["Content-Type"]


def app(heartbeat: Heartbeat, now: float = 100.0, trouble: Callable[[], str] = str) -> web.Application:
    return health_app(heartbeat, trouble, lambda: now, oldest_s=30)


def test_a_heartbeat_grows_old_from_its_start() -> None:
    assert Heartbeat(100).age(103) == 3


def test_a_beat_makes_it_young() -> None:
    heartbeat = Heartbeat(100)
    heartbeat.beat(110)
    assert heartbeat.age(111) == 1


def test_work_that_does_not_end_makes_it_old_however_much_the_loop_beats() -> None:
    heartbeat = Heartbeat(100)
    with heartbeat.working(lambda: 101), heartbeat.working(lambda: 109):
        heartbeat.beat(120)
        assert heartbeat.age(120) == 19
    assert heartbeat.age(120) == 0


async def test_work_whose_questions_all_end_is_not_stuck_however_long_it_takes() -> None:
    heartbeat, now = Heartbeat(0), [0.0]

    async def ask(ends_at: float) -> None:
        now[0] = ends_at
        got_somewhere()

    with heartbeat.working(lambda: now[0]):
        for ends_at in (200.0, 400.0):
            await asyncio.gather(ask(ends_at))  # in a task of its own
            heartbeat.beat(ends_at)
        assert heartbeat.age(410) == 10
        assert heartbeat.age(800) == 400


def test_a_question_of_nobodys_work_is_no_work() -> None:
    heartbeat = Heartbeat(100)
    got_somewhere()
    assert heartbeat.age(130) == 30


def test_one_look_that_gets_somewhere_does_not_hide_another_one_that_does_not() -> None:
    heartbeat, now = Heartbeat(100), [100.0]
    with heartbeat.working(lambda: 100), heartbeat.working(lambda: now[0]):
        now[0] = 150
        got_somewhere()
        heartbeat.beat(150)
        assert heartbeat.age(150) == 50


def test_work_that_fails_has_ended() -> None:
    heartbeat = Heartbeat(100)
    with pytest.raises(KeyError), heartbeat.working(lambda: 100):
        raise KeyError("x")
    heartbeat.beat(200)
    assert heartbeat.age(200) == 0


async def test_a_loop_without_work_goes_on_beating() -> None:
    beats: list[float] = []

    class Counted(Heartbeat):
        def beat(self, now: float) -> None:
            super().beat(now)
            beats.append(now)
            if len(beats) == 3:
                done.set()

    done = asyncio.Event()
    task = asyncio.create_task(keep_beating(Counted(0), iter(range(100)).__next__, every_s=0))
    async with asyncio.timeout(5):
        await done.wait()
    task.cancel()
    assert beats == [0, 1, 2]


async def test_livez_is_fine_while_the_heart_beats() -> None:
    assert (await get(app(Heartbeat(71)), "/livez"))[0] == 200


async def test_livez_names_the_age_of_an_old_heartbeat() -> None:
    status, text, _ = await get(app(Heartbeat(70)), "/livez")
    assert (status, text) == (503, "no heartbeat for 30 s: at most 30 s are allowed\n")


@pytest.mark.parametrize(("trouble", "want"), [("", (200, "ok\n")), ("no answer", (503, "not ready: no answer\n"))])
async def test_readyz_says_what_it_is_told(trouble: str, want: tuple[int, str]) -> None:
    assert (await get(app(Heartbeat(0), trouble=lambda: trouble), "/readyz"))[:2] == want


async def test_a_stuck_operator_may_be_ready_and_a_fresh_one_may_not() -> None:
    assert (await get(app(Heartbeat(0)), "/readyz"))[0] == 200
    assert (await get(app(Heartbeat(100), trouble=lambda: "no answer"), "/livez"))[0] == 200


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    metrics = OperatorMetrics()
    metrics.woken()
    status, text, kind = await get(metrics_app(metrics), "/metrics")
    assert status == 200
    assert "slotune_queue_wakeups_total 1.0" in text
    assert kind.startswith("text/plain; version=0.0.4")


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with serving(app(Heartbeat(0)), 0, None) as port:
        with pytest.raises(OSError, match=str(port)):
            await serve_health(Heartbeat(0), port, str, lambda: 0.0)


async def test_serving_ends_when_it_is_cancelled() -> None:
    task = asyncio.create_task(serve_health(Heartbeat(0), 0, str, lambda: 0.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
