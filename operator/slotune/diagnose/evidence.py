"""What a finding rests on: the very line, or the very number, and where it was seen."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from slotune.llama.log_story import Line

__all__ = ["LONGEST", "Evidence", "Source", "shortened"]

LONGEST = 300
"""Characters of a quoted line; a server that logs prompts would otherwise print them here."""


def shortened(text: str) -> str:
    """``text``, with a sign at its end where that is cut off."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


class Source(enum.StrEnum):
    """Where something was seen, as people call it."""

    LOG = "log"
    PROPS = "/props"
    SLOTS = "/slots"
    METRICS = "/metrics"
    MODEL = "/v1/models"
    PROBE = "probe"
    FLAGS = "arguments"
    POD = "pod"
    EVENT = "event"
    NODE = "node"
    DEVICE = "device"
    PROC = "/proc"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One line or number."""

    source: Source
    text: str
    """As it was seen, at most :data:`LONGEST` characters: a log line, ``requests_deferred 7``, ``limits.cpu: 2``."""
    line: int | None = None
    """Line of the log, from 1."""

    def __str__(self) -> str:
        where = self.source.value if self.line is None else f"{self.source.value}:{self.line}"
        return f"{where}  {self.text}"

    @classmethod
    def of_line(cls, line: Line) -> Evidence:
        """A line of the log."""
        return cls(Source.LOG, line.text, line.number)

    @classmethod
    def parse(cls, text: str) -> Evidence | None:
        """What was printed, back from its one line; None where it is none."""
        where, gap, said = text.partition("  ")
        name, _, number = where.partition(":")
        known = next((source for source in Source if source.value == name), None)
        if known is None or not gap:
            return None
        return cls(known, said, int(number) if number.isdecimal() else None)
