"""Every fault that a CPU can have is made on a real engine, and the first finding names it; healthy servers hear that
there is nothing to change."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import httpx
import pytest

from e2e.engines import Running, cpu_ticks, diagnose, running, stopped, text_of
from e2e.models import WEIGHTS

pytestmark = pytest.mark.engine

ONE_THREAD = ("--threads", "1", "--threads-batch", "1")


async def looked_at(server: Running, *more: str) -> list[str]:
    """Identifiers, the first finding first."""
    found = await diagnose("--url", server.url, "--log", str(server.log_path), *more)
    return [one["id"] for one in found.findings]


@pytest.fixture
def small_model(weights: Path) -> Path:
    """Real weights of the smallest size."""
    return weights / WEIGHTS["Q4_0"]


async def test_one_slot_under_load_is_too_few(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "512") as server,
        server.used_by(4, lambda user, turn: text_of(20, (user, turn)), 24),
    ):
        assert (await looked_at(server))[:1] == ["SLT050"]


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
        await asyncio.sleep(1)  # they ask for a quarter of a minute; the look falls into the middle
        found = await looked_at(server)
        await asyncio.gather(*users)
    assert found[:1] == ["SLT053"]


async def test_a_context_that_is_too_small_refuses_prompts(small_model: Path, tmp_path: Path) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "256") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn in range(3):
                assert await server.ask(client, text_of(400, turn), 4) == 400
            await server.ask(client, text_of(20, "short"), 4)
        assert (await looked_at(server))[:1] == ["SLT031"]


async def test_a_debug_log_is_told(small_model: Path, tmp_path: Path) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024", "-lv", "5") as server:
        async with server.used_by(2, lambda user, turn: text_of(20, (user, turn)), 16):
            await asyncio.sleep(0)
        assert (await looked_at(server))[:1] == ["SLT080"]


async def test_a_nonce_at_the_front_of_a_long_prompt_defeats_the_cache(small_model: Path, tmp_path: Path) -> None:
    body = text_of(300, "the same for everybody")
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "1024", "--cache-ram", "0") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn in range(10):
                await server.ask(client, f"{text_of(3, turn)} {body}", 4)
        assert (await looked_at(server, "--probe"))[:1] == ["SLT040"]


async def test_a_host_cache_that_is_too_small_is_churned(small_model: Path, tmp_path: Path) -> None:
    async with running(
        small_model, tmp_path, *ONE_THREAD, "-np", "1", "-c", "512", "--cache-ram", "8", "--cache-idle-slots"
    ) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn, user in itertools.product(range(4), range(6)):
                await server.ask(client, text_of(120, user) + f" {turn}", 2)
        assert (await looked_at(server))[:1] == ["SLT046"]


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
    assert found[:1] == ["SLT021"]


async def test_penalties_are_seen_in_the_requests_that_run(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024") as server,
        server.used_by(
            2, lambda user, turn: text_of(10, (user, turn)), 60, repeat_penalty=1.3, repeat_last_n=256, n_probs=20
        ),
    ):
        assert (await looked_at(server))[:1] == ["SLT070"]


async def test_a_client_with_one_connection_is_seen_by_its_trail(small_model: Path, tmp_path: Path) -> None:
    async with (
        running(small_model, tmp_path, *ONE_THREAD, "-np", "4", "-c", "2048") as server,
        httpx.AsyncClient(base_url=server.url, timeout=120) as client,
    ):
        for turn in range(24):
            await server.ask(client, text_of(20, turn), 8)
        found = await looked_at(server)
    assert found[:1] == ["SLT095"]


async def test_a_server_whose_computing_thread_hangs_is_wedged_though_it_says_that_it_is_well(
    small_model: Path, tmp_path: Path
) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, "-np", "2", "-c", "1024") as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            before = cpu_ticks(server.pid)
            await server.ask(client, text_of(100, "before"), 32)
            after = cpu_ticks(server.pid)
            with stopped(max(after, key=lambda one: after[one] - before.get(one, 0))):
                assert (await client.get("/health")).status_code == 200
                found = await looked_at(server)
        assert found[:1] == ["SLT110"]


HEALTHY = {
    "defaults": (),
    "one slot": ("-np", "1", "-c", "1024"),
    "four slots of their own": ("-np", "4", "-no-kvu", "-c", "2048"),
    "four slots that share": ("-np", "4", "-kvu", "-c", "2048"),
    "a small batch": ("-np", "2", "-c", "1024", "-b", "256", "-ub", "256"),
    "quantized keys and values": ("-np", "2", "-c", "1024", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0"),
    "no host cache": ("-np", "2", "-c", "1024", "--cache-ram", "0"),
    "a host cache that suffices": ("-np", "2", "-c", "1024", "--cache-ram", "512"),
    "no prompt cache, for prompts that share nothing": ("-np", "2", "-c", "1024", "--no-cache-prompt", "-cram", "0"),
    "flash attention off": ("-np", "2", "-c", "1024", "-fa", "off"),
    "a quiet log": ("-np", "2", "-c", "1024", "-lv", "2"),
    "a log with its start": ("-np", "2", "-c", "1024", "-lv", "4"),
}


@pytest.mark.parametrize("flags", HEALTHY.values(), ids=HEALTHY)
async def test_a_healthy_server_hears_that_there_is_nothing_to_change(
    flags: tuple[str, ...], small_model: Path, tmp_path: Path
) -> None:
    async with running(small_model, tmp_path, *ONE_THREAD, *flags) as server:
        asleep = await diagnose("--url", server.url, "--log", str(server.log_path))
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            for turn in range(4):  # people who come now and then, sometimes two at a time
                await asyncio.gather(*(server.ask(client, text_of(30, (turn, one)), 12) for one in range(1 + turn % 2)))
                await asyncio.sleep(0.3)  # between two of them nobody asks; that is what "now and then" means here
        used = await diagnose("--url", server.url, "--log", str(server.log_path))
        probed = await diagnose("--url", server.url, "--log", str(server.log_path), "--probe")
    for found in (asleep, used, probed):
        assert found.alarms == []
