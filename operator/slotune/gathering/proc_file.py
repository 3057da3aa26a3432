"""What /proc and the cgroup say of a server's memory, from a file that somebody brought from where it runs.

``grep -s ""`` over several files prints each line behind the path of its file, so one output says all, and which is
which. Printed twice, it says what happened in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from slotune.diagnose.host import HostFacts
from slotune.gathering.brought_file import text_of_file
from slotune.load.process_memory import MemoryLook, memory_look
from slotune.tuning.errors import InvalidInputError

__all__ = ["read_proc_file"]

FLAG: Final = "--proc"
SMALLEST_BYTES: Final = 32 * 2**20
"""No server is smaller: the program with its libraries takes that much."""
_LINE: Final = re.compile(r"(/(?:proc|sys/fs/cgroup)/[\w./-]+):(.*)")
_OTHERS: Final = frozenset({"sh", "bash", "ash", "dash", "tini", "dumb-init", "catatonit", "pause", "s6-svscan"})
"""What starts a server, and is none."""
_CURE: Final = "take it with the command of docs/diagnosis.md: grep -s '' /proc/uptime /proc/PID/status and so on"


def read_proc_file(path: Path) -> HostFacts:
    """The first and the last look of a file.

    Raises:
        InvalidInputError: the file can't be read, is something else, or is of a process that is no server.
    """
    looks = [memory_look(files) for files in _looks(text_of_file(path, FLAG))]
    if not looks:
        raise InvalidInputError(FLAG, path, f"holds no line such as /proc/1/status:VmSwap: 0 kB: {_CURE}")
    for look in looks:
        if look.name in _OTHERS:
            cure = f"is of the process {look.name!r}, which only starts the server: take that of llama-server's own PID"
            raise InvalidInputError(FLAG, path, cure)
        if not look.mapped_weights_bytes and look.resident_bytes is not None and _size(look) < SMALLEST_BYTES:
            size = f"{_size(look) / 2**20:.0f} MiB"
            cure = f"is of a process of {size}, no server with a model: take that of the server itself"
            raise InvalidInputError(FLAG, path, cure)
        if look.swapped_bytes is None and look.major_faults is None:
            raise InvalidInputError(FLAG, path, f"says nothing of a process (VmSwap of /proc/PID/status): {_CURE}")
    if len({look.name for look in looks if look.name}) > 1:
        raise InvalidInputError(FLAG, path, "is of several processes: take that of one server")
    return HostFacts(looks[0], looks[-1] if _is_later(looks[0], looks[-1]) else None)


def _size(look: MemoryLook) -> int:
    return (look.resident_bytes or 0) + (look.swapped_bytes or 0)


def _is_later(first: MemoryLook, last: MemoryLook) -> bool:
    return first.at_s is not None and last.at_s is not None and last.at_s > first.at_s


def _looks(text: str) -> Iterator[dict[str, str]]:
    """The text of each file, by its path, of one look after the other: a file that comes again begins the next."""
    found: dict[str, list[str]] = {}
    last = ""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        path = match[1]
        if path != last and path in found:
            yield {name: "\n".join(lines) for name, lines in found.items()}
            found = {}
        found.setdefault(path, []).append(match[2])
        last = path
    if found:
        yield {name: "\n".join(lines) for name, lines in found.items()}
