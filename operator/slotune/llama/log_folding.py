"""Lines that a terminal broke at its width, as they were before: what is copied from one is often so.

Nearly no line of a log is as long as the longest one, unless something cut them; and what is behind a cut does not
begin as a line does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slotune.llama.log_prefix_pieces import begins, is_stamped

__all__ = ["Folding"]

_WIDTHS: Final = range(40, 400)
"""Characters. Wider terminals hold nearly all lines."""
_LEAST: Final = 4
_SHARE: Final = 0.02
"""Lines of the full width that there must be, and their share of all."""
_MOST: Final = 0.5
"""Share of them behind which a line goes on, from which on they were cut."""


class Folding:
    """Finds out in the beginning of a log whether its lines were cut, and joins them."""

    def __init__(self, sample: bytes) -> None:
        lines = sample.split(b"\n")[:-1]
        lengths = [_length(line) for line in lines]
        self._stamped = sum(map(is_stamped, lines)) * 4 > len(lines)
        self._width = self._width_of(lines, lengths)
        self._held: tuple[bytes, int] | None = None

    @property
    def any(self) -> bool:
        """Whether they were cut."""
        return self._width is not None

    def _width_of(self, lines: Sequence[bytes], lengths: Sequence[int]) -> int | None:
        width = max(lengths, default=0)
        full = [place for place, length in enumerate(lengths[:-1]) if length == width]
        if width not in _WIDTHS or len(full) < max(_LEAST, _SHARE * len(lines)):
            return None
        going_on = sum(self._goes_on(lines[place + 1]) for place in full)
        return width if going_on >= _MOST * len(full) else None

    def _goes_on(self, line: bytes) -> bool:
        if not line.strip() or line.lstrip()[:2] == b'{"':
            return False
        return not (is_stamped(line) if self._stamped else begins(line))

    def join(self, lines: Sequence[bytes], numbers: Sequence[int]) -> tuple[list[bytes], list[int]]:
        """What these lines with these numbers were; what may go on is held back until the next ones or :meth:`rest`."""
        joined, kept = self.rest()
        is_cut = bool(joined)
        for line, number in zip(lines, numbers, strict=True):
            if is_cut and self._goes_on(line):
                joined[-1] += line
            else:
                joined.append(line)
                kept.append(number)
            is_cut = _length(line) == self._width
        if is_cut:
            self._held = joined.pop(), kept.pop()
        return joined, kept

    def rest(self) -> tuple[list[bytes], list[int]]:
        """The line that was held back, if there is one, and its number."""
        held, self._held = self._held, None
        return ([], []) if held is None else ([held[0]], [held[1]])


def _length(line: bytes) -> int:
    """In characters."""
    return len(line) if line.isascii() else len(line.decode(errors="replace"))
