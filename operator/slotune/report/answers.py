"""How the answers of each pair of weights and KV cache compare with the reference's, in words and rows."""

from __future__ import annotations

from dataclasses import dataclass

from slotune.quality.divergence import Divergence
from slotune.report.figures import MISSING, percent, plural, sentence, significant
from slotune.search.answers import PairState
from slotune.search.decision import Decision, PairFinding
from slotune.search.pairs import pair_of
from slotune.search.problem import Problem
from slotune.verdict.quality_gate import NOT_A_RANKING

__all__ = [
    "NOT_A_RANKING",
    "AnswersRow",
    "answers_lines",
    "answers_note",
    "answers_rows",
    "asked_of_answers",
    "winners_answers",
]

_STATES = {
    PairState.UNGATED: ("the reference", ""),
    PairState.OPEN: ("not compared", ""),
    PairState.PASSED: ("holds", "kept"),
    PairState.FAILED: ("too different", "missed"),
    PairState.UNDECIDED: ("not decided", "unknown"),
}
"""State to its words, and to the word that colours them."""
_NOT_NEEDED = "nothing that could be cheaper led there"


@dataclass(frozen=True, slots=True)
class AnswersRow:
    """One pair, ready to be printed."""

    label: str
    state: str
    kind: str
    """``kept``, ``missed``, ``unknown`` or empty."""
    is_todays: bool
    reason: str
    """A sentence on what the numbers do not say by themselves; empty where they do."""
    mean_kld: str = MISSING
    """``0.0038 (≤ 0.0054)``: with its upper bound."""
    top1: str = MISSING
    """``93.9 % (≥ 92.4 %)``: with its lower bound."""


def asked_of_answers(problem: Problem) -> str:
    """``Balanced: mean KLD up to 0.05 and the same first choice in at least 90 % of steps, against BF16``."""
    asked = problem.quality
    if asked is None:
        return ""
    limits = asked.limits
    return (
        f"{limits.name}: mean KLD up to {limits.mean_kld_max:g} and the same first choice in at least "
        f"{percent(limits.top1_min)} of steps, against {asked.reference}"
    )


def answers_rows(decision: Decision) -> tuple[AnswersRow, ...]:
    """All pairs that were offered: the reference first, then those that were compared, then the others."""
    order = (PairState.UNGATED, PairState.PASSED, PairState.FAILED, PairState.UNDECIDED, PairState.OPEN)
    ranked = sorted(decision.answers, key=lambda one: order.index(PairState(one.state)))
    return tuple(map(_row, ranked))


def answers_note(decision: Decision) -> str:
    """How the numbers are to be read, with the noise that they stand above."""
    words = [
        "Mean KLD is a lower bound: tokens beyond the likeliest count as one.",
        "In brackets: confidence bounds, and they decide.",
    ]
    floor = decision.noise_floor
    if floor is not None:
        words.append(
            f"The reference differs from itself by {significant(floor.mean_kld, 2)} after a restart, over "
            f"{plural(floor.positions, 'step')} of {plural(floor.prompts, 'prompt')}."
        )
    return " ".join(words)


def answers_lines(problem: Problem, decision: Decision) -> list[str]:
    """The same for a terminal, one line each, the winner's left out: it stands beside its other numbers."""
    lines = []
    chosen = None if decision.choice is None else pair_of(decision.choice.candidate)
    for finding in decision.answers:
        state, _ = _STATES[PairState(finding.state)]
        if finding.is_reference or (finding.pair == chosen and finding.divergence is not None):
            continue
        today = " (today)" if finding.is_todays else ""
        if finding.divergence is not None:
            words = f"{state}: {_numbers(finding.divergence)}"
        elif finding.state == PairState.OPEN:
            words = f"{state}: {_NOT_NEEDED}"
        else:
            words = f"{state}: {finding.reason}"
        lines.append(f"{finding.pair.label}{today}: {words}")
    if not decision.answers:
        return []
    return [f"{asked_of_answers(problem)}. It gates, it does not rank.", *lines]


def winners_answers(problem: Problem, decision: Decision) -> str:
    """``mean KLD 0.029 (at most 0.034, 95 % sure), top-1 92 % (at least 90.4 %) · Balanced``; empty if not compared."""
    if decision.choice is None or problem.quality is None:
        return ""
    pair = pair_of(decision.choice.candidate)
    found = next((finding for finding in decision.answers if finding.pair == pair), None)
    if found is None:
        return ""
    if found.is_reference:
        return f"answers as the reference does ({problem.quality.limits.name} is owed)"
    return "" if found.divergence is None else f"{_numbers(found.divergence)} · {problem.quality.limits.name}"


def _numbers(measured: Divergence) -> str:
    sure = f"at most {significant(measured.kld_upper, 2)}, {percent(measured.confidence)} sure"
    top1 = f"top-1 {percent(measured.top1)} (at least {percent(measured.top1_lower)})"
    return f"mean KLD {significant(measured.mean_kld, 2)} ({sure}), {top1}"


def _row(finding: PairFinding) -> AnswersRow:
    state, kind = _STATES[PairState(finding.state)]
    measured = finding.divergence
    if measured is None:
        reason = _NOT_NEEDED if finding.state == PairState.OPEN else finding.reason
        return AnswersRow(finding.pair.label, state, kind, finding.is_todays, reason and sentence(reason))
    return AnswersRow(
        finding.pair.label,
        state,
        kind,
        finding.is_todays,
        sentence(finding.reason) if finding.state == PairState.UNDECIDED else "",
        mean_kld=f"{significant(measured.mean_kld, 2)} (≤ {significant(measured.kld_upper, 2)})",
        top1=f"{percent(measured.top1)} (≥ {percent(measured.top1_lower)})",
    )
