"""The cost ladder: every price that was put to the question, and what became of it.

Cost is a step function of replicas, so there are only a few prices to pay. The ladder shows the
winner's, today's, and what stands on the rungs between and below: why nothing cheaper will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from slotune.report.bought import StepState
from slotune.report.figures import money, plural, seconds, target_percentile
from slotune.report.labels import settings_label
from slotune.report.standing import currency_of, measured, owed_wait, replicas_at, today_of
from slotune.search.decision import Decision, monthly_cost
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["Rung", "gap_sentence", "ladder_of"]

MOST_RUNGS = 12


@dataclass(frozen=True, slots=True)
class Rung:
    """One price."""

    cost: Decimal
    currency: str
    machines: str
    """``4 × l4``; empty on the rung that only undecided candidates could reach."""
    blocks: int | None
    state: StepState
    """Whether a candidate was shown to keep the promise at this price."""
    winner: bool
    today: bool
    story: str
    """What was found on this rung, in one line."""


def ladder_of(problem: Problem, decision: Decision, results: Sequence[TrialResult]) -> tuple[Rung, ...]:
    """Rungs, cheapest first, at most twelve: those next to the winner (else to the cheapest) are kept."""
    today, choice = today_of(problem, decision), decision.choice
    tried: dict[tuple[str, int], list[TrialResult]] = {(today.candidate.gpu_class, today.replicas): []}
    for result in measured(results):
        if (replicas := replicas_at(problem, result.trial.rate)) is not None:
            tried.setdefault((result.trial.candidate.gpu_class, replicas), []).append(result)
    if choice is not None:
        tried.setdefault((choice.candidate.gpu_class, choice.replicas), [])
        if choice.replicas > 1 and decision.cost_gap == 0:
            tried.setdefault((choice.candidate.gpu_class, choice.replicas - 1), [])
    rungs = [
        _rung(problem, decision, problem.hardware[gpu_class], (gpu_class, replicas), found)
        for (gpu_class, replicas), found in tried.items()
        if gpu_class in problem.hardware
    ]
    rungs.extend(_open_rung(problem, decision))
    rungs.sort(key=lambda r: (r.cost, r.machines))
    return _nearest_rungs(tuple(rungs))


def _rung(
    problem: Problem, decision: Decision, hardware: Hardware, place: tuple[str, int], found: Sequence[TrialResult]
) -> Rung:
    today, choice = today_of(problem, decision), decision.choice
    gpu_class, replicas = place
    is_winner = choice is not None and (choice.candidate.gpu_class, choice.replicas) == place
    is_today = (today.candidate.gpu_class, today.replicas) == place
    outcomes = {r.verdict.outcome for r in found}
    if is_winner or Outcome.PASS in outcomes:
        state = StepState.KEPT
    elif (is_today and not found) or outcomes & {Outcome.INCONCLUSIVE, Outcome.INVALID}:
        state = StepState.UNKNOWN
    else:
        state = StepState.MISSED
    return Rung(
        cost=monthly_cost(replicas, hardware.price_per_hour),
        currency=hardware.currency,
        machines=f"{replicas} × {gpu_class}",
        blocks=replicas,
        state=state,
        winner=is_winner,
        today=is_today,
        story=_story(problem, decision, found, is_winner=is_winner, is_today=is_today),
    )


def _open_rung(problem: Problem, decision: Decision) -> tuple[Rung, ...]:
    """The lowest price that an undecided candidate could still reach."""
    choice, gap = decision.choice, decision.cost_gap
    if choice is None or gap is None or gap <= 0:
        return ()
    currency = currency_of(problem, choice.candidate)
    story = f"Not decided: {_undecided(decision)} might reach this price"
    return (Rung(choice.monthly_cost - gap, currency, "", None, StepState.UNKNOWN, False, False, story),)


def _story(
    problem: Problem, decision: Decision, found: Sequence[TrialResult], *, is_winner: bool, is_today: bool
) -> str:
    """Counts candidates, not trials: a confirmation is no second success."""
    chosen = decision.choice.candidate if decision.choice and is_winner else None
    outcomes = {r.trial.candidate: r.verdict.outcome for r in found}
    parts = []
    if chosen is not None:
        parts.append(settings_label(chosen, problem.baseline))
        outcomes.pop(chosen, None)
    if is_today and problem.baseline not in {r.trial.candidate for r in found}:
        parts.append("not measured")
    by_outcome = {o: [r for r in found if outcomes.get(r.trial.candidate) is o] for o in Outcome}
    if kept := by_outcome[Outcome.PASS]:
        parts.append(f"kept by {_named(problem, kept)}")
    if missed := by_outcome[Outcome.FAIL]:
        parts.append(f"missed by {_named(problem, missed)}{_nearest_wait(problem, missed)}")
    if undecided := by_outcome[Outcome.INCONCLUSIVE] + by_outcome[Outcome.INVALID]:
        parts.append(f"not decided for {_named(problem, undecided)}")
    story = "; ".join(parts) if parts else "ruled out by bounds, no trial was needed"
    return story[0].upper() + story[1:]


def _nearest_wait(problem: Problem, missed: Sequence[TrialResult]) -> str:
    waits = [wait for r in missed if (wait := owed_wait(problem, r)) is not None]
    if not waits:
        return ""
    nearest = "nearest: " if len({r.trial.candidate for r in missed}) > 1 else ""
    return f" ({nearest}{target_percentile(problem.promise.violation_share)} {seconds(min(waits))})"


def _named(problem: Problem, found: Sequence[TrialResult]) -> str:
    candidates = list(dict.fromkeys(r.trial.candidate for r in found))
    if len(candidates) == 1:
        return settings_label(candidates[0], problem.baseline)
    return plural(len(candidates), "candidate")


def _nearest_rungs(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    if len(rungs) <= MOST_RUNGS:
        return rungs
    anchor = next((i for i, r in enumerate(rungs) if r.winner), 0)
    by_distance = sorted(range(len(rungs)), key=lambda i: (not rungs[i].today and i != anchor, abs(i - anchor), i))
    return tuple(rungs[i] for i in sorted(by_distance[:MOST_RUNGS]))


def gap_sentence(problem: Problem, decision: Decision) -> str:
    """The cost gap in words; empty without a choice."""
    if decision.choice is None or decision.cost_gap is None:
        return ""
    if decision.cost_gap == 0:
        return "Nothing that was declared can be cheaper."
    gap = money(decision.cost_gap, currency_of(problem, decision.choice.candidate))
    return f"At most {gap} a month might still be saved, by {_undecided(decision)}."


def _undecided(decision: Decision) -> str:
    undecided = sum(r.undecided for r in decision.rejections)
    return plural(undecided, "undecided candidate") if undecided else "a candidate that was not decided"
