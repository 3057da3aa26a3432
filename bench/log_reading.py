"""How long a server's log of a gigabyte takes to read, and how much memory: whole processes, one for each kind of log.

The lines are those of build 11549 at its default verbosity on a busy server: all but the first are about requests. The
same requests come as keepers of logs have them, from four pods at once, and with debugging on; the target is for each.
Seconds are those of one core: the reader has one thread, and what else runs meanwhile makes it later, not slower.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.table import Table

SIZE = 1_000_000_000
SECONDS_LIMIT = 20.0
"""Of one core."""
MEMORY_LIMIT_MIB = 150

REQUESTS = 20_000
"""Different ones in a log, then the same again."""

CHILD = """
import json, sys, time
from pathlib import Path
started = time.perf_counter()
from slotune.gathering.log_file import read_log
stories = read_log(Path(sys.argv[1]))
(most,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(json.dumps({
    "seconds": time.perf_counter() - started,
    "cpu_s": time.process_time(),
    "mib": int(most) / 1024,
    "servers": len(stories),
    "requests": sum(story.requests.requests for story in stories if story.requests),
    "lines": sum(story.lines for story in stories),
}))
"""

START = """\
0.00.000.341 I srv          init: initializing ...
0.00.002.546 I srv          init: build_info: b11549-0123abc
0.00.005.273 I srv          init: loading model
0.00.005.354 I srv    load_model: loading model '/models/model.gguf'
0.00.462.826 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'false'
0.00.464.786 I srv          init: model loaded
0.00.464.787 I srv          init: listening on http://0.0.0.0:8080
"""


@dataclass(frozen=True, slots=True)
class Reading:
    """One log, read by one process."""

    what: str
    size_bytes: int
    seconds: float
    cpu_s: float
    memory_mib: float
    lines: int
    requests: int
    expected_requests: int


def requests(seed: int, *, debug: bool = False) -> Iterator[str]:
    """The lines of each of many requests, with time stamps that go on."""
    chance = random.Random(seed)
    now_us = 1_000_000
    for task in range(REQUESTS):
        slot, tokens, cached = chance.randrange(4), chance.randrange(1, 4000), chance.randrange(2000)
        predicted = chance.randrange(1, 400)
        prompt_ms, ms = tokens / chance.uniform(0.5, 2), predicted * chance.uniform(8, 20)
        head = f"id  {slot} | task {task} | "
        chosen = f"f_sim_best = {chance.random():.3f} (> 0.100 thold), f_keep = {chance.random():.3f}"
        prompt_speed = f"({prompt_ms / tokens:8.2f} ms per token, {1e3 * tokens / prompt_ms:8.2f} tokens per second)"
        speed = f"({ms / predicted:8.2f} ms per token, {1e3 * predicted / ms:8.2f} tokens per second)"
        length = tokens + cached + predicted - 1
        timing = f"I slot print_timing: {head}"
        lines = [
            f"I slot get_availabl: id  {slot} | task -1 | selected slot by LCP similarity, {chosen}",
            f"I slot launch_slot_: {head}processing task, is_child = 0",
        ]
        if debug:
            lines += [
                f"D slot process_toke: {head}n_gen = {n}, n_remaining = {predicted - n}, next token: {n * 7} '{word}'"
                for n, word in enumerate(chance.choices(WORDS, k=20), start=1)
            ]
        lines += [
            f"{timing}prompt eval time = {prompt_ms:10.2f} ms / {tokens:5d} tokens {prompt_speed}",
            f"{timing}       eval time = {ms:10.2f} ms / {predicted:5d} tokens {speed}",
            f"{timing}      total time = {prompt_ms + ms:10.2f} ms / {tokens + predicted:5d} tokens",
            f"{timing}   graphs reused = {predicted:10d}",
            f"I slot      release: {head}stop processing: n_tokens = {length}, truncated = 0",
        ]
        for line in lines:
            now_us += 1 + chance.randrange(20_000)
            seconds, us = divmod(now_us, 1_000_000)
            yield f"{seconds // 60}.{seconds % 60:02d}.{us // 1000:03d}.{us % 1000:03d} {line}\n"


SYLLABLES = ("ta", "lo", "mi", "sé", "ru", "pen", "gor", "ash", "ki", "du", "vel", "nor", "\\n", " 42")
WORDS = [f" {first}{second}{third}" for first in SYLLABLES for second in SYLLABLES for third in SYLLABLES]
"""2,744 tokens, each of which makes a line of debugging unlike the others."""


def plain() -> bytes:
    """Requests as ``-lv 3`` prints them."""
    return "".join(requests(1)).encode()


def debugging() -> bytes:
    """Requests as ``-lv 5`` prints them, with their tokens."""
    return "".join(requests(1, debug=True)).encode()


def json_lines() -> bytes:
    """Requests under ``--log-jsonl``."""
    documents = (
        {"type": "log", "time": 1000 * number, "level": "info", "msg": f"{line.split(' I ', 1)[1]}"}
        for number, line in enumerate(requests(1))
    )
    return "".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents).encode()


def four_pods() -> bytes:
    """Requests of four pods, as ``kubectl logs --prefix`` mixes them."""
    chance = random.Random(2)
    pods = [
        (f"[pod/llama-7d9f8b6c5-{name}/server] ", requests(seed)) for seed, name in enumerate(("aa", "bb", "cc", "dd"))
    ]
    out = []
    for _ in range(7 * REQUESTS):
        prefix, lines = chance.choice(pods)
        if (line := next(lines, None)) is not None:
            out.append(prefix + line)
    return "".join(out).encode()


def docker() -> bytes:
    """Requests as Docker's own files have them."""
    documents = ({"log": line, "stream": "stderr", "time": _moment(n)} for n, line in enumerate(requests(1)))
    return "".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents).encode()


