"""A real server for a test, what tests ask the kernel of it, and how they wait: for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.flags import to_args
from slotune.sandbox.process import HOST, LlamaProcess, new_alias

FAKE = Path(__file__).with_name("fake_llama_server.py")
SMALL = Candidate("q4", "cpu", parallel_slots=2, context_per_slot=512, batch_size=128, ubatch_size=64, threads=2)


def running(pid: int) -> bool:
    """Whether the process exists and has not ended; one that nobody collected yet has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


def until(condition: Callable[[], object], limit_s: float = 20.0) -> None:
    """Return when ``condition`` holds; fail after ``limit_s``."""
    deadline = time.monotonic() + limit_s
    tick = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition never came true"
        tick.wait(0.01)


def engine_process(model: Path, directory: Path, candidate: Candidate, **limits: int) -> LlamaProcess:
    """A real llama.cpp that is what ``candidate`` asks for, once it is entered."""
    alias = new_alias()
    args = to_args(candidate, model_path=str(model), host=HOST, port=0, alias=alias)
    return LlamaProcess(
        find_engine("embedded"),
        args,
        directory=directory,
        alias=alias,
        startup_limit_s=60,
        address_space_bytes=limits.get("address_space_bytes"),
    )
