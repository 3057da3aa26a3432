"""What is measured for a recording: a search, and what the search code of any day may ask about its space.

Whatever is known already is not measured again. Nothing here starts a server; :mod:`bench.record_search` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import replace

from slotune.diagnose.hints import hints
from slotune.llama.candidate import Candidate
from slotune.sandbox.protocol import Measured, ProgressListener, Sandbox
from slotune.search.options import unhinted
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.search.replay import RecordedAnswer, RecordedSearch, RecordedTrials, replay
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.ledger import Ledger
from slotune.tuning.loop import Reporter, tune
from slotune.verdict.verdicts import Outcome

__all__ = ["AnotherQuestionError", "check_same_question", "questions", "record_space"]

ATTEMPTS = 2
"""A measurement at fault is repeated once."""


class AnotherQuestionError(Exception):
    """The manifest asks something else than what was recorded."""

    def __init__(self, name: str, fields: Sequence[str]) -> None:
        self.name, self.fields = name, fields
        super().__init__(
            f"{name}: another {', '.join(fields)} now than when it was recorded: record it without --complete"
        )


def check_same_question(known: Problem, space: Problem) -> None:
    """Trials of ``known`` say something about ``space``. Where files lie and how they are told apart may differ.

    Raises:
        AnotherQuestionError: they differ in what a trial or a search depends on.
    """

    def asked(problem: Problem) -> Problem:
        models = {name: replace(facts, path="", identity="") for name, facts in problem.models.items()}
        demand = replace(problem.demand, sampling=())  # not in a recording
        return replace(problem, models=models, demand=demand, context="", pruned=(), memory_bytes={})

    then, now = asked(known), asked(space)
    names = [field.name for field in dataclasses.fields(Problem)]
    changed = [name for name in names if getattr(then, name) != getattr(now, name)]
    if changed:
        raise AnotherQuestionError(space.name, changed)


async def record_space(
    space: Problem, sandbox: Sandbox, ledger: Ledger, reporter: Reporter, known: RecordedSearch | None, *, whole: bool
) -> RecordedSearch:
    """The search, the rest of its space if it is to be ``whole``, and what replays ask besides.

    Of what is ``known`` the search's own trials come first, in their order: it goes on from there. What it asks further
    is taken from the rest where that has just this, and measured else. The answer counts what the search took.
    """
    taken = 0 if known is None else known.answer.trials
    begun, rest = ((), ()) if known is None else (known.results[:taken], known.results[taken:])
    for result in begun:
        ledger.add(space.context_of(result.trial), result)
    remembering = Remembering(sandbox, space, rest)
    answer = await tune(space, remembering, ledger, reporter, without_what_cannot_fit)
    own = {space.key(result.trial) for result in answer.results}
    results = [*answer.results, *(result for result in rest if space.key(result.trial) not in own)]
    for candidate in answer.problem.candidates if whole else ():
        results = await measure_all(answer.problem, candidate, results, sandbox, reporter)
    recorded = RecordedSearch(space, tuple(results), RecordedAnswer.from_decision(answer.decision))
    return await without_gaps(recorded, sandbox, reporter)


async def without_gaps(recorded: RecordedSearch, sandbox: Sandbox, reporter: Reporter) -> RecordedSearch:
    """``recorded`` and what a replay of it asks besides, with hints and without."""
    for prefer in (hints, unhinted):
        while lacking := replay(recorded, without_what_cannot_fit, prefer).unrecorded:
            reporter.started(len(recorded.results) + 1, lacking[0])
            result = (await sandbox.measure(lacking[0], reporter.progressed)).result
            reporter.finished(len(recorded.results) + 1, result)
            recorded = replace(recorded, results=(*recorded.results, result))
    return recorded


class Remembering:
    """A sandbox that measures what was not measured before."""

    def __init__(self, sandbox: Sandbox, problem: Problem, known: Sequence[TrialResult]) -> None:
        self._sandbox, self._problem = sandbox, problem
        self._known = {problem.key(result.trial): result for result in known}

    async def measure(self, trial: Trial, listener: ProgressListener) -> Measured:
        """Just this trial from what is known, or measured."""
        found = self._known.get(self._problem.key(trial))
        if found is not None:
            return Measured(replace(found, trial=trial))
        return await self._sandbox.measure(trial, listener)


async def measure_all(
    problem: Problem, candidate: Candidate, results: Sequence[TrialResult], sandbox: Sandbox, reporter: Reporter
) -> list[TrialResult]:
    """``results`` and what they lack about ``candidate``: from one server upwards until it is confirmed."""
    known = list(results)
    for replicas in range(1, problem.hardware[candidate.gpu_class].replicas_max + 1):
        outcomes = []
        for trial in questions(problem, candidate, replicas):
            result = await measured(problem, trial, known, sandbox, reporter)
            if result.never_ran:
                return known
            outcomes.append(result.passed)
            if not result.passed:
                break
        if all(outcomes):
            break
    return known


async def measured(
    problem: Problem, trial: Trial, known: list[TrialResult], sandbox: Sandbox, reporter: Reporter
) -> TrialResult:
    """What is known of ``trial``, or comes to be: ``known`` grows by what is measured."""
    attempt = 0
    while True:
        attempt += 1
        asked = replace(trial, attempt=attempt)
        result = RecordedTrials(problem, known).answer(asked)
        if result is None:
            reporter.started(len(known) + 1, asked)
            result = (await sandbox.measure(asked, reporter.progressed)).result
            known.append(result)
            reporter.finished(len(known), result)
        if attempt >= ATTEMPTS or result.verdict.outcome is not Outcome.INVALID:
            return result


def questions(problem: Problem, candidate: Candidate, replicas: int) -> Iterator[Trial]:
    """What a search asks of ``candidate`` with ``replicas``, each only when those before passed."""
    rate, confidence = problem.demand.peak_rate / replicas, problem.measurement.confidence
    yield Trial(candidate, rate, 0, confidence)
    yield Trial(candidate, rate, 1, confidence, purpose=Purpose.CONFIRM)
    if must_hold_half(candidate, problem.baseline):
        yield Trial(candidate, rate / 2, 2, confidence, purpose=Purpose.PARTIAL)
