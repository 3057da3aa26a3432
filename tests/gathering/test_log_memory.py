"""Whatever a log of any length holds, reading it takes little memory, and what a server said in it is found."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SERVED = Path(__file__).parents[1] / "llama" / "logs" / "served_three.log"
LETTERS = "abcdefghijklmnopqrstuvwxyz"

READER = """
import sys
from slotune.gathering.log_file import read_log
def most_mib():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = most_mib()
requests = sum(story.requests.requests for story in read_log("-") if story.requests)
print(requests, most_mib() - before)
"""


def word(number: int) -> str:
    return "".join(LETTERS[number // 26**place % 26] for place in range(4))


def lines(form: Callable[[int], str], count: int) -> Iterator[bytes]:
    for first in range(0, count, 1000):
        yield "".join(f"{form(number)}\n" for number in range(first, first + 1000)).encode()


def noise() -> Iterator[bytes]:
    chance = random.Random(1)
    return (chance.randbytes(1 << 20) for _ in range(10))


LOGS: dict[str, Callable[[], Iterator[bytes]]] = {
    "a line without an end": lambda: (b"x" * (1 << 20) for _ in range(100)),
    "an object without an end": lambda: (b'{"type":"log","msg":"' + b"x" * (1 << 20) for _ in range(100)),
    "NUL bytes": lambda: ((b"\0" * 1000 + b"\n") * 1000 for _ in range(30)),
    "bytes of no text": noise,
    "tasks of many numbers": lambda: lines(
        lambda n: (
            f"0.09.000.000 I slot launch_slot_: id  0 | task {n} | processing task, is_child = 0\n"
            f"0.09.000.000 I slot      release: id  0 | task {n} | stop processing: n_tokens = 9, truncated = 0"
        ),
        100_000,
    ),
    "messages of many words": lambda: lines(lambda n: f"0.09.000.000 I srv  {word(n)}: {word(n * 31)} is", 30_000),
    "objects of many forms": lambda: lines(lambda n: f'{{"log":"x {n}","k{n}":{n},"pod":"p{n}"}}', 100_000),
    "many pods": lambda: lines(lambda n: f"[pod/llama-{n}/server] 0.09.000.000 I srv  init: model loaded", 100_000),
}


@pytest.mark.parametrize("content", LOGS)
def test_memory_does_not_grow_with_what_a_log_holds_behind_a_server(content: str) -> None:
    with subprocess.Popen([sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdin is not None
        reader.stdin.write(SERVED.read_bytes())
        for part in LOGS[content]():
            reader.stdin.write(part)
        out, _ = reader.communicate(timeout=60)

    assert reader.returncode == 0
    requests, grown_mib = map(int, out.split())
    assert requests >= 3
    assert grown_mib < 60
