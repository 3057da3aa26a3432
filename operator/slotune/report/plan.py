"""What a search would do, before it does anything: every candidate, what it takes at least, and why it is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from slotune.llama.candidate import Candidate
from slotune.report.columns import Column, Columns
from slotune.report.figures import MISSING, count, duration, money, plural, size
from slotune.report.labels import candidate_label
from slotune.report.reasons import code_in_words
from slotune.report.standing import cost_of, currency_of
from slotune.search.problem import Problem

__all__ = ["PlanRow", "plan_line", "plan_table"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One candidate before any trial."""

    candidate: Candidate
    memory_bytes: int | None
    """Predicted; None when it can't be predicted."""
    replicas_lower_bound: int | None
    """Fewest replicas that are not ruled out; None when nothing bounds it or it is pruned."""
    pruned: str | None = None
    """Why it is never started; None when it may be tried."""
    code: str = ""
    """CamelCase of the reason, to count by; may be empty."""


def plan_line(problem: Problem, rows: Sequence[PlanRow], *, usually_s: float | None = None) -> str:
    """``384 candidates · 112 do not fit in memory · at most 2 h of GPU time``: the plan in one line."""
    pruned = Counter(row.code for row in rows if row.pruned is not None)
    parts = [plural(len(rows), "candidate")]
    for code, number in pruned.most_common():
        why = "left out" if not code else f"left out: {code_in_words(code)[:1].lower()}{code_in_words(code)[1:]}"
        parts.append(f"{count(number)} {why}")
    limit = f"at most {duration(problem.budget.gpu_seconds)} of GPU time and {plural(problem.budget.trials, 'trial')}"
    parts.append(limit if usually_s is None else f"{limit}, usually under {duration(usually_s)}")
    return " · ".join(parts)


def plan_table(problem: Problem, rows: Sequence[PlanRow], *, width: int) -> Text:
    """Every candidate, those that may be tried first, cheapest lower bound first; pruned ones with their reason."""
    columns = Columns(
        (
            Column("candidate", 44 if width >= 110 else max(16, min(34, width - 34))),
            Column("memory", 9, right=True),
            Column("at least", 8, right=True),
            Column("a month", 11, right=True),
        ),
        "why it is left out",
        width,
    )
    table = columns.header()
    for row in sorted(rows, key=lambda row: _order(problem, row)):
        table.append("\n")
        table.append_text(_line(problem, columns, row))
    return table


def _order(problem: Problem, row: PlanRow) -> tuple[bool, bool, object, str]:
    """1. not pruned, 2. bounded, 3. monthly cost at the bound, 4. the candidate itself."""
    cost = cost_of(problem, row.candidate, row.replicas_lower_bound)
    return (row.pruned is not None, cost is None, cost or 0, repr(row.candidate))


def _line(problem: Problem, columns: Columns, row: PlanRow) -> Text:
    cost = cost_of(problem, row.candidate, row.replicas_lower_bound)
    least = MISSING if row.replicas_lower_bound is None else f"{row.replicas_lower_bound} ×"
    cells = (
        candidate_label(row.candidate, problem.baseline),
        size(row.memory_bytes),
        least,
        money(cost, currency_of(problem, row.candidate)),
    )
    style = "dim" if row.pruned is not None else ""
    return columns.row(cells, row.pruned or "", styles=[style] * 5)
