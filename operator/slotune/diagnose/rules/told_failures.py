"""How a server's end is told: the line that says it, and what its sentence says to do."""

from __future__ import annotations

from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.llama.failure_words import in_flags
from slotune.llama.failures import Failure
from slotune.llama.log_story import Line

__all__ = ["cure_of", "quoted_end"]


def quoted_end(failure: Failure, line: Line | None) -> Evidence:
    """The line of the log that says so; where none does, what all of them come to."""
    return Evidence(Source.LOG, in_flags(failure.sentence)[:LONGEST]) if line is None else Evidence.of_line(line)


def cure_of(sentence: str) -> str | None:
    """What a failure's sentence says to do, as a sentence of its own."""
    _, found, cure = sentence.rpartition(": ")
    return f"{cure[:1].upper()}{cure[1:]}." if found else None