def containerd() -> bytes:
    """Requests as a node's files have them, in the form of the container runtime interface."""
    return "".join(f"{_moment(n)} stderr F {line}" for n, line in enumerate(requests(1))).encode()


def journald() -> bytes:
    """Requests as ``journalctl`` prints those of a unit."""
    started = datetime(2026, 11, 30, tzinfo=UTC)
    return "".join(
        f"{started + timedelta(seconds=n):%b %d %H:%M:%S} gpu-1 llama-server[1234]: {line}"
        for n, line in enumerate(requests(1))
    ).encode()


def _moment(number: int) -> str:
    return f"{datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=number):%Y-%m-%dT%H:%M:%S}.{number % 10**9:09}Z"


def read(what: str, content: bytes, folder: Path, *, start: str = "") -> Reading:
    """Writes the log, reads it in a process of its own and removes it."""
    path = folder / "server.log"
    copies = max(1, SIZE // len(content))
    with path.open("wb") as file:
        file.write(start.encode())
        for _ in range(copies):
            file.write(content)
    try:
        size = path.stat().st_size
        done = subprocess.run([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, check=True)
    finally:
        path.unlink()
    found = json.loads(done.stdout)
    expected = copies * content.count(b"stop processing")
    return Reading(
        what, size, found["seconds"], found["cpu_s"], found["mib"], found["lines"], found["requests"], expected
    )


def main() -> int:
    """Prints a row for each kind of log; 1 when any misses a target or loses a request."""
    kinds: tuple[tuple[str, Callable[[], bytes], str], ...] = (
        ("plain, -lv 3", plain, START),
        ("JSON lines", json_lines, ""),
        ("Docker's files", docker, ""),
        ("containerd's files", containerd, ""),
        ("journald, short", journald, ""),
        ("four pods, prefixed", four_pods, ""),
        ("plain, -lv 5", debugging, START),
    )
    table = Table("log", "GB", "lines", "seconds", "of a core", "target", "memory, MiB", "target", "requests", "")
    missed = False
    with tempfile.TemporaryDirectory() as scratch:
        for what, content, start in kinds:
            reading = read(what, content(), Path(scratch), start=start)
            whole = reading.requests >= reading.expected_requests - 8  # one whose lines the log's end cut
            quick = reading.cpu_s <= SECONDS_LIMIT and reading.memory_mib <= MEMORY_LIMIT_MIB
            missed = missed or not (whole and quick)
            table.add_row(
                what,
                f"{reading.size_bytes / 1e9:.2f}",
                f"{reading.lines:,}",
                f"{reading.seconds:.1f}",
                f"{reading.cpu_s:.1f}",
                f"{SECONDS_LIMIT:.0f}",
                f"{reading.memory_mib:.0f}",
                f"{MEMORY_LIMIT_MIB}",
                f"{reading.requests:,}",
                "ok" if whole and quick else "MISSED",
            )
    Console(width=120).print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
