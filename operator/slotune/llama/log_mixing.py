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
"""Different impossible things; one may be a hole in the log, or how a build is, however often it does so."""
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
        self._impossible: set[str] = set()
        self._first = self._first_before = ""
        self._ages: set[str] = set()
        self._replaced: Mark | None = None
        """How far the process had come that this one replaced."""
        self._loading = self._ready = self._worked = self._slept = False
        self._new_since_ready = self._new_since_slots = True

    @property
    def certain(self) -> bool:
        """Whether this can be no single server."""
        return len(self._impossible) >= ENOUGH

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
            if kind.header:
                self._see_header(kind.header, begins=begins)
        elif mark is Mark.SLEEP:
            self._slept = True
        elif mark is Mark.SLOTS:
            self._note("slots are made twice", not self._new_since_slots)
            self._new_since_slots = False
        elif mark is Mark.READY:
            self._see_ready()
        elif mark is Mark.WORK:
            self._worked = True
            self._note("it works while it loads", stage is Mark.LOADING)

    def _see_header(self, header: str, *, begins: bool) -> None:
        if (age := _AGES.get(header)) is not None:
            self._ages.add(age)
            self._note("its build has two ages", len(self._ages) > 1)
        if not self._first:
            self._first = header
            never_past_headers = begins and self._replaced is Mark.HEADER
            self._note("it starts in another way", never_past_headers and self._first_before not in ("", header))

    def _see_ready(self) -> None:
        again = self._ready and not self._slept
        self._note("it loads again without a sleep", again and self._new_since_ready)
        self._note("it is up twice", self._ready and not self._new_since_ready)
        self._note("it is up again after another was replaced", again and self._replaced is Mark.LOADING)
        self._note("it worked before it was up", self._worked and not self._ready)
        self._note("it is up without loading", not self._loading and self._replaced is Mark.LOADING)
        self._ready, self._new_since_ready, self._slept = True, False, False

    def _note(self, what: str, seen: bool) -> None:
        if seen:
            self._impossible.add(what)
