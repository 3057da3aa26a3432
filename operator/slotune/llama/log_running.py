"""How fast a request is while it is at work, which builds of 2026 say every three seconds."""

from __future__ import annotations

import re

from slotune.llama.log_story import Line, Running
from slotune.llama.log_topics import quote

__all__ = ["RunningSpeed"]

_READING = re.compile(rb"n_tokens = +(\d{1,15}), .* / +(\d{1,15}\.\d\d) tokens per")
_WRITING = re.compile(rb"n_(?:decoded|gen) = +(\d{1,15}), tg = +(\d{1,15}\.\d\d)")


class RunningSpeed:
    """Of the last request of one server that said it."""

    def __init__(self) -> None:
        self._reading = self._writing = 0.0
        self._tokens = 0
        self._line: Line | None = None

    def take(self, number: int, line: bytes) -> None:
        """Read one line, in the order in which they were written."""
        if match := _READING.search(line):
            self._reading = float(match[2])
        elif match := _WRITING.search(line):
            self._writing = float(match[2])
        else:
            return
        self._tokens, self._line = int(match[1]), Line(number, quote(line))

    def story(self) -> Running | None:
        """How fast the last request was that is not known to have finished; None: no line says so."""
        if self._line is None:
            return None
        return Running(self._reading or None, self._writing or None, self._tokens, self._line)
