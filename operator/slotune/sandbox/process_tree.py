"""What the kernel says about a process and all below it: who they are, how much memory they took, where they listen.

Reads /proc and changes nothing. Where there is no /proc, or it may not be read, the answer is empty or None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["descendants", "listening_ports", "peak_resident_bytes"]

_LISTEN = "0A"
"""State of a listening socket in /proc/net/tcp (TCP_LISTEN, 10)."""


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``, parents before their children; without ``pid`` itself."""
    found: list[int] = []
    for task in _list(Path(f"/proc/{pid}/task")):
        for child in _read(task / "children").split():
            found += [int(child), *descendants(int(child))]
    return found


def peak_resident_bytes(pids: Iterable[int]) -> int | None:
    """Sum of the most memory that each process ever had resident, mapped weights included; None when unknown."""
    peaks = [
        int(line.split()[1]) * 1024
        for pid in pids
        for line in _read(Path(f"/proc/{pid}/status")).splitlines()
        if line.startswith("VmHWM:")
    ]
    return sum(peaks) if peaks else None


def listening_ports(pids: Iterable[int]) -> list[int]:
    """TCP ports on which these processes accept connections, in ascending order.

    Matched through the inodes of their open sockets, so another process on the same port can never be meant.
    """
    ports: set[int] = set()
    for pid in pids:
        inodes = {
            target[len("socket:[") : -1]
            for descriptor in _list(Path(f"/proc/{pid}/fd"))
            if (target := _link(descriptor)).startswith("socket:[")
        }
        for table in ("tcp", "tcp6"):
            for line in _read(Path(f"/proc/{pid}/net/{table}")).splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN and columns[9] in inodes:
                    ports.add(int(columns[1].rsplit(":", 1)[1], 16))
    return sorted(ports)


def _list(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # it ended meanwhile, or is not ours to read
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _link(file: Path) -> str:
    try:
        return os.readlink(file)
    except OSError:
        return ""
