"""A log can be a file, a pipe or packed; what is none is refused with a way out."""

from __future__ import annotations

import gzip
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slotune.gathering.log_file import read_log
from slotune.tuning.errors import InvalidInputError

LOGS = Path(__file__).parent.parent / "llama" / "logs"
SERVED = LOGS / "served_four.log"


class Standard:
    """A standard input."""

    def __init__(self, content: bytes, *, terminal: bool = False) -> None:
        self.buffer = io.BytesIO(content)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_a_file_is_read() -> None:
    (story,) = read_log(SERVED)

    assert (story.source, story.size_bytes) == (str(SERVED), SERVED.stat().st_size)
    assert story.facts.ready


def test_a_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(SERVED.read_bytes()))
    (story,) = read_log("-")

    assert story.source == "standard input"
    assert story.facts == read_log(SERVED)[0].facts


def test_a_packed_file_of_several_members_is_read_whatever_its_name(tmp_path: Path) -> None:
    packed = tmp_path / "old.log"
    text = SERVED.read_bytes() + b"0.09.000.000 I srv  update_slots: all slots are idle\n" * 60_000
    packed.write_bytes(gzip.compress(text[:40_000]) + gzip.compress(text[40_000:]) + b"\0" * 100)
    (story,) = read_log(packed)

    assert story.size_bytes == len(text)
    assert story.lines == text.count(b"\n")


def test_a_packed_pipe_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(gzip.compress(SERVED.read_bytes())))

    assert read_log("-")[0].facts.ready


@pytest.mark.parametrize(
    ("content", "cure"),
    [
        (b"", "holds nothing: write the server's log into it with"),
        (b"\n \r\n\n", "2>&1"),
        (b"hello\nworld\n", "no line of it is llama-server's: name the log of a llama-server"),
        (b"INFO EngineCore started\n", "it looks like the log of vLLM"),
        (b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 40, "it looks like a model file (GGUF)"),
        (os.urandom(50_000).replace(b"\n", b"x"), "it looks like a binary file"),
        (gzip.compress(b"x" * 5_000_000)[:-20], "its gzip data is broken or ends early"),
        (gzip.compress(b""), "holds nothing"),
        (b"\x1f\x8b nothing of the kind", "its gzip data is broken"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_a_cure(tmp_path: Path, content: bytes, cure: str) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError) as refused:
        read_log(path)

    assert refused.value.field == "--log"
    assert str(refused.value.value) == str(path)
    assert cure in str(refused.value)


def test_a_file_that_is_missing_or_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"is not there: make it with `kubectl logs"):
        read_log(tmp_path / "missing.log")
    with pytest.raises(InvalidInputError, match="is a directory"):
        read_log(tmp_path)


def test_a_file_that_may_not_be_opened_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(InvalidInputError, match=r"cannot be opened \(Permission denied\)"):
        read_log(tmp_path / "server.log")


def test_a_terminal_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Standard(b"", terminal=True))
    with pytest.raises(InvalidInputError, match="nothing is piped in"):
        read_log("-")


READ_STDIN = """
import sys
from slotune.gathering.log_file import read_log
print("reading", flush=True)
read_log("-")
"""


def test_an_interrupt_ends_the_reading_of_an_endless_pipe() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", READ_STDIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"reading\n"
        process.stdin.write(b"0.09.000.000 I srv  update_slots: all slots are idle\n" * 50_000)
        process.stdin.flush()
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)

    assert time.monotonic() - started < 10
    assert b"KeyboardInterrupt" in errors
    assert process.returncode != 0


LARGE = """
import sys
from pathlib import Path
from slotune.gathering.log_file import read_log
def most_mib():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = most_mib()
(story,) = read_log(Path(sys.argv[1]))
print(story.lines, most_mib() - before)
"""


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    text = SERVED.read_bytes()
    copies = 60_000_000 // len(text)
    work = text[text.index(b"\n", text.index(b"model loaded")) + 1 :]
    with path.open("wb") as file:
        file.write(text)
        for _ in range(copies):
            file.write(work)
    done = subprocess.run([sys.executable, "-c", LARGE, str(path)], stdout=subprocess.PIPE, check=True, text=True)
    lines, grown_mib = map(int, done.stdout.split())

    assert lines > 100_000
    assert grown_mib < 40


FOREIGN = {
    "a job": "my_module: something happened\ninit: ready\nmain: done\n" * 20,
    "nginx beside a worker": '10.0.0.1 - - [now] "GET / HTTP/1.1" 200 5\nworker_main: job 7 done\n' * 9,
    "whisper.cpp": "whisper_init_from_file_with_params_no_state: loading model\nsystem_info: n_threads = 4 / 8\n",
    "llama-bench": "| model | size | params | backend |\nload_tensors: offloaded 33/33 layers to GPU\n".replace(
        "| model | size | params |", "| model                 |     size |  params |"
    ),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_program_whose_lines_only_look_alike_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.log"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match=r"no line of it is llama-server's"):
        read_log(path)


def test_a_router_passes_on_the_lines_of_each_child_which_are_told_apart_by_port(tmp_path: Path) -> None:
    path = tmp_path / "router.log"
    own = "srv  load_models: router mode is on\n"
    path.write_text(
        own + "".join(f"[{port}] {line}\n" for line in SERVED.read_text().splitlines() for port in (41001, 41002))
    )
    plain = tmp_path / "plain.log"
    plain.write_text(SERVED.read_text())
    (alone,) = read_log(plain)
    children = {story.source: story for story in read_log(path) if "port" in story.source}
    assert len(children) == 2
    assert {story.facts.slots for story in children.values()} == {alone.facts.slots}
    assert {story.requests for story in children.values() if story.requests is None} == set()


def test_a_time_and_a_level_in_front_of_each_line_are_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "kept.log"
    path.write_text("".join(f"2026-11-30 04:03:08.123 INFO {line}\n" for line in SERVED.read_text().splitlines()))
    plain = tmp_path / "plain.log"
    plain.write_text(SERVED.read_text())
    (story,), (alone,) = read_log(path), read_log(plain)
    assert story.facts == alone.facts
    assert story.requests is not None
    assert alone.requests is not None
    assert story.requests.requests == alone.requests.requests
