"""Exit codes: what a script learns without reading the text."""

from __future__ import annotations

import enum

__all__ = ["ExitCode"]


class ExitCode(enum.IntEnum):
    """The table of ``slotune --help``."""

    FOUND = 0  # found, or Pass
    LOSES_MONEY = 1  # replay only: something that was recorded is cheaper, or the answer breaks the promise
    INVALID_INPUT = 2  # nothing was started
    INFEASIBLE = 3  # infeasible, or Fail
    INCONCLUSIVE = 4  # inconclusive, or the budget ended before an answer
    INVALID_MEASUREMENT = 5
    INTERRUPTED = 130  # finished trials are kept
