"""A recorded search run again without a server: the search code asks, the recorded trials answer, money is compared.

So a change of the search code is judged on what real engines did, not on a model that shares its assumptions. What it
loses is its regret: what its answer costs above the cheapest configuration that was recorded to keep the promise. An
answer that the search was not shown to keep it, by what it asked itself, is no answer, however cheap. Both go by a rule
of their own (:mod:`slotune.search.kept`).

A question is answered by the trial that asked the same, or by one that implies it: capacity is monotone, so a Pass at a
faster rate is a Pass, a Fail at a slower one is a Fail, and a server that never ran does so at no rate. Seeds are never
mixed, as a confirmation on the seeds of the search would confirm nothing. For what pays off at full load only
(:func:`slotune.search.rates.must_hold_half`) a Pass says something about slower rates once half of it was shown to
hold, and a Fail nothing about faster ones. What nobody recorded stays unanswered: the search is told that it cannot be
measured, and the replay says so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.search.answers import judged
from slotune.search.best_first import next_step
from slotune.search.decision import Decision, DecisionKind
from slotune.search.kept import Passing, cheapest_kept, is_kept
from slotune.search.options import Preference, unhinted
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

    SAME = "Same"  # the recorded one, to the letter, and nothing recorded is cheaper
    EQUAL = "Equal"  # another one, and nothing recorded is cheaper
    DEARER = "Dearer"  # something recorded keeps the promise for less, or at all
    BREAKS_PROMISE = "BreaksPromise"  # what was asked does not show that it keeps the promise, or something denies it
    UNRECORDED = "Unrecorded"  # it is dearer, but questions on the way had no recorded answer


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
        """Monthly cost above the cheapest that was recorded to keep the promise.

        None when there is one and none was answered, and for an answer that breaks it.
        """
        if self.comparison is Comparison.BREAKS_PROMISE:
            return None
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
        known = [r for r in self._by_candidate.get(trial.candidate, ()) if r.trial.purpose.puts_load]
        never = next((result for result in known if result.never_ran), None)
        if never is not None:
            return _retold(never, trial)
        if trial.purpose is Purpose.FINALIST:
            return None  # what counts is how much room there is at just this rate
        monotone = not must_hold_half(trial.candidate, self._problem.baseline)
        fails, passes = [], []
        for result in known:
            asked = result.trial
            if asked.seed_block != trial.seed_block or asked.confidence < trial.confidence:
                continue
            same = same_rate(asked.rate, trial.rate)
            if result.verdict.outcome is Outcome.FAIL and (same or (monotone and asked.rate < trial.rate)):
                fails.append(result)
            elif result.passed and (same or (asked.rate > trial.rate and (monotone or _holds_half(known, asked.rate)))):
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
            comparison = _compare(recorded, step, told, best, bool(unrecorded))
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
    """The cheapest configuration that was recorded to keep the promise and may be the answer; None when nothing was."""
    return cheapest_kept(recorded.problem, recorded.results)


def _compare(
    recorded: RecordedSearch, decision: Decision, told: Sequence[TrialResult], best: Passing | None, gaps: bool
) -> Comparison:
    """Money comes after the promise: what breaks it may cost as little as it likes."""
    then, now = recorded.answer, RecordedAnswer.from_decision(decision)
    if not _keeps_promise(recorded, decision, told):
        return Comparison.BREAKS_PROMISE
    loses = best is not None and (now.monthly_cost is None or now.monthly_cost > best.monthly_cost)
    if not loses and (now.kind, now.candidate, now.replicas) == (then.kind, then.candidate, then.replicas):
        return Comparison.SAME
    dearer = then.monthly_cost is not None and (now.monthly_cost is None or now.monthly_cost > then.monthly_cost)
    if gaps and (loses or dearer):
        return Comparison.UNRECORDED
    return Comparison.DEARER if loses else Comparison.EQUAL


def _keeps_promise(recorded: RecordedSearch, decision: Decision, told: Sequence[TrialResult]) -> bool:
    """Whether what the search was told shows that its answer keeps the promise, and nothing recorded denies it."""
    problem, choice = recorded.problem, decision.choice
    if choice is None:
        return True
    todays = decision.kind is DecisionKind.BUDGET_EXHAUSTED and choice.candidate == problem.baseline
    stays = todays and choice.replicas == problem.replicas_today
    return is_kept(problem, choice.candidate, choice.replicas, told, recorded.results, stays=stays)


def _holds_half(known: Sequence[TrialResult], rate: float) -> bool:
    halves = (r for r in known if r.passed and r.trial.purpose is Purpose.PARTIAL)
    return any(same_rate(half.trial.rate, rate / 2) for half in halves)


def _retold(result: TrialResult, trial: Trial) -> TrialResult:
    """``result`` as that of ``trial``. A pass at a slower rate takes longer in proportion; a fail comes no later."""
    slower = max(1.0, result.trial.rate / trial.rate) if result.passed else 1.0
    return replace(result, trial=trial, gpu_seconds=slower * result.gpu_seconds)


def _unanswered(trial: Trial) -> TrialResult:
    verdict = Verdict(Outcome.INVALID, "nobody recorded an answer to this", NOT_RECORDED, trial.confidence)
    return TrialResult(replace(trial, attempt=max(trial.attempt, LAST_ATTEMPT)), verdict, 0.0)
