"""Whether a log holds the lines of two servers between each other: then its sums are of none.

One process says its marks in one order: headers, that it loads, its slots, that it is up, then work. A process that
replaces another begins anew, one that slept loads again. What no single server does is counted here; two such things
are more than a hole in a log explains. That a slot gets work while it works, and a clock that goes back and forth, are
counted where slots and clocks are.
"""

from __future__ import annotations

from typing import Final

from slotune.llama.log_topics import LineKind, Mark

__all__ = ["MIXED", "MOST_TURNS", "Mixing"]

ENOUGH: Final = 2
"""Impossible things; one may be a hole in the log."""
MOST_TURNS: Final = 2
"""Times that a server's own clock may go back and return without a start."""

_AGES: Final = {"old_build": "2024", "build": "2025", "build_info": "2026", "engine": "2026"}
"""Headers that name the build: a process says it in the words of one age."""

MIXED: Final = (
    "the lines of two servers or more are mixed in it (or each line is there twice), so nothing of it was judged: keep "
    "a file for each server, or take `kubectl logs --prefix -l …`, whose lines can be told apart"
)
"""What is said of such a log."""


class Mixing:
    """Follows the marks of what should be one server."""

    def __init__(self) -> None:
        self._impossible = 0
        self._first = self._first_before = ""
        self._ages: set[str] = set()
        self._replaced: Mark | None = None
        """How far the process had come that this one replaced."""
        self._loading = self._ready = self._worked = False
        self._new_since_ready = self._new_since_slots = True
        self._woken = self._early_work = self._slept = False

    @property
    def certain(self) -> bool:
        """Whether this can be no single server."""
        return self._impossible >= ENOUGH

    def see(self, kind: LineKind, stage: Mark | None, *, begins: bool) -> None:
        """Take the next line with a mark, with how far the process had come, and whether the line is of a new one."""
        mark = kind.mark
        if begins:
            self._replaced, self._first_before, self._first = stage, self._first, ""
            self._loading = self._ready = self._worked = False
            self._ages.clear()
        if mark in (Mark.HEADER, Mark.EARLY, Mark.DEVICE, Mark.LOADING):
            self._new_since_ready = self._new_since_slots = True
            self._loading = self._loading or mark is Mark.LOADING
            if (age := _AGES.get(kind.header)) is not None and age not in self._ages:
                self._impossible += bool(self._ages)
                self._ages.add(age)
            if kind.header and not self._first:
                self._first = kind.header
                other = self._first_before not in ("", kind.header)
                self._impossible += begins and self._replaced is Mark.HEADER and other  # it never got past headers
        elif mark is Mark.SLEEP:
            self._slept = True
        elif mark is Mark.SLOTS:
            self._impossible += not self._new_since_slots
            self._new_since_slots = False
        elif mark is Mark.READY:
            self._see_ready()
        elif mark is Mark.WORK:
            self._worked = True
            if stage is Mark.LOADING and not self._early_work:
                self._impossible += 1
                self._early_work = True

    def _see_ready(self) -> None:
        if self._ready and self._new_since_ready and not self._slept and not self._woken:
            self._woken = True  # a build might sleep without a word: that counts once, however often it does
            self._impossible += 1
        self._impossible += self._ready and not self._new_since_ready
        self._impossible += self._ready and not self._slept and self._replaced is Mark.LOADING
        self._impossible += self._worked and not self._ready
        self._impossible += not self._loading and self._replaced is Mark.LOADING
        self._ready, self._new_since_ready, self._slept = True, False, False
