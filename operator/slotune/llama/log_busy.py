"""How many slots of a server are at work at one time, and whether one is given work while it works."""

from __future__ import annotations

from typing import Final

__all__ = ["MOST_SLOTS", "BusySlots"]

MOST_SLOTS: Final = 1024
"""More than any server has: ids beyond are garbage."""

_MOST_TWICE: Final = 2
_TWICE: Final = 0.005
"""Share of all requests that begin where one still runs, in one slot: a log with holes has less."""


class BusySlots:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._at_work: set[bytes] = set()
        self._others: dict[bytes, int] = {}
        self._twice: dict[bytes, int] = {}
        self._begun = 0
        self.most: int | None = None
        """Most at work at one time; None: none was seen to begin."""

    def begin(self, slot: bytes) -> None:
        """A request gets ``slot``."""
        at_work = self._at_work
        self._begun += 1
        if slot in at_work:
            self._twice[slot] = self._twice.get(slot, 0) + 1
        elif (others := len(at_work)) < MOST_SLOTS:
            self._others[slot] = others
            at_work.add(slot)
            if self.most is None or others >= self.most:
                self.most = others + 1

    def end(self, slot: bytes) -> None:
        """Its request is over."""
        self._at_work.discard(slot)

    def had_others(self, slot: bytes) -> bool:
        """Whether other requests were at work when the last one of ``slot`` was taken up."""
        return bool(self._others.get(slot))

    @property
    def taken_twice(self) -> bool:
        """Whether a slot was often given work while it worked: lines of two servers. A hole in a log does it once."""
        return any(times > _MOST_TWICE and times >= _TWICE * self._begun for times in self._twice.values())
