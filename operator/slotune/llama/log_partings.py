"""Where a prompt parts from the one that its slot holds, and whether a time or an id does it.

With the variable LLAMA_SERVER_SLOTS_DEBUG=1 llama-server writes the tokens around that place, in two lines: ``old: ...
at 12:0 | 3:45`` and ``new: ... at 12:0 | 4:10``; how many, LLAMA_SERVER_SLOTS_N_DIFF says (ggml-org/llama.cpp#27600).
They are words of prompts, so they are looked at and never kept.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.llama.log_story import Line, Partings
from slotune.llama.log_topics import quote

__all__ = ["PartingTotals"]

_SIDE = re.compile(rb"^(.*?id +(\d{1,4}) \|.*?\| )(old|new): \.\.\. (.*?) \| (.*)$", re.DOTALL)
_CHANGING: Final = tuple(
    re.compile(words)
    for words in (
        rb"\d{1,2}:\d{2}(?::\d{2})?",  # a time of day
        rb"(?<!\d)1[5-9]\d{8}(?:\d{3})?(?!\d)",  # seconds or milliseconds since 1970
        rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}",  # the beginning of a UUID
    )
)
"""What is another in each request, and tells nothing about its question."""
_MOST_SLOTS: Final = 1024


class PartingTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._old: dict[bytes, tuple[bytes, bytes]] = {}
        self._count = self._changing = 0
        self._line: Line | None = None

    def take(self, number: int, line: bytes) -> None:
        """Look at one line, in the order in which they were written."""
        match = _SIDE.match(line)
        if match is None:
            return  # with a line's end in it
        head, slot, side, before, after = match.groups()
        if side == b"old":
            if slot in self._old or len(self._old) < _MOST_SLOTS:
                self._old[slot] = before, after
            return
        old = self._old.pop(slot, None)
        if old is None:
            return
        self._count += 1
        if _both_change(old, (before, after)):
            self._changing += 1
            self._line = Line(number, f"{quote(head)} new: … (a time or an id differs from the old one)")

    def story(self) -> Partings | None:
        """None where no line says anything of it."""
        return Partings(self._count, self._changing, self._line) if self._count else None


def _both_change(old: tuple[bytes, bytes], new: tuple[bytes, bytes]) -> bool:
    """Whether both have something of one kind at the place where they part, and not the same."""
    return any(
        (one := _at_border(words, *old)) is not None and (two := _at_border(words, *new)) is not None and one != two
        for words in _CHANGING
    )


def _at_border(words: re.Pattern[bytes], before: bytes, after: bytes) -> bytes | None:
    found = words.finditer(before + after)
    return next((match[0] for match in found if match.start() <= len(before) < match.end()), None)
