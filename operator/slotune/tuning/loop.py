"""The loop around the pure search: ask for the next trial, measure it, write it down, ask again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from slotune.diagnose.hints import hints
from slotune.sandbox.protocol import Progress, Sandbox
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.decision import Decision
from slotune.search.problem import Problem
from slotune.search.trial import Trial, TrialResult
from slotune.tuning.ledger import Ledger

__all__ = ["Answer", "Reporter", "tune"]


class Reporter(Protocol):
    """Hears what happens. Must not block, and never changes the course."""

    def resumed(self, results: list[TrialResult]) -> None:
        """Trials that an earlier process had finished."""
        ...

    def started(self, number: int, trial: Trial) -> None:
        """Trial ``number``, from 1, begins."""
        ...

    def progressed(self, progress: Progress) -> None:
        """Where the running trial stands."""
        ...

    def finished(self, number: int, result: TrialResult) -> None:
        """The trial ended."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A decision with the problem as it was known at the end, and all that was measured."""

    problem: Problem
    decision: Decision
    results: tuple[TrialResult, ...]


async def tune(
    problem: Problem,
    sandbox: Sandbox,
    ledger: Ledger,
    reporter: Reporter,
    refine: Callable[[Problem, list[TrialResult]], Problem],
) -> Answer:
    """Run the search to its decision. Cancelling loses the trial in flight and nothing else."""
    results = ledger.references.without_lost(problem, ledger.results(*problem.contexts))
    results = judged(problem, results)
    if results:
        reporter.resumed(results)
    while True:
        refined = refine(problem, results)
        step = next_step(refined, results, preferred=hints(refined, results))
        if isinstance(step, Decision):
            return Answer(refined, step, tuple(results))
        number = len(results) + 1
        reporter.started(number, step)
        measured = await sandbox.measure(step, reporter.progressed)
        results = judged(problem, [*results, measured.result])
        ledger.add(problem.context_of(step), results[-1], measured.runs)
        reporter.finished(number, results[-1])
