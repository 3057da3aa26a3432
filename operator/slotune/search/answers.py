"""What is known of each pair's answers: which may win, which differ too much, and what must be asked first.

In this order: the reference is recorded, then compared with itself after a restart (the noise floor), then each pair is
compared, right before its first load trial, so that nothing is spent on a pair that nothing leads to. A comparison that
was at fault is repeated once, then its pair is set aside, undecided; one whose bounds leave it open is not repeated, as
the same prompts would say the same. What runs today is measured whatever its answers are, since users get them now;
where they cannot be judged its pair stays, as nothing gets worse.

The verdict is formed here from the recorded numbers, not where they were measured: other limits need no new trial.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from slotune.llama.candidate import Candidate
from slotune.quality.divergence import Divergence
from slotune.search.drift import without_drifted
from slotune.search.pairs import (
    Pair,
    comparison_candidate,
    gated_pairs,
    home_of_reference,
    pair_of,
    pairs_of,
    reference_pair,
)
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.quality_gate import judge_floor, judge_quality
from slotune.verdict.verdicts import Outcome

__all__ = ["ATTEMPTS", "QUALITY_TOO_LOW", "QUALITY_UNDECIDED", "Answers", "PairStanding", "PairState", "judged"]

ATTEMPTS = 2
"""Comparisons of one pair: the second one only after a first that was at fault."""
QUALITY_TOO_LOW = "QualityTooLow"
"""Code of a pair that answers too differently: the gate's own word."""
QUALITY_UNDECIDED = "QualityUndecided"
"""Code of a pair of which that could not be found out."""


class PairState(enum.StrEnum):
    """What is known of a pair's answers."""

    UNGATED = "Ungated"  # nobody looks, or it is the reference itself
    OPEN = "Open"  # not compared so far
    PASSED = "Passed"
    FAILED = "Failed"  # too different, or its server cannot run
    UNDECIDED = "Undecided"  # could not be compared, or not closely enough


@dataclass(slots=True)
class PairStanding:
    """One pair's record."""

    state: PairState
    result: TrialResult | None = None
    """The comparison that decided, or the last one that could not."""
    code: str = ""
    reason: str = ""


def judged(problem: Problem, results: Iterable[TrialResult]) -> list[TrialResult]:
    """``results`` with every verdict formed anew that more than its own trial decides.

    That of a comparison, by the limits and the noise floor of ``problem``; and that of a load trial during which the
    machine changed, as the next look at it shows. Done twice it changes nothing.
    """
    formed = []
    floors: dict[str, Divergence] = {}
    for result in without_drifted(problem, tuple(results)):
        measured = result.quality
        if problem.quality is None or measured is None or result.trial.purpose is not Purpose.QUALITY:
            formed.append(result)
            continue
        if pair_of(result.trial.candidate) == reference_pair(problem):
            floors[measured.reference_digest] = measured
            verdict = judge_floor(measured, problem.quality.limits)
        elif (floor := floors.get(measured.reference_digest)) is not None:
            verdict = judge_quality(measured, floor, problem.quality.limits)
        else:
            verdict = result.verdict
        formed.append(replace(result, verdict=verdict))
    return formed


