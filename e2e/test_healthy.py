"""Healthy servers of many kinds hear that there is nothing to change, at every moment of their lives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.engines import Diagnosis, Running, diagnose, running, text_of
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.engine

ONE_THREAD = ("--threads", "1", "--threads-batch", "1")


async def looked_at(server: Running, *more: str) -> Diagnosis:
    """By its address and its log."""
    return await diagnose("--url", server.url, "--log", str(server.log_path), *more)


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


@pytest.fixture(scope="session")
def quick_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated model of a few million parameters: many requests take no time."""
    path = tmp_path_factory.mktemp("models") / "quick.gguf"
    write_tiny_model(path, context=4096, words=4096)
    return path


@pytest.mark.parametrize("flags", HEALTHY.values(), ids=HEALTHY)
async def test_a_healthy_server_hears_that_there_is_nothing_to_change(
    flags: tuple[str, ...], quick_model: Path, tmp_path: Path
) -> None:
    async with running(quick_model, tmp_path, *ONE_THREAD, *flags) as server:
        seen = [("before anybody came", await looked_at(server))]
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:

            async def some(count: int, at_once: int, words: int, name: str) -> None:
                for turn in range(count // at_once):
                    prompts = [text_of(words * (1 + (turn + one) % 3), (name, turn, one)) for one in range(at_once)]
                    await asyncio.gather(*(server.ask(client, prompt, 12) for prompt in prompts))
                    if turn % 5 == 0 and "--no-cache-prompt" not in flags:
                        await server.ask(client, prompts[0], 12)  # somebody asks once more
                    await asyncio.sleep(0.05)  # people pause before they ask again

            await some(12, 1, 6, "one at a time")
            seen.append(("lone users", await looked_at(server)))
            await some(16, 2, 12, "two")
            seen.append(("two at a time", await looked_at(server)))
            await some(6, 1, 18, "longer")
        seen.append(("in the end, probed", await looked_at(server, "--probe")))
    assert set(server.statuses) == {200}
    assert {when: found.alarms for when, found in seen} == {when: [] for when, _ in seen}


MODELS: dict[str, dict[str, Any]] = {
    "a plain model": {},
    "a sliding window": {"architecture": "gemma3", "layers": 6, "window": 256},
    "a recurrent model": {"architecture": "mamba"},
    "a hybrid model": {"architecture": "lfm2", "layers": 4, "kv_heads": (0, 4, 0, 4)},
    "a mixture of experts": {"experts": 4, "experts_used": 2},
}


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Generated models of every kind of memory."""
    folder = tmp_path_factory.mktemp("kinds")
    return {
        name: write_tiny_model(folder / f"{number}.gguf", context=4096, words=4096, **more)
        for number, (name, more) in enumerate(MODELS.items())
    }


async def in_turns(server: Running, client: httpx.AsyncClient, *, stream: bool) -> None:
    """Two people who talk to it, one after the other, eight times each."""
    told: dict[int, list[dict[str, str]]] = {
        user: [{"role": "system", "content": text_of(30, "the same")}] for user in range(2)
    }
    for turn in range(8):
        for user, messages in told.items():
            messages.append({"role": "user", "content": text_of(12, (user, turn))})
            answer = await server.chat(client, messages, 12, stream=stream)
            messages.append({"role": "assistant", "content": answer})
        await asyncio.sleep(0.05)


LOG = ("-lv", "4")
USES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "chats": ("a plain model", ("-np", "2", "-c", "4096"), False),
    "streamed chats": ("a plain model", ("-np", "2", "-c", "4096", *LOG), True),
    "a sliding window": ("a sliding window", ("-np", "2", "-c", "4096", *LOG), True),
    "chats over a sliding window": ("a sliding window", ("-np", "2", "-c", "4096"), False),
    "a recurrent model": ("a recurrent model", ("-np", "2", "-c", "4096", *LOG), True),
    "a hybrid model": ("a hybrid model", ("-np", "2", "-c", "4096", *LOG), False),
    "a mixture of experts": ("a mixture of experts", ("-np", "2", "-c", "4096", *LOG), True),
}


@pytest.mark.parametrize("name", USES)
async def test_healthy_servers_of_every_kind_and_use_hear_nothing(
    name: str, kinds: dict[str, Path], tmp_path: Path
) -> None:
    kind, flags, stream = USES[name]
    async with running(kinds[kind], tmp_path, *ONE_THREAD, *flags) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            await in_turns(server, client, stream=stream)
        seen = [("used", await looked_at(server))]
        seen.append(("probed", await looked_at(server, "--probe")))
    assert set(server.statuses) == {200}
    assert {when: found.alarms for when, found in seen} == {when: [] for when, _ in seen}


async def test_a_server_that_was_started_anew_hears_nothing_of_it(kinds: dict[str, Path], tmp_path: Path) -> None:
    whole = tmp_path / "both.log"
    for number in range(2):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        async with (
            running(kinds["a plain model"], folder, *ONE_THREAD, "-np", "2", *LOG) as server,
            httpx.AsyncClient(base_url=server.url, timeout=120) as client,
        ):
            await in_turns(server, client, stream=True)
        with whole.open("ab") as file:
            file.write(server.log_path.read_bytes())
    found = await diagnose("--log", str(whole))
    assert "SLT111" in found.ids
    assert found.alarms == []
