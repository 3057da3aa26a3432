"""What each change bought: one row per step from today to the winner, each with its replicas and cost.

A step that does not keep the promise still gets its row, at the replicas that it was tried at: it is
marked as missed, never shown as if it were a price that one could pay.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.report.figures import money
from slotune.report.labels import change_phrases
from slotune.report.standing import cost_of, currency_of, replicas_at, today_of
from slotune.search.decision import Decision, Step
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["BoughtStep", "StepState", "bought_steps", "saved_phrase", "state_phrase"]


class StepState(enum.StrEnum):
    """Whether the promise holds at the step's replicas."""

    KEPT = "kept"
    MISSED = "missed"
    UNKNOWN = "unknown"  # neither was shown


@dataclass(frozen=True, slots=True)
class BoughtStep:
    """One row of the story."""

    name: str
    title: str
    meaning: str
    """What this kind of change does, in plain words."""
    changes: tuple[str, ...]
    candidate: Candidate
    state: StepState
    replicas: int | None
    """Replicas that keep the promise, or that were tried when none did."""
    cost: Decimal | None
    saved: Decimal | None
    """Monthly cost against the last row that has one; None when not kept, or not in one currency."""
    together: bool
    """Whether rows between that one and this have no cost, so that ``saved`` is what they all bought together."""
    result: TrialResult | None
    note: str


_TITLES = {
    "baseline": ("Today", "What runs now."),
    "queue": ("Queue", "How many requests are answered at the same time."),
    "cache": ("Cache", "Prompts that need not be read again."),
    "replicas": ("Fewer machines", "The same settings on fewer of them."),
    "bytes": ("Bytes", "Fewer bytes to read for each token."),
    "hardware": ("Hardware", "Another class of machine."),
    "winner": ("Winner", "All changes together."),
}


def bought_steps(problem: Problem, decision: Decision) -> tuple[BoughtStep, ...]:
    """Rows from today to the winner; today and the winner alone when no step between was measured; else empty."""
    steps = decision.steps if len(decision.steps) > 1 else _ends_only(problem, decision)
    rows: list[BoughtStep] = []
    for step in steps:
        rows.append(_row(problem, decision, step, rows))
    return tuple(rows)


def _ends_only(problem: Problem, decision: Decision) -> tuple[Step, ...]:
    choice, today = decision.choice, today_of(problem, decision)
    if choice is None or (choice.candidate == today.candidate and choice.replicas == today.replicas):
        return ()
    return (
        Step("baseline", today.candidate, today.replicas, today.cost, today.result, kept=today.keeps is True),
        Step("winner", choice.candidate, choice.replicas, choice.monthly_cost, choice.result),
    )


def _row(problem: Problem, decision: Decision, step: Step, rows: Sequence[BoughtStep]) -> BoughtStep:
    before = rows[-1] if rows else None
    title, meaning = _TITLES.get(step.name, (step.name.capitalize(), ""))
    state = _state(step)
    replicas = step.replicas
    if replicas is None and before is None:
        replicas = today_of(problem, decision).replicas
    if replicas is None and step.result is not None:
        replicas = replicas_at(problem, step.result.trial.rate)
    priced = next((row for row in reversed(rows) if row.cost is not None), None)
    cost = step.monthly_cost if step.monthly_cost is not None else cost_of(problem, step.candidate, replicas)
    return BoughtStep(
        name=step.name,
        title=title,
        meaning=meaning,
        changes=change_phrases(step.candidate, before.candidate) if before else (),
        candidate=step.candidate,
        state=state,
        replicas=replicas,
        cost=cost,
        saved=_saved(problem, priced, step.candidate, cost, state),
        together=priced is not before,
        result=step.result,
        note=step.note,
    )


def _state(step: Step) -> StepState:
    if step.kept and step.replicas is not None:
        return StepState.KEPT
    if step.result is not None and step.result.verdict.outcome is Outcome.FAIL:
        return StepState.MISSED
    return StepState.UNKNOWN


def _saved(
    problem: Problem, before: BoughtStep | None, candidate: Candidate, cost: Decimal | None, state: StepState
) -> Decimal | None:
    if before is None or before.cost is None or cost is None or state is not StepState.KEPT:
        return None
    if currency_of(problem, candidate) != currency_of(problem, before.candidate):
        return None
    return before.cost - cost


def state_phrase(row: BoughtStep) -> str:
    """What is known of the promise at this step, in two or three words."""
    if row.state is StepState.UNKNOWN:
        return "not measured" if row.result is None else "not decided"
    return "keeps the promise" if row.state is StepState.KEPT else "misses the promise"


def saved_phrase(problem: Problem, row: BoughtStep) -> str:
    """``saves $1,460``, ``costs $1,460 more``, ``costs the same``, or empty."""
    if row.saved is None:
        return ""
    currency = currency_of(problem, row.candidate)
    if row.saved == 0:
        return "costs the same"
    words = f"saves {money(row.saved, currency)}" if row.saved > 0 else f"costs {money(-row.saved, currency)} more"
    return f"together {words}" if row.together else words
