"""``slotune tune`` as a process of its own, and the servers that it starts."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 60


def slotune(*args: object) -> list[str]:
    return [sys.executable, "-m", "slotune.cli", *map(str, args)]


def tune_command(tmp_path: Path, file: Path, *more: object) -> list[str]:
    return slotune(
        "tune", "-f", file, "--models-dir", tmp_path, "--engine", "embedded", "--out", tmp_path / "out", *more
    )


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def trials_on_disk(tmp_path: Path) -> int:
    path = tmp_path / "out" / "trials.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not (last := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s in vain until {what}: at last it was {last!r}"
        time.sleep(0.05)  # between two looks, bounded by the deadline


def servers_below(directory: Path) -> list[int]:
    """Processes whose command line names a model below ``directory``."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.startswith(str(directory).encode()) and word.endswith(b".gguf") for word in words):
                found.append(int(process.name))
    return found
