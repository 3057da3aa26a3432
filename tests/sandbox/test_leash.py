"""Whatever happens to slotune, nothing that it started may stay: an orphan would hold the GPU for ever."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slotune.sandbox.process import LEASH
from slotune.sandbox.process_tree import descendants
from tests.sandbox.processes import running, until

Start = Callable[..., "subprocess.Popen[bytes]"]


def leashed(*command: str, parent: int | None = None, address_space: int = 0) -> list[str]:
    return [sys.executable, "-I", "-S", str(LEASH), str(parent or os.getpid()), str(address_space), *command]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands on a leash and ends them after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, **settings: int) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                leashed(*command, **settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
        )
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()  # not read to its end: what a broken leash leaves behind may hold it open
        process.wait()


@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param(["sh", "-c", "exit 0"], 0, id="success"),
        pytest.param(["sh", "-c", "exit 7"], 7, id="an exit code"),
        pytest.param(["sh", "-c", "kill -ABRT $$"], -signal.SIGABRT, id="an abort"),
        pytest.param(["sh", "-c", "kill -KILL $$"], -signal.SIGKILL, id="a kill"),
        pytest.param(["/nonexistent/llama-server"], 127, id="a command that does not exist"),
        pytest.param(["/etc/passwd"], 126, id="a file that is no command"),
    ],
)
def test_it_ends_as_its_command_ended(start: Start, command: list[str], want: int) -> None:
    assert start(*command).wait(10) == want


def test_a_command_that_cannot_run_is_named(start: Start) -> None:
    out, _ = start("/nonexistent/llama-server").communicate(timeout=10)

    assert out == b"slotune: cannot run /nonexistent/llama-server: No such file or directory\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_end_reaches_the_command(start: Start, number: signal.Signals) -> None:
    process = start("sh", "-c", f"trap 'exit 9' {number.name[3:]}; echo up; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"

    process.send_signal(number)

    assert process.wait(10) == 9


def test_a_demand_to_end_kills_even_a_session_of_its_own(start: Start, tmp_path: Path) -> None:
    process = start("sh", "-c", f"trap '' TERM; setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 1000'; sleep 1000")
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    grandchild = int((tmp_path / "pid").read_text())
    assert running(grandchild)

    process.send_signal(signal.SIGQUIT)

    assert process.wait(10) == -signal.SIGKILL
    assert not running(grandchild)


def test_what_a_command_leaves_behind_ends_with_it(start: Start, tmp_path: Path) -> None:
    process = start("sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path}/pid")

    assert process.wait(10) == 0
    assert not running(int((tmp_path / "pid").read_text()))


def test_the_end_of_the_thread_that_started_it_is_not_the_end_of_its_parent(start: Start) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        started.append(start("sh", "-c", "echo up; sleep 1000"))
        assert started[0].stdout is not None
        assert started[0].stdout.readline() == b"up\n"

    thread = threading.Thread(target=begin)
    thread.start()
    until(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    [process] = started

    # The thread's parent-death signal has a lower number than this one, so it is handled first.
    process.send_signal(signal.SIGTERM)

    assert process.wait(10) == -signal.SIGTERM


def test_a_leash_that_is_killed_takes_its_command_with_it(start: Start) -> None:
    process = start("sleep", "1000")
    until(lambda: descendants(process.pid))
    [command] = descendants(process.pid)

    process.kill()

    until(lambda: not running(command))


def test_a_parent_that_was_gone_from_the_start_starts_nothing(start: Start, tmp_path: Path) -> None:
    process = start("touch", str(tmp_path / "ran"), parent=1)

    assert process.wait(10) != 0
    assert not (tmp_path / "ran").exists()


def test_a_command_writes_no_core_and_gets_default_signals(start: Start) -> None:
    report = (
        "import resource, signal; print(resource.getrlimit(resource.RLIMIT_CORE), signal.getsignal(signal.SIGUSR1))"
    )
    out, _ = start(sys.executable, "-c", report).communicate(timeout=10)
    assert out == b"(0, 0) 0\n"

    out, _ = start("sh", "-c", "grep -E 'SigBlk|SigIgn' /proc/self/status").communicate(timeout=10)
    # Signals 1 to 31: make leaves 32 and 33 ignored, which are the C library's own, and nobody can change those.
    standard = 2**31 - 1
    assert {int(line.split()[1], 16) & standard for line in out.decode().splitlines()} == {0}


def test_a_limit_on_address_space_reaches_the_command(start: Start) -> None:
    limit = 512 * 1024 * 1024
    report = "import resource; print(resource.getrlimit(resource.RLIMIT_AS)[0])"

    out, _ = start(sys.executable, "-c", report, address_space=limit).communicate(timeout=10)

    assert int(out) == limit
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != limit, "ours is untouched"
