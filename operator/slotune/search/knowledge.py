"""What every result so far says about each candidate: the fold that makes the search stateless."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.search.answers import Answers
from slotune.search.drift import without_drifted
from slotune.search.problem import Problem, Pruned
from slotune.search.standing import Standing, same_rate
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["ATTEMPTS", "CONTEXT_TOO_SMALL", "Knowledge"]

ATTEMPTS = 2
"""An Invalid measurement is repeated once, then the candidate is set aside at that rate."""
CONTEXT_TOO_SMALL = "ContextTooSmall"
"""Code of a verdict that no other rate would change: the prompts do not fit a slot."""


@dataclass(slots=True)
class Knowledge:
    """The fold of all results of one search."""

    standings: dict[Candidate, Standing]
    answers: Answers
    confirmations_failed: int = 0
    """Each one halves the error that the next confirmation may make."""
    gpu_seconds: float = 0.0
    trials: int = 0
    sound: list[TrialResult] = field(default_factory=list)
    """Results whose measurement can be trusted: neither Invalid nor from a stretch in which the machine drifted."""
    all_invalid: bool = False

    @classmethod
    def from_results(cls, problem: Problem, results: Sequence[TrialResult]) -> Knowledge:
        """Fold ``results`` in the order in which they were measured."""
        knowledge = cls({}, Answers.from_results(problem, results))
        faulty = 0
        for result in without_drifted(problem, results):
            knowledge.trials += 1
            knowledge.gpu_seconds += result.gpu_seconds
            at_fault = result.verdict.outcome is Outcome.INVALID
            if not at_fault:
                knowledge.sound.append(result)
            if not result.trial.purpose.puts_load:
                continue
            if at_fault:
                faulty += 1
                if result.trial.attempt >= ATTEMPTS and not _compares(result):
                    knowledge.standing(result.trial.candidate).give_up(result)
            elif not _compares(result):
                knowledge._learn(problem, result)
        load = sum(result.trial.purpose.puts_load for result in results)
        knowledge.all_invalid = load > 0 and faulty == load
        return knowledge

    def standing(self, candidate: Candidate) -> Standing:
        """The record of ``candidate``; an empty one when it was never tried."""
        return self.standings.setdefault(candidate, Standing())

    def attempts(self, candidate: Candidate, rate: float, seed_block: int, results: Sequence[TrialResult]) -> int:
        """How often this question was measured, Invalid and drifted ones included."""
        return sum(
            r.trial.candidate == candidate
            and same_rate(r.trial.rate, rate)
            and r.trial.seed_block == seed_block
            and r.trial.purpose.puts_load
            for r in results
        )

    def _learn(self, problem: Problem, result: TrialResult) -> None:
        trial, standing = result.trial, self.standing(result.trial.candidate)
        standing.results.append(result)
        if result.verdict.outcome is Outcome.PASS:
            standing.accept(result)
            return
        if trial.purpose is Purpose.CONFIRM:
            self.confirmations_failed += 1
        if _is_out_for_good(result):
            code = result.failure.value if result.failure is not None else result.verdict.code
            standing.out = Pruned(trial.candidate, code, result.verdict.reason)
            if _needs_too_much_of_the_device(result):
                self._remove_hungrier(problem, result)
            elif result.failure is FailureClass.SPECULATION_UNAVAILABLE:
                self._remove_alike(problem, result)
        elif trial.purpose is Purpose.PARTIAL and result.verdict.outcome is Outcome.FAIL:
            reason = f"at {trial.rate:.3g} requests/s, half of what it was confirmed at: {result.verdict.reason}"
            standing.out = Pruned(trial.candidate, result.verdict.code, reason)
        else:
            standing.refuse(result)

    def _remove_alike(self, problem: Problem, failed: TrialResult) -> None:
        """A model that cannot be guessed for in one way cannot with other slots or batches either."""
        own = failed.trial.candidate
        for candidate in problem.candidates:
            alike = (candidate.variant, candidate.speculation, candidate.draft) == (
                own.variant,
                own.speculation,
                own.draft,
            )
            if candidate != own and alike and candidate != problem.baseline:
                standing = self.standing(candidate)
                if standing.out is None and not standing.results:
                    standing.out = Pruned(candidate, FailureClass.SPECULATION_UNAVAILABLE.value, failed.verdict.reason)

    def _remove_hungrier(self, problem: Problem, crashed: TrialResult) -> None:
        """A crash on memory removes every candidate of the GPU class that needs at least as much."""
        needs = problem.memory_bytes
        own = crashed.trial.candidate
        if own not in needs:
            return
        for candidate, bytes_needed in needs.items():
            if candidate != own and candidate.gpu_class == own.gpu_class and bytes_needed >= needs[own]:
                standing = self.standing(candidate)
                if standing.out is None and not standing.results:
                    standing.out = Pruned(
                        candidate,
                        "NeedsMoreMemory",
                        f"needs {bytes_needed / 2**20:,.0f} MiB; one that needs {needs[own] / 2**20:,.0f} MiB "
                        "ran out of memory",
                    )


def _compares(result: TrialResult) -> bool:
    """Whether it is a block of a comparison: too short to say anything about the promise."""
    return result.trial.purpose is Purpose.FINALIST


def _is_out_for_good(result: TrialResult) -> bool:
    """Whether no slower rate can help: it never came up as asked, or its slots can't hold the prompts.

    A server that was up and then crashed or wedged did so under this load; a slow owed rate is first tried far
    above it, so such an end refuses that rate only.
    """
    return result.verdict.code == CONTEXT_TOO_SMALL or result.never_ran


def _needs_too_much_of_the_device(result: TrialResult) -> bool:
    """Host memory is left out: what fills it (the prompt cache) is no part of the predicted bytes."""
    return (
        result.failure is not None
        and result.failure.is_memory
        and result.failure is not FailureClass.OUT_OF_MEMORY_HOST
    )
