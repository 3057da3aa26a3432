"""Every candidate with its one reason, gathered by kind of reason so that thousands stay readable."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from slotune.llama.candidate import Candidate
from slotune.report.labels import candidate_label
from slotune.report.standing import replicas_at
from slotune.search.decision import Decision
from slotune.search.problem import Problem

__all__ = ["ReasonGroup", "Reasoned", "code_in_words", "reason_groups"]

UNREACHED = "NotReached"
"""Code of candidates that a decision says nothing about: the search ended before their turn."""

_WORDS = {
    "DoesNotFit": "Does not fit in memory",
    "ContextTooSmall": "Context too small for the longest request",
    "TTFTFloor": "Reading the prompt alone takes longer than owed",
    "DecodeFloor": "Too slow for one user even when nobody else is there",
    "TooManyViolations": "Broke the promise when it was measured",
    "TooManyReplicas": "Would need more machines than are allowed",
    "CostsMore": "Costs more than the answer",
    "NoCheaper": "Costs no less than the answer",
    "NotConfirmed": "Passed once, not confirmed",
    "QualityTooLow": "Answers differ too much from the reference's",
    "QualityUndecided": "Whether its answers hold is not known",
    "NotTried": "The search ended before its turn",
    UNREACHED: "Not decided before the search ended",
}


@dataclass(frozen=True, slots=True)
class Reasoned:
    """One candidate and why it is not the answer."""

    label: str
    reason: str
    replicas: int | None
    """Replicas at which it was tried; None when it was never run."""


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Candidates that were rejected for the same kind of reason."""

    code: str
    title: str
    undecided: bool
    """Whether one of them could still have been cheaper."""
    rows: tuple[Reasoned, ...]


def reason_groups(problem: Problem, decision: Decision) -> tuple[ReasonGroup, ...]:
    """Groups, undecided ones first, then the largest; each candidate but the winner stands in exactly one."""
    groups: dict[tuple[str, bool], list[Reasoned]] = {}
    for candidate, code, undecided, reasoned in _reasons(problem, decision):
        if decision.choice is None or candidate != decision.choice.candidate:
            groups.setdefault((code, undecided), []).append(reasoned)
    made = [
        ReasonGroup(code, code_in_words(code), undecided, tuple(rows)) for (code, undecided), rows in groups.items()
    ]
    return tuple(sorted(made, key=lambda g: (not g.undecided, -len(g.rows), g.title)))


def code_in_words(code: str) -> str:
    """``TooManyViolations`` as ``Too many violations``; abbreviations keep their capitals."""
    if code in _WORDS:
        return _WORDS[code]
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[^A-Za-z0-9]+", code)
    text = " ".join(word if len(word) > 1 and word.isupper() else word.lower() for word in words).strip()
    return text[:1].upper() + text[1:] if text else "No reason given"


def _reasons(problem: Problem, decision: Decision) -> Iterator[tuple[Candidate, str, bool, Reasoned]]:
    """The first reason of each candidate: the decision's own, then why it was never started, then none."""
    seen: set[Candidate] = set()
    for rejection in decision.rejections:
        if rejection.candidate not in seen:
            seen.add(rejection.candidate)
            replicas = None if rejection.rate is None else replicas_at(problem, rejection.rate)
            label = candidate_label(rejection.candidate, problem.baseline)
            yield (
                rejection.candidate,
                rejection.code,
                rejection.undecided,
                Reasoned(label, rejection.reason, replicas),
            )
    for pruned in problem.pruned:
        if pruned.candidate not in seen:
            seen.add(pruned.candidate)
            label = candidate_label(pruned.candidate, problem.baseline)
            yield pruned.candidate, pruned.code, False, Reasoned(label, pruned.reason, None)
    for candidate in problem.candidates:
        if candidate not in seen:
            label = candidate_label(candidate, problem.baseline)
            yield candidate, UNREACHED, True, Reasoned(label, "The search ended before its turn.", None)
