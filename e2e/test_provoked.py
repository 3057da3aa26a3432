"""Every fault that a CPU can have is made on a real engine, and the first finding names it."""

from __future__ import annotations

import asyncio
import itertools
import re
from pathlib import Path

import httpx
import pytest

from e2e.engines import Diagnosis, Running, cpu_ticks, diagnose, running, stopped, text_of
from e2e.models import WEIGHTS

pytestmark = pytest.mark.engine

ONE_THREAD = ("--threads", "1", "--threads-batch", "1")


async def looked_at(server: Running, *more: str) -> Diagnosis:
    """By its address and its log."""
    return await diagnose("--url", server.url, "--log", str(server.log_path), *more)


@pytest.fixture
def small_model(weights: Path) -> Path:
    """Real weights of the smallest size."""
    return weights / WEIGHTS["Q4_0"]


async def test_one_slot_under_load_is_too_few(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "512") as server,
        server.used_by(4, lambda user, turn: text_of(20, (user, turn)), 24),
    ):
        assert (await looked_at(server)).ids[:1] == ["SLT050"]


async def test_many_slots_with_caches_of_their_own_are_slow_when_few_are_busy(
    small_model: Path, tmp_path: Path
) -> None:
    apart = [0, 5, 10, 15]
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "16", "-no-kvu", "-c", "4096") as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):
        await server.ask(client, text_of(20, "alone"), 24)

        async def user(slot: int) -> None:
            for turn in range(4):
                await server.ask(client, text_of(20, (slot, turn)), 48, id_slot=slot)

        users = [asyncio.create_task(user(slot)) for slot in apart]
        await server.until_busy(client, len(apart))
        found = await looked_at(server)
        await asyncio.gather(*users)
    assert found.ids[:1] == ["SLT053"]


async def test_a_context_that_is_too_small_refuses_prompts(small_model: Path, tmp_path: Path) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "256") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn in range(3):
                assert await server.ask(client, text_of(400, turn), 4) == 400
            await server.ask(client, text_of(20, "short"), 4)
        assert (await looked_at(server)).ids[:1] == ["SLT031"]


async def test_a_debug_log_is_told(small_model: Path, tmp_path: Path) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024", "-lv", "5") as server:
        async with server.used_by(2, lambda user, turn: text_of(20, (user, turn)), 16):
            await asyncio.sleep(0)
        assert (await looked_at(server)).ids[:1] == ["SLT080"]


@pytest.mark.parametrize("place", ["front", "end"])
async def test_a_nonce_defeats_the_cache_at_the_front_of_a_prompt_and_not_at_its_end(
    place: str, small_model: Path, tmp_path: Path
) -> None:
    body = text_of(120, "the same for everybody")
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "1024", "--cache-ram", "0") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn in range(12):
                nonce = text_of(3, turn)
                await server.ask(client, f"{nonce} {body}" if place == "front" else f"{body} {nonce}", 4)
        found = await looked_at(server, "--probe")
    if place == "front":  # whether anything was to be shared, no server knows; so it is told, and alarms nobody
        assert found.ids[:1] == ["SLT040"]
        assert "something near their beginning changes each time" in found.sentence
    assert ("SLT040" in found.ids) == (place == "front")
    assert found.alarms == []


async def test_conversations_that_take_turns_in_one_slot_are_named_beside_a_beginning_that_changes(
    small_model: Path, tmp_path: Path
) -> None:
    """A log can't tell them apart, and names what does."""
    async with running(
        small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "1024", "--cache-ram", "0", "-lv", "4"
    ) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn, user in itertools.product(range(7), range(2)):
                said = " ".join(text_of(8, (user, earlier)) for earlier in range(turn + 1))
                await server.ask(client, f"{text_of(100, user)} {said}", 4)
        found = await looked_at(server)
    assert found.ids[:1] == ["SLT042"]
    assert "more conversations take turns than 1 slot remembers" in found.sentence
    assert "something near their beginning changes each time" in found.sentence
    assert "SLT040" not in found.ids
    assert found.alarms == []


