"""Trials as rows of words: what was asked of which candidate, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slotune.report.figures import MISSING, count, duration, seconds, sentence, speed
from slotune.report.labels import candidate_label
from slotune.report.standing import load_of, owed_wait, p95_of, pace_of
from slotune.search.pairs import pair_of, reference_pair
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["OUTCOME_KINDS", "Findings", "TrialRow", "trial_name", "trial_row"]

Findings = Mapping[str, Sequence[str]]
"""Sentences of the diagnosis by trial key."""

OUTCOME_KINDS = {
    Outcome.PASS: "kept",
    Outcome.FAIL: "missed",
    Outcome.INCONCLUSIVE: "unknown",
    Outcome.INVALID: "unknown",
}
"""Outcome to the word that colours it."""

_PURPOSES = {
    Purpose.BASELINE: "what runs today",
    Purpose.SEARCH: "",
    Purpose.CONFIRM: "confirmation",
    Purpose.EXPLAIN: "for the story",
    Purpose.PARTIAL: "at half its load",
    Purpose.FINALIST: "compared in turns",
    Purpose.SENTINEL: "has the machine drifted?",
    Purpose.REFERENCE: "the reference's answers",
    Purpose.QUALITY: "do the answers hold?",
}


_WITHOUT_LOAD = {Purpose.SENTINEL: "idle"}


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial, ready to be printed."""

    number: int
    key: str
    label: str
    load: str
    outcome: str
    kind: str
    """``kept``, ``missed`` or ``unknown``; empty where nothing is put to the question: idle speed, the reference."""
    purpose: str
    wait: str
    """TTFT at the percentile that the promise is about."""
    p95: str
    p95_upper: str
    tokens: str
    requests: str
    violations: str
    took: str
    sentences: tuple[str, ...]
    """What the diagnosis found; the verdict's reason when it found nothing."""


def trial_name(problem: Problem, trial: Trial) -> str:
    """What is measured: the candidate by what differs from today; where answers are looked at, their pair."""
    if trial.purpose.asks_answers:
        return pair_of(trial.candidate).label
    return candidate_label(trial.candidate, problem.baseline)


def trial_row(problem: Problem, result: TrialResult, number: int, findings: Findings) -> TrialRow:
    """``result`` in words; ``number`` is its place in the order of trials, from 1."""
    verdict, trial = result.verdict, result.trial
    key = problem.key(trial)
    planned = result.planned_requests
    stopped_early = 0 < verdict.requests < planned
    # The others ask the machine, only record, or are too short for a word on the promise.
    asks = trial.purpose not in {Purpose.SENTINEL, Purpose.REFERENCE, Purpose.FINALIST}
    label = trial_name(problem, trial)
    purpose = _PURPOSES[trial.purpose]
    if trial.purpose is Purpose.QUALITY and pair_of(trial.candidate) == reference_pair(problem):
        purpose = "noise floor"
    if trial.purpose is Purpose.BASELINE and trial.candidate == problem.baseline:
        purpose = ""
    return TrialRow(
        number=number,
        key=key,
        label=label,
        load=load_of(problem, result) if trial.purpose.puts_load else _WITHOUT_LOAD.get(trial.purpose, "answers"),
        outcome=verdict.outcome.value if asks else MISSING,
        kind=OUTCOME_KINDS[verdict.outcome] if asks else "",
        purpose=purpose if trial.attempt == 1 else f"{purpose}, tried again".lstrip(", "),
        wait=seconds(owed_wait(problem, result)),
        p95=seconds(p95_of(result)),
        p95_upper=seconds(verdict.ttft_p95_upper_s),
        tokens=speed(pace_of(result)),
        requests=f"{count(verdict.requests)} of {count(planned)}" if stopped_early else count(verdict.requests),
        violations=count(verdict.violations) if verdict.requests else MISSING,
        took=duration(result.gpu_seconds),
        sentences=tuple(sentence(words) for words in findings.get(key, ()) or (verdict.reason,) if words),
    )
