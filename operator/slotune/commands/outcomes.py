"""The exit code of a decision or a verdict."""

from __future__ import annotations

from slotune.commands.exit_codes import ExitCode
from slotune.search.decision import Decision, DecisionKind
from slotune.verdict.verdicts import Outcome

__all__ = ["ExitCode", "exit_code_of"]


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
