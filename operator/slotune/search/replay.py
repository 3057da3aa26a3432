"""A recorded search run again without a server: the search code asks, the recorded trials answer, money is compared.

So a change of the search code is judged on what real engines did, not on a model that shares its assumptions. What it
loses is its regret: what its answer costs above the cheapest configuration that was recorded to keep the promise. That
one is found here by a rule of its own; by the search's own bookkeeping, a defect in it would hide from itself.

A question is answered by the trial that asked the same, or by one that implies it: capacity is monotone, so a Pass at a
faster rate is a Pass, a Fail at a slower one is a Fail, and a server that never ran does so at no rate. Seeds are never
mixed, as a confirmation on the seeds of the search would confirm nothing, and nothing is implied for what pays off at
full load only (:func:`slotune.search.rates.must_hold_half`). What nobody recorded stays unanswered: the search is told
that it cannot be measured, and the replay says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.bounds import replicas_at_least
from slotune.search.decision import Decision, monthly_cost
from slotune.search.options import Preference, unhinted
from slotune.search.pairs import pair_of, reference_pair
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.search.standing import same_rate
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = [
    "Comparison",
    "Passing",
    "RecordedAnswer",
    "RecordedSearch",
    "RecordedTrials",
    "Replay",
    "SearchNeverEndsError",
    "cheapest_recorded",
    "replay",
]

NOT_RECORDED = "NotRecorded"
"""Code of a verdict that stands for a question without an answer."""
LAST_ATTEMPT = 2
"""What is unanswered counts as measured in vain for the last time, so that it is not asked twice."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What was answered when the trials were measured."""

    kind: str
    """``Found``, ``Infeasible``, … as :class:`~slotune.search.decision.DecisionKind`."""
    candidate: Candidate | None
    replicas: int | None
    monthly_cost: Decimal | None
    trials: int
    """Trials that the search took; more may be recorded."""
    gpu_seconds: float

    @classmethod
    def from_decision(cls, decision: Decision) -> RecordedAnswer:
        """What is kept of a decision."""
        choice = decision.choice
        return cls(
            decision.kind.value,
            None if choice is None else choice.candidate,
            None if choice is None else choice.replicas,
            None if choice is None else choice.monthly_cost,
            decision.trials,
            decision.gpu_seconds,
        )


@dataclass(frozen=True, slots=True)
class RecordedSearch:
    """A finished search: the question, everything that was measured for it, and what was answered then."""

    problem: Problem
    """With everything that may be tried: what cannot fit is found out again."""
    results: tuple[TrialResult, ...]
    """In the order in which they were measured."""
    answer: RecordedAnswer


class Comparison(enum.StrEnum):
    """How the replayed answer compares."""

    SAME = "Same"  # the recorded one, to the letter
    EQUAL = "Equal"  # another one, and nothing recorded is cheaper
    DEARER = "Dearer"  # something recorded keeps the promise for less, or at all
    UNRECORDED = "Unrecorded"  # it is dearer, but questions on the way had no recorded answer


