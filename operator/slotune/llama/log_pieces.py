"""Pieces of a log, the bounded excerpts that are kept of it, and the time that it spans."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Clock", "Excerpt", "Piece", "seconds_since_start"]

LONG_LINE: Final = 4 << 10
"""Bytes of one line that an excerpt keeps."""

_RELATIVE = re.compile(rb"(\d{1,9}\.\d\d\.\d{3}\.\d{3}) ")
"""Minutes, seconds, milli- and microseconds since the process began."""
_OLD_STAMP = re.compile(rb" timestamp=(\d{10})\b")
"""Seconds since 1970, in lines of builds until September 2024."""
_OWN_CLOCK: Final = 1e8
"""Seconds: what is less is no date, but since the process began."""
_SAMPLES: Final = 64
"""Lines of a piece whose time is looked at."""
_BACK_S: Final = 1.0
"""Seconds by which lines of one process never go back: its threads write within milliseconds of each other."""
_STAMPS_WITHIN: Final = 200
"""Lines at either end of a piece that are searched for a time stamp."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive lines of one server."""

    lines: Sequence[bytes]
    shapes: Sequence[bytes]
    numbers: Sequence[int]
    stamps: Sequence[float | None] | None
    """Seconds that whoever kept the log wrote beside each line."""

    def part(self, start: int, end: int) -> Piece:
        """Lines from ``start`` to before ``end``."""
        if start == 0 and end == len(self.lines):
            return self
        stamps = None if self.stamps is None else self.stamps[start:end]
        return Piece(self.lines[start:end], self.shapes[start:end], self.numbers[start:end], stamps)


class Excerpt:
    """The first lines of something, up to so many bytes, and of the rest the last lines, up to so many."""

    def __init__(self, first_bytes: int, last_bytes: int) -> None:
        self._room, self._last_bytes = first_bytes, last_bytes
        self._first: list[tuple[int, bytes]] = []
        self._last: deque[tuple[int, bytes]] = deque()
        self._size = 0

    def add(self, piece: Piece) -> None:
        """Take the next lines."""
        index = 0
        while self._room > 0 and index < len(piece.lines):
            line = piece.lines[index][:LONG_LINE]
            self._first.append((piece.numbers[index], line))
            self._room -= len(line) + 1
            index += 1
        recent: list[tuple[int, bytes]] = []
        size = 0
        for place in range(len(piece.lines) - 1, index - 1, -1):
            line = piece.lines[place][:LONG_LINE]
            size += len(line) + 1
            recent.append((piece.numbers[place], line))
            if size > self._last_bytes:
                break
        self._last.extend(reversed(recent))
        self._size += size
        while self._size > self._last_bytes:
            self._size -= len(self._last.popleft()[1]) + 1

    def lines(self) -> list[tuple[int, bytes]]:
        """Number and text of each line that was kept."""
        return [*self._first, *self._last]


class Clock:
    """First and last time of lines: that of the log's keeper where there is one, else the server's own."""

    def __init__(self) -> None:
        self._outer: tuple[float, float] | None = None
        self._inner: tuple[float, float] | None = None
        self._latest = 0.0
        self._is_back = False
        self.turns = 0
        """How often the server's own clock went back and came again within a piece: with one server, never."""

    def look(self, piece: Piece) -> None:
        """Take the times of the next lines."""
        if piece.stamps is not None:
            self._outer = _span(self._outer, piece.stamps, reversed(piece.stamps))
        head, tail = piece.lines[:_STAMPS_WITHIN], piece.lines[-_STAMPS_WITHIN:]
        self._inner = _span(self._inner, map(_relative, head), map(_relative, reversed(tail)))
        step = max(1, len(piece.lines) // _SAMPLES)
        own = piece.stamps is not None and next((stamp for stamp in piece.stamps if stamp), _OWN_CLOCK) < _OWN_CLOCK
        sampled = piece.stamps[::step] if own and piece.stamps is not None else map(_relative, piece.lines[::step])
        self._latest, self._is_back = 0.0, False
        for seconds in sampled:
            if seconds is not None:
                self._turn(seconds)

    def _turn(self, seconds: float) -> None:
        if seconds >= self._latest:
            self.turns += self._is_back
            self._latest, self._is_back = seconds, False
        elif seconds < self._latest - _BACK_S:
            self._is_back = True

    @property
    def latest(self) -> float | None:
        """What the server's own clock said last, in seconds since 1970 or since its start."""
        return None if self._inner is None else self._inner[1]

    @property
    def seconds(self) -> float | None:
        """From the first to the last; None without times."""
        span = self._outer or self._inner
        return None if span is None else round(max(0.0, span[1] - span[0]), 6)


def _span(
    before: tuple[float, float] | None, forwards: Iterable[float | None], backwards: Iterable[float | None]
) -> tuple[float, float] | None:
    last = next((stamp for stamp in backwards if stamp is not None), None)
    if last is None:
        return before
    if before is not None:
        return before[0], last
    first = next((stamp for stamp in forwards if stamp is not None), last)
    return first, last


def _relative(line: bytes) -> float | None:
    own = seconds_since_start(line)
    if own is None:
        old = _OLD_STAMP.search(line) if b" timestamp=" in line else None
        return None if old is None else float(old[1])
    return own


def seconds_since_start(line: bytes) -> float | None:
    """Of the process that wrote ``line``, where it has its own time in front."""
    match = _RELATIVE.match(line)
    if match is None:
        return None
    digits = int(match[1].replace(b".", b""))
    return (digits if digits < 10**8 else digits % 10**8 + digits // 10**8 * 60_000_000) / 1e6
