"""What the tests of the process sandbox ask the kernel, and how they wait: for a condition, with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

FAKE = Path(__file__).with_name("fake_llama_server.py")


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