@dataclass(slots=True)
class Answers:
    """The fold of all comparisons of one search."""

    problem: Problem
    results: Sequence[TrialResult] = ()
    pairs: dict[Pair, PairStanding] = field(default_factory=dict)
    recorded: TrialResult | None = None
    """The trial that recorded the reference."""
    floor: Divergence | None = None
    """The reference against itself, once it is small enough for the limits."""
    _digest: str = ""
    """Of the reference that comparisons must be with to count."""
    _faults: dict[Pair | None, int] = field(default_factory=dict)
    """Comparisons that decided nothing, since the reference was recorded; None is the recording itself."""
    _blocked: str = ""
    """Why nothing can be compared at all."""

    @classmethod
    def from_results(cls, problem: Problem, results: Sequence[TrialResult]) -> Answers:
        """Fold ``results``, whose comparisons are :func:`judged`."""
        gated = gated_pairs(problem)
        answers = cls(
            problem,
            [result for result in results if result.trial.purpose.asks_answers],
            {p: PairStanding(PairState.OPEN if p in gated else PairState.UNGATED) for p in pairs_of(problem)},
        )
        if not gated:
            return answers
        since = answers._choose_reference()
        for number, result in enumerate(answers.results):
            if result.trial.purpose is Purpose.REFERENCE:
                answers._record(result)
            elif answers._is_of_this_reference(result) or number >= since:
                answers._compare(result)
        if answers.recorded is None and not answers._blocked and home_of_reference(problem) is None:
            answers._block(
                f"{problem.quality.reference if problem.quality else ''} fits on no GPU class that is allowed"
            )
        return answers

    def of(self, candidate: Candidate) -> PairStanding:
        """The record of the candidate's pair; one that is not offered (a step of the story) is not looked at."""
        return self.pairs.get(pair_of(candidate), PairStanding(PairState.UNGATED))

    def may_be_asked(self, candidate: Candidate) -> bool:
        """Whether load trials of ``candidate`` still lead anywhere."""
        state = self.of(candidate).state
        return state is not PairState.FAILED and (state is not PairState.UNDECIDED or self._is_todays(candidate))

    def may_win(self, candidate: Candidate) -> bool:
        """Whether ``candidate`` may be the answer as things stand."""
        return self.may_be_asked(candidate) and (
            self.of(candidate).state is not PairState.OPEN or self._is_todays(candidate)
        )

    def owed_before(self, candidate: Candidate) -> Trial | None:
        """The trial of answers that comes before a load trial of ``candidate``; None when there is none."""
        if self.of(candidate).state is not PairState.OPEN or self._blocked:
            return None
        if self.recorded is None:
            home = home_of_reference(self.problem)
            return None if home is None else self._trial(self._reference, home, Purpose.REFERENCE)
        if self.floor is None:
            return self._trial(self._reference, self.recorded.trial.candidate.gpu_class, Purpose.QUALITY)
        return self._trial(pair_of(candidate), candidate.gpu_class, Purpose.QUALITY)

    @property
    def _reference(self) -> Pair:
        pair = reference_pair(self.problem)
        assert pair is not None
        return pair

    def _is_todays(self, candidate: Candidate) -> bool:
        return pair_of(candidate) == pair_of(self.problem.baseline)

    def _trial(self, pair: Pair, gpu_class: str, purpose: Purpose) -> Trial:
        assert self.problem.quality is not None
        before = sum(r.trial.purpose is purpose and pair_of(r.trial.candidate) == pair for r in self.results)
        return Trial(
            comparison_candidate(self.problem, pair, gpu_class),
            rate=0.0,
            confidence=self.problem.quality.settings.confidence,
            attempt=1 + before,
            purpose=purpose,
        )

    def _choose_reference(self) -> int:
        """Take the last reference that was recorded; returns from which result on faults count.

        Comparisons with it hold whenever they were made: one that was lost may be recorded equal again. Where the
        recording itself is gone, what was compared with it last still holds, until another one is recorded.
        """
        since = 0
        for number, result in enumerate(self.results):
            if result.trial.purpose is Purpose.REFERENCE and result.verdict.outcome is Outcome.PASS:
                if self.recorded is None or self.recorded.reference != result.reference:
                    since = number
                self.recorded = result
        if self.recorded is not None:
            self._digest = self.recorded.reference
            return since
        compared = [result.quality.reference_digest for result in self.results if result.quality is not None]
        self._digest = compared[-1] if compared else ""
        return next((n for n, result in enumerate(self.results) if self._is_of_this_reference(result)), 0)

    def _record(self, result: TrialResult) -> None:
        """A recording that failed: nothing can be compared without one."""
        if self.recorded is None and (result.verdict.outcome is Outcome.FAIL or self._is_last(None)):
            self._block(f"the reference {self._reference.label} could not be recorded: {result.verdict.reason}")

    def _compare(self, result: TrialResult) -> None:
        pair, standing = pair_of(result.trial.candidate), self.of(result.trial.candidate)
        if pair == self._reference:
            self._hear_noise(result)
        elif standing.state is PairState.OPEN and self.floor is not None:
            self.pairs[pair] = self._found(pair, result) or standing

    def _hear_noise(self, result: TrialResult) -> None:
        """The reference against itself."""
        if self._is_of_this_reference(result) and result.verdict.outcome is Outcome.PASS:
            self.floor = result.quality
        elif self.floor is None and (result.never_ran or self._is_last(self._reference)):
            self._block(f"the reference cannot be compared with itself: {result.verdict.reason}")

    def _found(self, pair: Pair, result: TrialResult) -> PairStanding | None:
        """What one comparison found out; None when it is to be repeated."""
        verdict = result.verdict
        undecided = PairStanding(PairState.UNDECIDED, result, QUALITY_UNDECIDED, verdict.reason)
        if result.failure is not None:
            if self._can_never_run(pair, result):
                return PairStanding(PairState.FAILED, result, result.failure.value, verdict.reason)
            return undecided if result.never_ran or self._is_last(pair) else None
        if self._is_of_this_reference(result) and verdict.outcome is Outcome.PASS:
            return PairStanding(PairState.PASSED, result, verdict.code, verdict.reason)
        if verdict.outcome is Outcome.FAIL and (result.quality is None or self._is_of_this_reference(result)):
            return PairStanding(PairState.FAILED, result, verdict.code, verdict.reason)
        if self._is_of_this_reference(result) and verdict.outcome is Outcome.INCONCLUSIVE:
            return undecided  # the same steps would say the same again
        return undecided if self._is_last(pair) else None

    def _is_of_this_reference(self, result: TrialResult) -> bool:
        return result.quality is not None and result.quality.reference_digest == self._digest

    def _is_last(self, pair: Pair | None) -> bool:
        """Whether this one, which decided nothing, is not repeated."""
        self._faults[pair] = self._faults.get(pair, 0) + 1
        return self._faults[pair] >= ATTEMPTS

    def _can_never_run(self, pair: Pair, result: TrialResult) -> bool:
        """Whether the smallest server of the pair did not start, so that none of its candidates can."""
        tried = result.trial.candidate
        return result.never_ran and all(
            c.context_total >= tried.context_total and c.ubatch_size >= tried.ubatch_size
            for c in self.problem.candidates
            if pair_of(c) == pair
        )

    def _block(self, reason: str) -> None:
        self._blocked = reason
        for pair, standing in self.pairs.items():
            if standing.state is PairState.OPEN:
                self.pairs[pair] = PairStanding(PairState.UNDECIDED, None, QUALITY_UNDECIDED, reason)
