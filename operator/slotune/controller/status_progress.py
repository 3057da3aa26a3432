"""How far a search is, in numbers and in one sentence.

Nothing in it moves by itself: a status that says the same need not be written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from slotune.api.v1alpha1 import deployment_status
from slotune.controller.conditions import timestamp
from slotune.report.figures import duration, plural, rate
from slotune.report.labels import settings_label
from slotune.report.standing import measured
from slotune.sandbox.protocol import Progress
from slotune.search.pairs import pair_of
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning import status_values as values
from slotune.verdict.verdicts import Outcome

__all__ = ["RunningTrial", "doing", "progress_of", "trial_label"]


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial that has not ended."""

    name: str
    """Of its LlamaTrial."""
    trial: Trial
    progress: Progress | None = None
    """What its client last said; None before it said anything."""
    waits_for: str = ""
    """What holds it back, such as ``a free GPU``; empty while it is being measured."""


def progress_of(
    problem: Problem,
    results: Sequence[TrialResult],
    running: Sequence[RunningTrial],
    *,
    reused: int = 0,
    started_at: str | None = None,
    now: datetime,
    before: deployment_status.Progress | None = None,
) -> deployment_status.Progress:
    """The numbers and the sentence of now.

    Args:
        problem: the search.
        results: every trial that ended.
        running: trials that have not ended, in the order in which they were started.
        reused: trials among ``results`` that an earlier search had measured.
        started_at: when the search began, RFC 3339.
        now: when ``lastProgressTime`` is set to, with time zone, if anything was learned since ``before``.
        before: what was said last.
    """
    outcomes = Counter(result.verdict.outcome for result in measured(results))
    spent = sum(result.gpu_seconds for result in results)
    said = deployment_status.Progress(
        search=values.digest(problem.context),
        started_at=started_at,
        last_progress_time=None if before is None else before.last_progress_time,
        candidates=len(problem.candidates) + len(problem.pruned),
        pruned=len(problem.pruned),
        trials=len(results),
        running=len(running),
        passed=outcomes[Outcome.PASS],
        failed=outcomes[Outcome.FAIL],
        inconclusive=outcomes[Outcome.INCONCLUSIVE],
        invalid=outcomes[Outcome.INVALID],
        reused=reused,
        gpu_minutes_used=values.figure(spent / 60),
        current_trial=running[0].name if running else None,
        message=values.sentence(doing(problem, results, running), 1024),
    )
    if before is not None and before.last_progress_time is not None and _numbers(before) == _numbers(said):
        return said
    return said.model_copy(update={"last_progress_time": timestamp(now)})


def doing(problem: Problem, results: Sequence[TrialResult], running: Sequence[RunningTrial]) -> str:
    """``trial 3: 16 slots at 1.5/s, 62 of 200 requests``; without a running trial, what was done so far."""
    if not running:
        spent = sum(result.gpu_seconds for result in results)
        return f"{plural(len(results), 'trial')} ended, {duration(spent)} of GPU time" if results else ""
    first = len(results) + 1
    return "; ".join(
        f"trial {first + place}: {trial_label(problem, one.trial)}, {_standing(one)}"
        for place, one in enumerate(running)
    )


def trial_label(problem: Problem, trial: Trial) -> str:
    """``16 slots at 1.5/s``: what a trial puts to the question."""
    if trial.purpose is Purpose.REFERENCE:
        return f"recording answers of {pair_of(trial.candidate).label} as the reference"
    if trial.purpose is Purpose.QUALITY:
        return f"comparing answers of {pair_of(trial.candidate).label}"
    label = settings_label(trial.candidate, problem.baseline)
    if trial.candidate.gpu_class != problem.baseline.gpu_class:
        label += f" on {trial.candidate.gpu_class}"
    if trial.purpose is Purpose.SENTINEL:
        return f"{label}, idle: has the machine drifted?"
    again = {
        Purpose.CONFIRM: " again, on a fresh start",
        Purpose.PARTIAL: ", half its load",
        Purpose.FINALIST: ", compared in turns",
    }.get(trial.purpose, "")
    return f"{label} at {rate(trial.rate)}{again}"


def _standing(one: RunningTrial) -> str:
    if one.waits_for:
        return f"waits for {one.waits_for}"
    progress = one.progress
    if progress is None:
        return "starts"
    if progress.requests_planned <= 0:
        return progress.stage
    thing = "step" if progress.stage == "comparing" else "request"
    return f"{progress.requests_done:,} of {plural(progress.requests_planned, thing)}"


def _numbers(said: deployment_status.Progress) -> tuple[object, ...]:
    """What moves when something was learned: counts and the running trial's sentence, not when it was said."""
    return (said.trials, said.running, said.current_trial, said.message)
