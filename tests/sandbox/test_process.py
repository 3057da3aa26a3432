"""The server process: ready or diagnosed, and gone when nobody holds it. Against a program that only plays the part."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from slotune.llama.engine import Engine
from slotune.llama.failures import FailureClass
from slotune.llama.server_http import HealthState, UnexpectedAnswerError
from slotune.sandbox.process import LlamaProcess, LlamaStartError, new_alias
from slotune.sandbox.process_tree import descendants, listening_ports, peak_resident_bytes
from tests.sandbox.processes import FAKE, running, until


@pytest.fixture(autouse=True)
def _in_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the fake leaves its notes where it runs


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """A wrapper script that does not even replace itself, as packages of llama-server sometimes are."""
    path = tmp_path / "llama-server"
    # A shell that dies of SIGTERM takes a server that does not along, at once.
    stubborn = "case $1 in *stubborn*) trap '' TERM;; esac"
    path.write_text(f'#!/bin/sh\n{stubborn}\n{sys.executable} {FAKE} "$@"\nexit $?\n')
    path.chmod(0o755)
    return Engine("binary", "fake", str(path))


def fake(engine: Engine, tmp_path: Path, behaviour: str = "good", **settings: float | str) -> LlamaProcess:
    alias = str(settings.pop("alias", "mine"))
    return LlamaProcess(
        engine,
        [behaviour, "--alias", alias],
        directory=tmp_path / "out",
        alias=alias,
        **settings,  # type: ignore[arg-type]  # limits are numbers
    )


def server_pid(tmp_path: Path) -> int:
    return int(json.loads((tmp_path / "facts.json").read_text())["pid"])


async def test_inside_the_block_the_server_is_ready_and_after_it_is_gone(engine: Engine, tmp_path: Path) -> None:
    async with fake(engine, tmp_path) as process:
        assert process.alive
        assert process.exit_code is None
        assert await process.server.health() is HealthState.READY
        assert process.log_tail() == ("fake: up",)
        assert (process.memory_peak_bytes or 0) > 1_000_000
        pid = server_pid(tmp_path)
        assert pid in descendants(process.pid)

    assert not running(pid)
    assert not process.alive
    assert process.exit_code is not None
    assert (process.memory_peak_bytes or 0) > 1_000_000, "the last value stays"


async def test_two_servers_never_meet_on_a_port(engine: Engine, tmp_path: Path) -> None:
    first = LlamaProcess(engine, ["good", "--alias", "a"], directory=tmp_path / "a", alias="a")
    second = LlamaProcess(engine, ["good", "--alias", "b"], directory=tmp_path / "b", alias="b")

    async with first, second:
        assert first.base_url != second.base_url
        assert (await second.server.model()).id == "b"


async def test_a_server_that_is_not_the_one_that_was_started_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(UnexpectedAnswerError, match="serves 'somebody-else'"):
        async with fake(engine, tmp_path, "foreign"):
            pass

    assert not running(server_pid(tmp_path))


async def test_a_server_that_ends_at_once_is_diagnosed_from_its_log(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(LlamaStartError, match="does not know the flag --frobnicate") as caught:
        async with fake(engine, tmp_path, "crash"):
            pass

    assert caught.value.failure.failure_class is FailureClass.BAD_FLAG
    assert caught.value.failure.knob == "--frobnicate"
    assert caught.value.log_tail == ("error: invalid argument: --frobnicate",)


@pytest.mark.parametrize("behaviour", ["deaf", "loading"])
async def test_a_server_that_is_never_ready_is_stopped_at_the_limit(
    engine: Engine, tmp_path: Path, behaviour: str
) -> None:
    with pytest.raises(LlamaStartError, match=r"not ready within 1\.5 s") as caught:
        async with fake(engine, tmp_path, behaviour, startup_limit_s=1.5):
            pass

    assert caught.value.failure.failure_class is FailureClass.STARTUP_TIMEOUT
    assert not running(server_pid(tmp_path))


async def test_an_engine_that_cannot_be_started_is_diagnosed(tmp_path: Path) -> None:
    with pytest.raises(LlamaStartError, match="cannot run /nonexistent"):
        async with LlamaProcess(Engine("binary", "x", "/nonexistent"), [], directory=tmp_path):
            pass


async def test_a_server_that_ignores_sigterm_is_killed(engine: Engine, tmp_path: Path) -> None:
    async with fake(engine, tmp_path, "stubborn,parent", stop_limit_s=0.2):
        pids = [server_pid(tmp_path), int((tmp_path / "grandchild").read_text())]
        assert all(map(running, pids))

    assert not any(map(running, pids))


@pytest.mark.parametrize("behaviour", ["loading", "stubborn"])
async def test_cancelling_ends_the_server_before_the_cancellation_goes_on(
    engine: Engine, tmp_path: Path, behaviour: str
) -> None:
    async def hold() -> None:
        async with fake(engine, tmp_path, behaviour, stop_limit_s=0.2):
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    log = tmp_path / "out" / "server.log"
    await asyncio.to_thread(until, lambda: log.exists() and log.read_bytes())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not running(server_pid(tmp_path))


async def test_a_second_cancellation_kills_at_once(engine: Engine, tmp_path: Path) -> None:
    process = fake(engine, tmp_path, "stubborn", stop_limit_s=600)
    await process.__aenter__()
    stopping = asyncio.create_task(process.stop())
    await asyncio.sleep(0)
    stopping.cancel()

    with pytest.raises(asyncio.CancelledError):
        await stopping

    assert not running(server_pid(tmp_path))


async def test_a_crash_under_load_is_diagnosed(engine: Engine, tmp_path: Path) -> None:
    async with fake(engine, tmp_path) as process:
        async with httpx.AsyncClient(trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.get(f"{process.base_url}/die")
        await asyncio.to_thread(until, lambda: not process.alive)

        assert process.failure().failure_class is FailureClass.CRASHED
        assert process.exit_code == 134, "as the wrapper script's shell tells an abort"


async def test_the_servers_environment_is_clean_and_its_configuration_empty(engine: Engine, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/home/u", "LLAMA_ARG_N_PARALLEL": "7", "HTTP_PROXY": "http://p"}
    process = LlamaProcess(engine, ["good"], directory=tmp_path / "out", environ=environ)

    async with process:
        pass

    seen = json.loads((tmp_path / "facts.json").read_text())["environ"]
    assert "LLAMA_ARG_N_PARALLEL" not in seen
    assert "HTTP_PROXY" not in seen
    assert seen["HOME"] == "/home/u", "the GPU driver's kernel cache lives there"
    assert seen["XDG_CONFIG_HOME"] == str(tmp_path / "out" / "config")
    assert list((tmp_path / "out" / "config").iterdir()) == []


def test_no_orphan_is_left_when_slotune_is_killed(engine: Engine, tmp_path: Path) -> None:
    slotune = subprocess.Popen([sys.executable, "-c", HOLD, str(engine.path)], stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert slotune.stdout is not None
        assert slotune.stdout.readline() == b"ready\n"
        leash = [pid for pid in descendants(slotune.pid) if pid != slotune.pid]
        pids = [*leash, server_pid(tmp_path), int((tmp_path / "grandchild").read_text())]
        assert all(map(running, pids))
    finally:
        slotune.send_signal(signal.SIGKILL)
        slotune.communicate()
    until(lambda: not any(map(running, pids)))


HOLD = """
import asyncio, sys
from pathlib import Path
from slotune.llama.engine import Engine
from slotune.sandbox.process import LlamaProcess

async def main():
    engine = Engine("binary", "fake", sys.argv[1])
    async with LlamaProcess(engine, ["stubborn,parent", "--alias", "a"], directory=Path("out"), alias="a"):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_aliases_do_not_repeat() -> None:
    assert len({new_alias() for _ in range(1000)}) == 1000


async def test_a_long_log_keeps_its_beginning_and_its_end(engine: Engine, tmp_path: Path) -> None:
    async with fake(engine, tmp_path) as process:
        with process.log_path.open("a") as log:
            log.write("middle\n" * 400_000 + "the end\n")

        text = process.log_text()
        assert text.startswith("fake: up\n")
        assert text.endswith("the end\n")
        assert len(text) < process.log_path.stat().st_size
        assert process.log_tail(2) == ("middle", "the end")


def test_what_does_not_exist_has_no_ports_no_memory_and_no_children() -> None:
    nobody = 2**22 + 1

    assert (descendants(nobody), listening_ports([nobody]), peak_resident_bytes([nobody])) == ([], [], None)
