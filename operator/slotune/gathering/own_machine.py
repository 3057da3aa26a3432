"""Memory and processors of a server that listens on this machine: its process is found by its port, and only looked at.

Linux only. Where the process is somebody else's, or in a namespace of its own, nothing is known and nothing is said.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from slotune.load.process_cpu import cpu_look
from slotune.load.process_memory import MemoryLook, memory_look

__all__ = ["look_at_process", "process_behind"]

PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup")
_LISTENS: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_ENGINES: Final = ("llama", "ollama", "koboldcpp")
"""How the programs are called that may hold weights without mapping them."""
_OF_PROCESS: Final = ("stat", "status", "io", "smaps")
_OF_CGROUP: Final = ("memory.max", "memory.current", "memory.stat", "memory.pressure")
_OF_OLD_CGROUP: Final = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
_OF_CPU: Final = ("cpu.max", "cpu.stat")
_OF_OLD_CPU: Final = ("cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.stat")
_MOST_THREADS: Final = 1024


def process_behind(url: str, proc: Path = PROC) -> int | None:
    """Number of the one process that listens on the port of ``url``; None: it is elsewhere, or may not be seen."""
    parts = urlsplit(url)
    if not _is_here(parts.hostname or ""):
        return None
    inodes = set(_inodes(proc, parts.port or (443 if parts.scheme == "https" else 80)))
    owners = [] if not inodes else [pid for pid in _processes(proc) if _holds(proc / str(pid) / "fd", inodes)]
    return owners[0] if len(owners) == 1 else None


def look_at_process(pid: int, proc: Path = PROC, cgroup: Path = CGROUP) -> MemoryLook | None:
    """How it is now; None where that may not be seen, or is of no server that computes."""
    paths = [proc / "uptime", proc / "meminfo", *(proc / str(pid) / name for name in _OF_PROCESS)]
    paths += [*_of_cgroup(pid, proc, cgroup), *_of_processors(pid, proc, cgroup)]
    files = {_shown(path, proc): text for path in paths if (text := _read(path)) is not None}
    if "memory.pressure" not in {Path(path).name for path in files}:
        stalls = _read(proc / "pressure" / "memory")
        files |= {} if stalls is None else {"/proc/pressure/memory": stalls}
    look = memory_look(files)
    if (proc / str(pid) / "cgroup").exists() and cgroup.is_dir():
        look = replace(look, cpu=replace(look.cpu, knows_limit=True))  # groups without the files have no limit
    return look if look.swapped_bytes is not None and _computes(look) else None


def _computes(look: MemoryLook) -> bool:
    """Whether it is the server itself: what listens on a loopback port may also be a tunnel or a proxy."""
    return bool(look.mapped_weights_bytes) or look.name.startswith(_ENGINES)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _inodes(proc: Path, port: int) -> Iterator[str]:
    """Of the sockets that listen on a port, whatever the address."""
    for name in ("tcp", "tcp6"):
        for line in (_read(proc / "net" / name) or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENS and words[1].rpartition(":")[2] == f"{port:04X}":
                yield words[9]


def _processes(proc: Path) -> Iterator[int]:
    try:
        names = [entry.name for entry in proc.iterdir()]
    except OSError:
        return
    yield from (int(name) for name in names if name.isdecimal())


def _holds(folder: Path, inodes: set[str]) -> bool:
    """Whether one of the open files is such a socket."""
    try:
        entries = list(folder.iterdir())
    except OSError:  # it ended meanwhile, or is somebody else's
        return False
    return any((found := _SOCKET.fullmatch(_link(entry))) is not None and found[1] in inodes for entry in entries)


def _link(entry: Path) -> str:
    """Where it leads; empty for a file that was closed meanwhile, as a busy server does all the time."""
    try:
        return os.readlink(entry)
    except OSError:
        return ""


def _of_cgroup(pid: int, proc: Path, cgroup: Path) -> list[Path]:
    for line in (_read(proc / str(pid) / "cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers and (folder := cgroup / path.lstrip("/")) and (folder / "memory.max").exists():
            return [folder / name for name in _OF_CGROUP]
        if "memory" in controllers.split(","):
            return [cgroup / "memory" / path.lstrip("/") / name for name in _OF_OLD_CGROUP]
    return []


def _of_processors(pid: int, proc: Path, cgroup: Path) -> list[Path]:
    """Who used them, how long each thread waited for one, and the limit of the group that has the least."""
    threads = sorted(_processes(proc / str(pid) / "task"))[:_MOST_THREADS]
    schedules = [proc / str(pid) / "task" / str(thread) / "schedstat" for thread in threads]
    stated = [proc / str(pid) / "cmdline", proc / str(pid) / "environ"]
    return [proc / "stat", proc / "self" / "stat", *stated, *schedules, *_limits(pid, proc, cgroup)]


def _limits(pid: int, proc: Path, cgroup: Path) -> list[Path]:
    """Of its own group, or of one above: the kernel holds it to each of them."""
    found: list[tuple[float, int, list[Path]]] = []
    for line in (_read(proc / str(pid) / "cgroup") or "").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        is_old = "cpu" in controllers.split(",")
        if controllers and not is_old:
            continue
        root = cgroup / "cpu" if is_old else cgroup
        for folder in (root / path.lstrip("/"), *(root / path.lstrip("/")).parents):
            paths = [folder / name for name in (_OF_OLD_CPU if is_old else _OF_CPU)]
            files = {str(one): text for one in paths if (text := _read(one)) is not None}
            if (look := cpu_look(files)).knows_limit:
                found.append((math.inf if look.limit_cores is None else look.limit_cores, len(found), paths))
            if folder == root:
                break
    return min(found)[2] if found else []


def _shown(path: Path, proc: Path) -> str:
    """As its path is on a machine whose /proc is where it should be."""
    return f"/proc/{path.relative_to(proc)}" if path.is_relative_to(proc) else str(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
