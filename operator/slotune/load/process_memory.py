"""What Linux says of a process's memory: how much lies in swap, what of its mapped weights is there, what it waits for.

Read from the text of files below /proc and /sys/fs/cgroup, given by path, whoever brought them. A field that nobody
showed, or that makes no sense, is None. Formats: proc(5), and the kernel's cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slotune.load.process_cpu import TICKS_PER_S, CPULook, cpu_look

__all__ = ["MemoryLook", "memory_look"]

KIB: Final = 1024
PAGE_BYTES: Final = 4096
"""Of the counters that count pages, on nearly every machine; where pages are larger they count too little."""
_WITHOUT_LIMIT: Final = 2**60
"""Bytes from which a limit of version 1 means none: it is the largest number of pages."""
_OTHERS: Final = re.compile(r"^/proc/(?:stat|self/stat|pressure/cpu|\d+/task/.*)$")
"""Files that share their name with one of the process, and are of the machine, of who looks, or of a thread."""
_WEIGHTS: Final = re.compile(r"\.gguf(?: \(deleted\))?$")
_MAPPING: Final = re.compile(r"[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ \S+ \d+ *(.*)")
_LARGE_FILE: Final = 256 * 2**20
"""A mapped file of this size that is no library is weights, whatever it is called."""


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """One process at one moment. Counters count from its start, or from that of its container."""

    name: str = ""
    """Of the program, cut to 15 characters as the kernel does."""
    at_s: float | None = None
    """Seconds since the machine started."""
    resident_bytes: int | None = None
    anonymous_bytes: int | None = None
    """In memory, and of no file: caches, buffers, weights that were read whole."""
    swapped_bytes: int | None = None
    mapped_weights_bytes: int | None = None
    """Of weight files that it maps; 0 when it maps none; None when its mappings were not to be seen."""
    resident_weights_bytes: int | None = None
    """The part of them that is in memory and in its page table."""
    major_faults: int | None = None
    """Pages that it had to wait for, because they came from a disk, a share or swap."""
    read_bytes: int | None = None
    """What was fetched from disks for it, page faults and what was read ahead of them too; of some shares nothing."""
    cpu_s: float | None = None
    limit_bytes: int | None = None
    """Of its container; None where there is none, or nobody says."""
    used_bytes: int | None = None
    """Of that limit, page cache and all."""
    refault_bytes: int | None = None
    """Pages of files that were dropped, and read again soon after."""
    stalled_percent: float | None = None
    """Of the last ten seconds, in which everything in the container (else on the machine) waited for memory."""
    machine_bytes: int | None = None
    cpu: CPULook = field(default_factory=CPULook)
    """What it had of the processors."""


def memory_look(files: Mapping[str, str]) -> MemoryLook:
    """The look that the text of some files, by path, comes to."""
    by_name = {_name(path): text for path, text in files.items() if not _OTHERS.search(path)}
    status = _fields(by_name.get("status", ""))
    faults, cpu_s = _stat(by_name.get("stat", ""))
    weights = _weights(by_name["smaps"]) if by_name.get("smaps") else (None, None)
    limit = _number(by_name.get("memory.max") or by_name.get("memory.limit_in_bytes"))
    counters = by_name.get("memory.stat", "")
    pressure = by_name.get("memory.pressure") or by_name.get("memory") or ""
    return MemoryLook(
        name=status.get("Name", ""),
        at_s=_decimal(by_name.get("uptime", "")),
        resident_bytes=_kib(status.get("VmRSS")),
        anonymous_bytes=_kib(status.get("RssAnon")),
        swapped_bytes=_kib(status.get("VmSwap")),
        mapped_weights_bytes=weights[0],
        resident_weights_bytes=weights[1],
        major_faults=faults,
        read_bytes=_number(_fields(by_name.get("io", "")).get("read_bytes")),
        cpu_s=cpu_s,
        limit_bytes=None if limit is None or limit >= _WITHOUT_LIMIT else limit,
        used_bytes=_number(by_name.get("memory.current") or by_name.get("memory.usage_in_bytes")),
        refault_bytes=_refaults(counters),
        stalled_percent=_stalled(pressure),
        machine_bytes=_kib(_fields(by_name.get("meminfo", "")).get("MemTotal")),
        cpu=cpu_look(files),
    )


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _fields(text: str) -> dict[str, str]:
    """``Name:  value`` by name, as status and meminfo have them."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _kib(text: str | None) -> int | None:
    found = re.fullmatch(r"(\d{1,15}) kB", text or "")
    return None if found is None else int(found[1]) * KIB


def _number(text: str | None) -> int | None:
    found = re.fullmatch(r"\s*(\d{1,20})\s*", text or "")
    return None if found is None else int(found[1])


def _decimal(text: str) -> float | None:
    found = re.match(r"\s*(\d{1,12}\.\d+)", text)
    return None if found is None else float(found[1])


def _stat(text: str) -> tuple[int | None, float | None]:
    """(Major faults, seconds of all its threads on a CPU); its name may hold blanks and brackets."""
    words = text.rpartition(") ")[2].split()
    if len(words) < 13 or not all(words[index].isdecimal() for index in (9, 11, 12)):
        return None, None
    return int(words[9]), (int(words[11]) + int(words[12])) / TICKS_PER_S


def _weights(text: str) -> tuple[int, int]:
    """(Bytes of weight files that are mapped, bytes of them in memory)."""
    mapped = resident = 0
    path, size = "", 0
    for line in text.splitlines():
        if (header := _MAPPING.fullmatch(line)) is not None:
            path, size = header[1], 0
        elif line.startswith("Size:"):
            size = _kib(line.partition(":")[2].strip()) or 0
        elif line.startswith("Rss:") and _is_weights(path, size):
            mapped += size
            resident += _kib(line.partition(":")[2].strip()) or 0
    return mapped, resident


def _is_weights(path: str, size: int) -> bool:
    if _WEIGHTS.search(path):
        return True
    is_file = path.startswith("/") and not path.startswith(("/dev/", "/memfd:", "/SYSV", "/anon_hugepage"))
    return is_file and size >= _LARGE_FILE and ".so" not in path


def _refaults(text: str) -> int | None:
    found = re.search(r"^workingset_refault(?:_file)? (\d{1,18})$", text, re.MULTILINE)
    return None if found is None else int(found[1]) * PAGE_BYTES


def _stalled(text: str) -> float | None:
    found = re.search(r"^full avg10=(\d{1,3}\.\d+)", text, re.MULTILINE)
    return None if found is None else float(found[1])
