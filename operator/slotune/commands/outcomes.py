"""Exit codes: what a script learns without reading the text."""

from __future__ import annotations

import enum

from slotune.search.decision import Decision, DecisionKind
from slotune.verdict.verdicts import Outcome

__all__ = ["ExitCode", "exit_code_of"]


class ExitCode(enum.IntEnum):
    """The table of ``slotune --help``."""

    FOUND = 0  # found, or Pass
    LOSES_MONEY = 1  # replay only: something that was recorded is cheaper
    INVALID_INPUT = 2  # nothing was started
    INFEASIBLE = 3  # infeasible, or Fail
    INCONCLUSIVE = 4  # inconclusive, or the budget ended before an answer
    INVALID_MEASUREMENT = 5
    INTERRUPTED = 130  # finished trials are kept


_DECISIONS = {
    DecisionKind.FOUND: ExitCode.FOUND,
    DecisionKind.INFEASIBLE: ExitCode.INFEASIBLE,
    DecisionKind.BUDGET_EXHAUSTED: ExitCode.INCONCLUSIVE,
    DecisionKind.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    DecisionKind.INVALID: ExitCode.INVALID_MEASUREMENT,
}
_VERDICTS = {
    Outcome.PASS: ExitCode.FOUND,
    Outcome.FAIL: ExitCode.INFEASIBLE,
    Outcome.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Outcome.INVALID: ExitCode.INVALID_MEASUREMENT,
}


def exit_code_of(end: Decision | Outcome) -> ExitCode:
    """The code for a decision or a verdict."""
    return _VERDICTS[end] if isinstance(end, Outcome) else _DECISIONS[end.kind]
