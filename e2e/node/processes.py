"""One process, told apart from a later one that got the same number.

A number alone is not enough: after a crash it may belong to anybody. Number, start time and boot together are unique,
and a process descriptor holds on to the process between looking and killing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessIdentity", "boot_id", "child_of", "identify", "is_alive", "kill"]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process of this boot."""

    pid: int
    started: int
    """Clock ticks between boot and its start: field 22 of ``/proc/PID/stat``."""


def boot_id() -> str:
    """A name for the time since the machine's last start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this number now; None when there is none, or only its exit status is left."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    if fields[0] in "ZX":
        return None
    return ProcessIdentity(pid, int(fields[19]))


def is_alive(process: ProcessIdentity) -> bool:
    """Whether exactly this process still runs."""
    return identify(process.pid) == process


def child_of(pid: int) -> int | None:
    """The number of a process's first child."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def kill(process: ProcessIdentity, limit_s: float = 30.0) -> None:
    """End exactly this process with SIGKILL and wait until it is gone; nothing when it is gone already.

    The first process of a namespace takes all others of it along, and is gone only when they are.

    Raises:
        TimeoutError: it is still there after ``limit_s``.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if not is_alive(process):
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if not select.select([descriptor], [], [], limit_s)[0]:
            raise TimeoutError(f"process {process.pid} is still there {limit_s:g} s after SIGKILL")
    finally:
        os.close(descriptor)