@dataclass(frozen=True, slots=True)
class Passing:
    """A configuration that was recorded to keep the promise."""

    candidate: Candidate
    replicas: int
    monthly_cost: Decimal


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of it."""

    decision: Decision
    results: tuple[TrialResult, ...]
    """The trials that were answered, in the order of the questions."""
    implied: int
    """How many of them answer by implication."""
    unrecorded: tuple[Trial, ...]
    """Questions without a recorded answer."""
    cheapest: Passing | None
    """Of all that was recorded."""
    comparison: Comparison

    @property
    def gpu_seconds(self) -> float:
        """Of the trials that were answered. Those that are implied count at most as much as they would have taken."""
        return sum(result.gpu_seconds for result in self.results)

    @property
    def monthly_cost(self) -> Decimal | None:
        """Of the replayed answer; None without one."""
        return None if self.decision.choice is None else self.decision.choice.monthly_cost

    @property
    def regret(self) -> Decimal | None:
        """Monthly cost above the cheapest that was recorded; None when one keeps the promise and none was answered."""
        if self.cheapest is None:
            return Decimal(0)
        return None if self.monthly_cost is None else max(Decimal(0), self.monthly_cost - self.cheapest.monthly_cost)


class SearchNeverEndsError(Exception):
    """The search code asks without end: more questions than its own budget allows."""

    def __init__(self, questions: int, allowed: int) -> None:
        self.questions, self.allowed = questions, allowed
        super().__init__(
            f"the search asked {questions} questions where its budget is {allowed} trials: the search code does not end"
        )


class RecordedTrials:
    """Looks questions up among recorded trials. The same question always gets the same answer."""

    def __init__(self, problem: Problem, results: Sequence[TrialResult]) -> None:
        self._problem = problem
        self._by_key = {problem.key(result.trial): result for result in results}
        self._by_candidate: dict[Candidate, list[TrialResult]] = {}
        for result in results:
            self._by_candidate.setdefault(result.trial.candidate, []).append(result)

    def is_recorded(self, trial: Trial) -> bool:
        """Whether just this was measured."""
        return self._problem.key(trial) in self._by_key

    def answer(self, trial: Trial) -> TrialResult | None:
        """What is known of ``trial``, as its result; None when nothing recorded answers it."""
        found = self._by_key.get(self._problem.key(trial))
        if found is not None:
            return replace(found, trial=trial)
        if trial.purpose is Purpose.SENTINEL:
            return self._last_sentinel(trial)
        return self._implied(trial) if trial.purpose.puts_load else None

    def _last_sentinel(self, trial: Trial) -> TrialResult | None:
        """More looks at the machine than were recorded: it is as it was at the last one."""
        seen = [r for r in self._by_candidate.get(trial.candidate, ()) if r.trial.purpose is Purpose.SENTINEL]
        return replace(seen[-1], trial=trial) if seen else None

    def _implied(self, trial: Trial) -> TrialResult | None:
        """Fails before passes: one at a slower rate overrules them."""
        monotone = not must_hold_half(trial.candidate, self._problem.baseline)
        fails, passes = [], []
        for result in self._by_candidate.get(trial.candidate, ()):
            asked = result.trial
            if not asked.purpose.puts_load:
                continue
            if result.never_ran:
                return _retold(result, trial)
            if asked.seed_block != trial.seed_block or asked.confidence < trial.confidence:
                continue
            same = same_rate(asked.rate, trial.rate)
            if result.verdict.outcome is Outcome.FAIL and (same or (monotone and asked.rate < trial.rate)):
                fails.append(result)
            elif result.passed and (same or (monotone and asked.rate > trial.rate)):
                passes.append(result)
        if fails:  # the nearest rates say the most about how long it takes
            return _retold(max(fails, key=lambda r: r.trial.rate), trial)
        return _retold(min(passes, key=lambda r: r.trial.rate), trial) if passes else None


def replay(
    recorded: RecordedSearch,
    refine: Callable[[Problem, Sequence[TrialResult]], Problem] = lambda problem, _: problem,
    prefer: Callable[[Problem, Sequence[TrialResult]], Preference] = unhinted,
) -> Replay:
    """Run the search code of today on ``recorded``.

    Args:
        recorded: the search.
        refine: what is known of the problem once some trials have run, as the loop that measures uses it.
        prefer: which of equals is asked first, as the loop that measures uses it; by default nobody says.

    Raises:
        SearchNeverEndsError: the search code asks more than its budget allows.
    """
    trials = RecordedTrials(recorded.problem, recorded.results)
    told: list[TrialResult] = []
    answered: list[TrialResult] = []
    unrecorded: list[Trial] = []
    implied = 0
    allowed = recorded.problem.budget.trials
    for _ in range(allowed + 2):
        problem = refine(recorded.problem, told)
        step = next_step(problem, told, preferred=prefer(problem, told))
        if isinstance(step, Decision):
            best = cheapest_recorded(recorded)
            comparison = _compare(recorded.answer, step, best, bool(unrecorded))
            return Replay(step, tuple(answered), implied, tuple(unrecorded), best, comparison)
        found = trials.answer(step)
        if found is None:
            unrecorded.append(step)
        else:
            implied += not trials.is_recorded(step)
            answered.append(found)
        told = judged(recorded.problem, [*told, found or _unanswered(step)])
    raise SearchNeverEndsError(len(told), allowed)


def cheapest_recorded(recorded: RecordedSearch) -> Passing | None:
    """The cheapest configuration that was measured to keep the promise and may be the answer; None when nothing was.

    A pass counts when no trial of the candidate at its rate or a slower one said otherwise, when half of its rate holds
    where that is owed, and when its answers were shown to hold where somebody asks.
    """
    problem = recorded.problem
    allowed = set(problem.candidates)
    best: tuple[Decimal, str, Passing] | None = None
    for result in recorded.results:
        trial = result.trial
        if not _counts(result) or trial.candidate not in allowed or not _may_answer(recorded, trial.candidate):
            continue
        if not _holds(recorded.results, trial, half=must_hold_half(trial.candidate, problem.baseline)):
            continue
        hardware = problem.hardware[trial.candidate.gpu_class]
        replicas = replicas_at_least(problem.demand.peak_rate, trial.rate)
        if replicas <= hardware.replicas_max:
            cost = monthly_cost(replicas, hardware.price_per_hour)
            found = (cost, repr(trial.candidate), Passing(trial.candidate, replicas, cost))
            best = found if best is None else min(best, found, key=lambda it: it[:2])
    return None if best is None else best[2]


def _counts(result: TrialResult) -> bool:
    """Whether it is a pass at full load."""
    return result.passed and result.trial.purpose.puts_load and result.trial.purpose is not Purpose.PARTIAL


def _holds(results: Sequence[TrialResult], passed: Trial, *, half: bool) -> bool:
    """Whether nothing measured of the same candidate contradicts ``passed``, and what it owes besides was shown."""
    halves = False
    for result in results:
        trial = result.trial
        if trial.candidate != passed.candidate or not trial.purpose.puts_load:
            continue
        slower = trial.rate < passed.rate or same_rate(trial.rate, passed.rate)
        if slower and result.verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}:
            return False
        halves |= result.passed and trial.purpose is Purpose.PARTIAL and same_rate(trial.rate, passed.rate / 2)
    return halves or not half


def _may_answer(recorded: RecordedSearch, candidate: Candidate) -> bool:
    """Whether the candidate's answers are good enough: the reference's, today's, or compared with success."""
    problem, pair = recorded.problem, pair_of(candidate)
    if problem.quality is None or pair in {reference_pair(problem), pair_of(problem.baseline)}:
        return True
    compared = [
        r for r in recorded.results if r.trial.purpose is Purpose.QUALITY and pair_of(r.trial.candidate) == pair
    ]
    return bool(compared) and compared[-1].passed


def _compare(recorded: RecordedAnswer, decision: Decision, best: Passing | None, gaps: bool) -> Comparison:
    choice = decision.choice
    now = RecordedAnswer.from_decision(decision)
    if (now.kind, now.candidate, now.replicas) == (recorded.kind, recorded.candidate, recorded.replicas):
        return Comparison.SAME
    if best is None or (choice is not None and choice.monthly_cost <= best.monthly_cost):
        return Comparison.EQUAL
    return Comparison.UNRECORDED if gaps else Comparison.DEARER


def _retold(result: TrialResult, trial: Trial) -> TrialResult:
    """``result`` as that of ``trial``. A pass at a slower rate takes longer in proportion; a fail comes no later."""
    slower = max(1.0, result.trial.rate / trial.rate) if result.passed else 1.0
    return replace(result, trial=trial, gpu_seconds=slower * result.gpu_seconds)


def _unanswered(trial: Trial) -> TrialResult:
    verdict = Verdict(Outcome.INVALID, "nobody recorded an answer to this", NOT_RECORDED, trial.confidence)
    return TrialResult(replace(trial, attempt=max(trial.attempt, LAST_ATTEMPT)), verdict, 0.0)
