"""What the memory of a server's process was like, at one or two moments: differences say what happens now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.load.process_memory import MemoryLook

__all__ = ["HostFacts"]

AT_WORK: Final = 0.2
"""CPU seconds a second from which a server works; idle it takes a hundredth."""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Of one process."""

    first: MemoryLook
    later: MemoryLook | None = None
    """Of the same process, some time after ``first``."""

    @property
    def last(self) -> MemoryLook:
        """The newest look."""
        return self.first if self.later is None else self.later

    @property
    def between_s(self) -> float | None:
        """Seconds between the looks; None with one alone."""
        if self.later is None or self.first.at_s is None or self.later.at_s is None:
            return None
        return self.later.at_s - self.first.at_s or None

    @property
    def faults_per_s(self) -> float | None:
        """Pages a second that it waited for."""
        return self._rate(self.first.major_faults, self.last.major_faults)

    @property
    def reads_per_s(self) -> float | None:
        """Bytes a second that were fetched from disks for it."""
        return self._rate(self.first.read_bytes, self.last.read_bytes)

    @property
    def refaults_per_s(self) -> float | None:
        """Bytes a second of files that were dropped before and read again, by all in its container."""
        return self._rate(self.first.refault_bytes, self.last.refault_bytes)

    @property
    def was_at_work(self) -> bool | None:
        """Whether it computed between the looks."""
        busy = self._rate(self.first.cpu_s, self.last.cpu_s)
        return None if busy is None else busy >= AT_WORK

    def _rate(self, before: float | None, after: float | None) -> float | None:
        if self.between_s is None or before is None or after is None or after < before:
            return None
        return (after - before) / self.between_s
