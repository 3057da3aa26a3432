"""Takes apart many lines that are alike at once, by what stands between the text of one and that of the next.

A search for each line costs a call, and one that walks through a text costs its length. Between two texts are the end
of a line and the beginning of the next, which a keeper of logs writes alike: these seams are short, and split all lines
in one go, with the times that are caught in them. A line that is not like its neighbours is looked at on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Apart", "Seams"]


class Apart(NamedTuple):
    """Lines that were taken apart."""

    places: Sequence[int]
    """Where they stand among those that were given, in order."""
    texts: list[bytes]
    groups: list[list[bytes]]
    """What each group of the pattern caught, from left to right: a column for each."""
    rest: Sequence[int]
    """Where the others stand, which the pattern does not match."""


class Seams:
    """What is around the texts of lines that are alike.

    Args:
        head: pattern of what is in front of each text. Neither it nor ``tail`` may match a line end.
        tail: of what is behind it. What it begins with must be in ``unlike``: no text goes on with it.
        unlike: bytes that a text may not have.
    """

    def __init__(self, head: bytes, tail: bytes = b"", *, unlike: bytes = b"") -> None:
        text = rb"([^\n" + re.escape(unlike) + rb"]*)"
        self._line = re.compile(head + text + tail, re.MULTILINE)
        self._seam = re.compile(tail + rb"\n" + head, re.MULTILINE)
        self._in_head, self._in_tail = re.compile(head).groups, re.compile(tail).groups
        self._unlike = [bytes((byte,)) for byte in unlike]

    def any_of(self, lines: Iterable[bytes]) -> bool:
        """Whether one of ``lines`` is of this kind."""
        return any(map(self._line.fullmatch, lines))

    def take_all(self, lines: Sequence[bytes]) -> Apart | None:
        """What each of ``lines`` has between head and tail; None: not all are alike. A line has no line end."""
        texts, groups, _ = self._split(lines)
        if len(texts) != len(lines) or self._has_unlike(b"\n".join(texts)):
            return None
        return Apart(range(len(lines)), texts, groups, ())

    def take_apart(self, lines: Sequence[bytes]) -> Apart:
        """The same of those that are alike."""
        texts, groups, first = self._split(lines)
        if len(texts) == len(lines) and not self._has_unlike(b"\n".join(texts)):
            return Apart(range(len(lines)), texts, groups, ())
        return self._one_by_one(lines, self._alike(first, texts, groups))

    def _split(self, lines: Sequence[bytes]) -> tuple[list[bytes], list[list[bytes]], int]:
        """What is between seams, and what they caught; and the place of the first of it among ``lines``."""
        around = (lines[0], *lines, lines[-1]) if lines else ()  # a seam at both sides of each
        parts = self._seam.split(b"\n".join(around))
        step, in_tail = self._seam.groups + 1, self._in_tail
        heads = [parts[group:-step:step] for group in range(in_tail + 1, step)]
        tails = [parts[step + group :: step] for group in range(1, in_tail + 1)]
        return parts[step:-1:step], heads + tails, parts[0].count(b"\n")

    def _has_unlike(self, text: bytes) -> bool:
        return any(byte in text for byte in self._unlike)

    def _alike(self, place: int, texts: list[bytes], groups: list[list[bytes]]) -> dict[int, tuple[bytes, ...]]:
        """By their place, lines with a seam at both sides and nothing strange in between."""
        found: dict[int, tuple[bytes, ...]] = {}
        for text, *caught in zip(texts, *groups, strict=True):
            if b"\n" in text:
                place += text.count(b"\n")
            elif not self._has_unlike(text):
                found[place] = (text, *caught)
            place += 1
        return found

    def _one_by_one(self, lines: Sequence[bytes], alike: dict[int, tuple[bytes, ...]]) -> Apart:
        text = self._in_head
        rest: list[int] = []
        for place, line in enumerate(lines):
            if place in alike:
                continue
            if match := self._line.fullmatch(line):
                groups = list(match.groups())
                alike[place] = (groups.pop(text), *groups)
            else:
                rest.append(place)
        places = sorted(alike)
        columns = [list(column) for column in zip(*(alike[place] for place in places), strict=True)]
        texts, *found = columns or [[] for _ in range(1 + text + self._in_tail)]
        return Apart(places, texts, found, rest)