async def test_a_host_cache_that_is_too_small_is_churned(small_model: Path, tmp_path: Path) -> None:
    async with running(
        small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "512", "--cache-ram", "8", "--cache-idle-slots"
    ) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn, user in itertools.product(range(4), range(6)):
                await server.ask(client, text_of(120, user) + f" {turn}", 2)
        assert (await looked_at(server)).ids[:1] == ["SLT046"]


async def test_a_long_prompt_beside_short_ones_stalls_them_when_the_batch_is_huge(
    small_model: Path, tmp_path: Path
) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "4", "-c", "8192", "-b", "2048", "-ub", "2048") as server,
        server.used_by(2, lambda user, turn: text_of(8, (user, turn)), 24),
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):
        for turn in range(2):
            await server.ask(client, text_of(1200, ("long", turn)), 2)
        found = await looked_at(server)
    assert found.ids[:1] == ["SLT021"]


async def test_penalties_are_seen_in_the_requests_that_run(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024") as server,
        server.used_by(2, lambda user, turn: text_of(10, (user, turn)), 60, repeat_penalty=1.3, repeat_last_n=256),
    ):
        found = await looked_at(server)
    assert found.ids[:1] == ["SLT070"]
    assert "penalt" in found.sentence


async def test_a_client_with_one_connection_is_seen_by_its_trail(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "4", "-c", "2048") as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):
        for turn in range(24):
            await server.ask(client, text_of(20, turn), 8)
        found = await looked_at(server)
    assert found.ids[:1] == ["SLT095"]


async def computing_thread(server: Running, client: httpx.AsyncClient) -> int:
    """The thread that a request's work falls to."""
    before = cpu_ticks(server.pid)
    await server.ask(client, text_of(100, "before"), 32)
    after = cpu_ticks(server.pid)
    return max(after, key=lambda one: after[one] - before.get(one, 0))


async def test_a_server_whose_computing_thread_hangs_is_wedged_though_it_says_that_it_is_well(
    small_model: Path, tmp_path: Path
) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024") as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):
        with stopped(await computing_thread(server, client)):
            assert (await client.get("/health")).status_code == 200
            found = await looked_at(server)
        assert found.ids[:1] == ["SLT110"]


async def test_a_server_that_hangs_in_the_middle_of_an_answer_is_told_from_a_busy_one_by_watching_both(
    small_model: Path, tmp_path: Path
) -> None:
    """This build answers /slots and /metrics from what it knew before the step: only time tells a wedge from work."""
    hung, busy = tmp_path / "hung", tmp_path / "busy"
    flags = (*ONE_THREAD, "-np", "2", "-c", "1024")
    async with (
        running(small_model, hung, *flags) as server,
        running(small_model, busy, *flags) as healthy,
        httpx.AsyncClient(base_url=server.url, timeout=300) as client,
        healthy.used_by(2, lambda user, turn: text_of(20, (user, turn)), 24),
    ):
        thread = await computing_thread(server, client)
        asked = asyncio.create_task(server.ask(client, text_of(20, "in flight"), 150))
        await server.until_busy(client, 1)
        with stopped(thread):
            at_once = await looked_at(server)
            (health,) = [one for one in at_once.document["servers"][0]["checklist"] if one["item"] == "Health"]
            assert health["outcome"] == "Undecided"
            # 60 s, and longer where the machine is so busy that a step of this server once took over 12.
            long_enough = re.search(r"--watch (\d+)", " ".join(health["needs"]))
            assert long_enough is not None, health["needs"]
            watched = ("--watch", long_enough[1])
            found, beside = await asyncio.gather(*(looked_at(one, *watched) for one in (server, healthy)))
        assert not asked.done(), "it was in flight all the time"
        assert await asked == 200
    assert found.ids[:1] == ["SLT110"]
    assert found.findings[0]["severity"] == "Critical"
    # That other programs take the cores of this machine may well be true: it is no wedge.
    assert [alarm for alarm in beside.alarms if not alarm.startswith("SLT062")] == []
