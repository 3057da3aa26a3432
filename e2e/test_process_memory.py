"""What Linux says of a real engine's memory decides: in good health it is clear; a limit below its mapped weights, or
pages in swap, are found first."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from e2e.engines import Diagnosis, Running, diagnose, running, text_of
from e2e.models import WEIGHTS
from slotune.gathering.own_machine import process_behind

pytestmark = pytest.mark.engine

PAGE = Path(__file__).resolve().parents[1] / "docs" / "diagnosis.md"
FLAGS = ("--threads", "1", "--threads-batch", "1", "-np", "1", "-c", "512", "-lv", "4", "--cache-ram", "0")
MIB = 2**20


def printed(pid: int) -> str:
    """What the command of the page prints of a process, with a second between its looks."""
    (command,) = re.findall(r"```sh\n(for n in 1 2;.*?)```", PAGE.read_text(), re.DOTALL)
    script = command.replace("PID", str(pid)).replace("sleep 5", "sleep 1").replace("> proc.txt", "")
    text = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False).stdout
    return re.sub(r"^/sys/fs/cgroup/.*\n", "", text, flags=re.MULTILINE)  # of the machine of this test


async def judged(server: Running, folder: Path, text: str) -> Diagnosis:
    path = folder / "proc.txt"
    path.write_text(text)
    return await diagnose("--log", str(server.log_path), "--proc", str(path))


def last(pattern: str, text: str, by: str) -> str:
    """``text`` with the last match replaced."""
    match = list(re.finditer(pattern, text, re.MULTILINE))[-1]
    return text[: match.start()] + by + text[match.end() :]


async def test_the_kernel_decides_whether_a_server_waits_for_its_memory(weights: Path, tmp_path: Path) -> None:
    model = weights / WEIGHTS["F16"]
    async with (
        running(model, tmp_path, *FLAGS) as server,
        server.used_by(1, lambda user, turn: text_of(10, (user, turn)), 12),
    ):
        here = await diagnose("--url", server.url, "--log", str(server.log_path))
        pid = process_behind(server.url)
        assert pid is not None
        text = await asyncio.to_thread(printed, pid)
        healthy = await judged(server, tmp_path, text)
        half = model.stat().st_size // 2
        squeezed = text + f"/sys/fs/cgroup/memory.max:{half}\n"
        few = await judged(server, tmp_path, squeezed)
        read = last(r"read_bytes: \d+$", squeezed, f"read_bytes: {10**12}")
        again = await judged(server, tmp_path, read)
        swapped = last(r"VmSwap:.*$", text, f"VmSwap:\t  {900 * 1024} kB")
        swap = await judged(server, tmp_path, last(r"read_bytes: \d+$", swapped, f"read_bytes: {10**12}"))
    for found in (here, healthy):
        (memory,) = [one for one in found.document["servers"][0]["checklist"] if one["item"] == "Memory"]
        assert "nothing of the server lies in swap" in memory["clear"]
        assert "while it worked it read none of its weights again" in memory["clear"]
        assert found.alarms == []
    assert again.ids[:1] == ["SLT038"]
    assert again.findings[0]["confidence"] == "Certain"
    assert "MiB a second of its weights" in again.sentence
    assert swap.ids[:1] == ["SLT037"]
    assert "SLT038" not in few.ids, "it was watched, and waited for nothing"


async def test_weights_that_are_dropped_from_the_page_cache_are_found_first(weights: Path, tmp_path: Path) -> None:
    async with (
        running(weights / WEIGHTS["F16"], tmp_path, *FLAGS) as server,
        server.used_by(1, lambda user, turn: text_of(4, (user, turn)), 4),
    ):
        pid = process_behind(server.url)
        assert pid is not None
        over = asyncio.Event()

        async def drop() -> None:
            while not over.is_set():
                _drop_weights(pid)
                await asyncio.sleep(0.1)

        dropping = asyncio.create_task(drop())
        try:
            found = await diagnose("--url", server.url, "--log", str(server.log_path))
        finally:
            over.set()
            await dropping
    assert found.ids[:1] == ["SLT038"]
    assert "MiB a second of" in found.sentence


class _Range(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_PIDFD_OPEN, _PROCESS_MADVISE, _PAGEOUT = 434, 440, 21
"""System calls and an advice of Linux 5.10 and later, on all but the oldest architectures."""


def _drop_weights(pid: int) -> None:
    """Do to a process's mapped weights what the kernel does when memory is short: pages go, and are read again."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.syscall(_PIDFD_OPEN, pid, 0)
    if handle == -1:
        pytest.skip(f"another process can't be advised here: {os.strerror(ctypes.get_errno())}")
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(".gguf"):
                begin, end = (int(one, 16) for one in line.split(" ", 1)[0].split("-"))
                part = _Range(begin, end - begin)
                if libc.syscall(_PROCESS_MADVISE, handle, ctypes.byref(part), 1, _PAGEOUT, 0) == -1:
                    pytest.skip(f"pages of another process can't be dropped here: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(handle)
