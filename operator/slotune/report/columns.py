"""Rows of words under fixed columns, one at a time, so that a row can be printed before the next one is known.

A table that measures all of its rows first cannot be printed while trials run, and takes seconds
for thousands of candidates. Words that come from outside lose their control characters here: a
terminal would obey them.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size
from rich.text import Text

__all__ = ["Column", "Columns", "labelled", "printable"]

GAP = "  "
LEAST_TAIL = 30
"""Characters below which the last column moves to a line of its own."""
TAIL_INDENT = 5
NARROWEST = 12
"""Of words in a line, however narrow the terminal says that it is."""
WIDEST_LETTER = 2


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``width`` characters."""

    title: str
    width: int
    right: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """Fixed columns, and a last one without a limit that takes what is left of ``width``."""

    fixed: tuple[Column, ...]
    tail: str
    width: int

    @property
    def _used(self) -> int:
        return sum(column.width for column in self.fixed) + len(GAP) * len(self.fixed)

    @property
    def _beside(self) -> bool:
        return self.width - self._used >= LEAST_TAIL

    def header(self) -> Text:
        """The titles."""
        titles = [column.title for column in self.fixed]
        return self.row(titles, self.tail if self._beside else "", styles=["bold"] * (len(titles) + 1))

    def row(self, cells: Sequence[str], tail: str, *, styles: Sequence[str] = ()) -> Text:
        """One row; cells that are too long go on in the next line. ``styles`` has one for each cell, then the tail."""
        wrapped = [_wrap(cell, column.width) for cell, column in zip(cells, self.fixed, strict=True)]
        marks = [*styles, *[""] * (len(self.fixed) + 1 - len(styles))]
        if self._beside:
            wrapped.append(_wrap(tail, self.width - self._used))
        line = Text()
        for number, parts in enumerate(zip_longest(*wrapped, fillvalue="")):
            line.append("\n" if number else "")
            line.append_text(self._line(parts, marks))
        if not self._beside and tail:
            for part in _wrap(tail, max(NARROWEST, self.width - TAIL_INDENT)):
                line.append(f"\n{' ' * TAIL_INDENT}{part}", marks[-1])
        return line

    def _line(self, parts: Sequence[str], styles: Sequence[str]) -> Text:
        line = Text()
        last = max((index for index, part in enumerate(parts) if part), default=-1)
        for index, (part, style) in enumerate(zip(parts, styles, strict=False)):
            if index > last:
                break
            column = self.fixed[index] if index < len(self.fixed) else None
            line.append(_pad(part, column, more=index < last), style)
            line.append(GAP if index < last else "")
        return line


def labelled(label: str, lines: Sequence[str], *, width: int, label_width: int = 25) -> Text:
    """``label`` on the left, ``lines`` wrapped beside it; no line is longer than ``width``, where a word fits."""
    wrapped = [part for line in lines for part in _wrap(line, max(NARROWEST, width - label_width))] or [""]
    text = Text()
    for number, part in enumerate(wrapped):
        text.append("\n" if number else "")
        text.append(f"{'' if number else label:<{label_width}}" if part or number == 0 else "", "bold")
        text.append(part)
    return text


def printable(words: str) -> str:
    """The words on one line, without anything that a terminal would obey."""
    return "".join(" " if c in "\n\t\r" else c for c in words if c in "\n\t\r" or unicodedata.category(c)[0] != "C")


def _wrap(words: str, width: int) -> list[str]:
    shown, width = printable(words), max(width, 1)
    if shown.isascii() or all(cell_len(letter) == 1 for letter in shown):
        return textwrap.wrap(shown, width, break_on_hyphens=False) or [""]
    return _wrap_cells(shown.split(), max(width, WIDEST_LETTER))


def _wrap_cells(words: Sequence[str], width: int) -> list[str]:
    """The same for letters that take two places of a terminal, or none: a mark stays with its letter."""
    lines = [""]
    for word in words:
        if lines[-1] and cell_len(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if cell_len(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def _pad(part: str, column: Column | None, *, more: bool) -> str:
    if column is None:
        return part
    if column.right:
        return " " * max(0, column.width - cell_len(part)) + part
    return set_cell_size(part, column.width) if more else part
