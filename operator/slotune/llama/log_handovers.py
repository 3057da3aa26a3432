"""How long a request that has been given a slot waits until it is at work in it, by the log's own times.

llama-server says which slot it picked, then saves the prompt that the slot held in host memory and loads the best saved
one, and then says that the slot is processing the task. At the default verbosity it does not say what that took, but
both lines have a time. A slot that keeps half of its prompt or more (``f_keep``) is handed over without copies: what
that takes, setting up samplers and a grammar for example, is taken off the others.

Times are read of each until there are very many, then of some of them: a gigabyte of log holds a million.
"""

from __future__ import annotations

from typing import Final

from slotune.llama.log_pieces import seconds_since_start
from slotune.llama.log_story import Line, Seen
from slotune.llama.log_topics import quote

__all__ = ["HandoverTotals"]

_KEPT: Final = b"f_keep = "
_WITHOUT_COPIES: Final = b"0.5"
"""Of what the slot held, as printed, with three decimals: from here on llama-server copies nothing."""


_EACH: Final = 20_000
"""Handovers whose times are all read."""
_ONE_IN: Final = 13
"""Of those after them; no server has as many slots, so it is not always the same ones."""

_Said = tuple[int, bytes]
"""Number of a line, and the line."""


class HandoverTotals:
    """Of one server since its last start."""

    def __init__(self) -> None:
        self._picked: _Said | None = None
        """The last one, until its request is at work."""
        self._handed = 0
        self._count = self._timed = 0
        """Those with copies, and of how many it was read what they took."""
        self._total_s = 0.0
        self._without, self._without_s = 0, 0.0
        """Those without copies that were timed."""
        self._longest_s = -1.0
        self._longest: tuple[_Said, _Said] | None = None

    def pick(self, number: int, line: bytes) -> None:
        """A slot was picked for a request."""
        self._picked = number, line

    def launch(self, number: int, line: bytes, slot: bytes) -> None:
        """A request is at work in ``slot``, of which that is said which follows on ``id ``: three bytes."""
        picked = self._picked
        if picked is None or not picked[1].startswith(slot, picked[1].find(b"id ") + 3):
            return
        self._handed += 1
        if self._handed > _EACH and self._handed % _ONE_IN:
            self._picked = None
            self._count += _is_copied(picked[1])
            return
        began_s, seconds = seconds_since_start(picked[1]), seconds_since_start(line)
        if seconds is None:
            return
        self._picked = None
        if began_s is None or seconds < began_s:
            return  # the pick was another process's
        took_s = seconds - began_s
        if not _is_copied(picked[1]):
            self._without += 1
            self._without_s += took_s
            return
        self._count += 1
        self._timed += 1
        self._total_s += took_s
        if took_s > self._longest_s:
            self._longest_s, self._longest = took_s, (picked, (number, line))

    def story(self) -> Seen | None:
        """How many, what they took in all, and both lines of the longest; None where no line has a time."""
        if self._longest is None:
            return None
        picked, (number, line) = self._longest
        first, last = Line(picked[0], quote(picked[1])), Line(number, quote(line))
        beside_s = self._without_s / self._without if self._without else 0.0
        each_s = max(0.0, self._total_s / self._timed - beside_s)
        return Seen(self._count, first, last, total_ms=round(1e3 * self._count * each_s, 3))


def _is_copied(line: bytes) -> bool:
    """Whether the slot that ``line`` picks is copied for its next request."""
    start = line.find(_KEPT) + len(_KEPT)
    kept = line[start : start + len(_WITHOUT_COPIES)] if start >= len(_KEPT) else b""
    return not _WITHOUT_COPIES <= kept < b":"
