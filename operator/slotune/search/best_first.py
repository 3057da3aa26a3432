"""Best-first branch and bound over (candidate, replicas): the first confirmed Pass is the cheapest.

Cost is a step function of the replica count N, so the only question worth a trial is "does c
hold rate/N?". Every candidate stands in line with the smallest N at which it has neither been
refused nor ruled out by an optimistic bound; the cheapest is asked first, and a refusal sends
it to the back of its own line, at N + 1. Anything cheaper than the first confirmed Pass was
therefore asked and refused before. Why not a grid or coordinate moves: a grid costs a thousand
times the GPU time, and coordinate moves get stuck on a step objective (docs/how-it-searches.md, bench/search_space.py).

``next_step`` measures nothing, waits for nothing and remembers nothing: the results are its
memory, so killing whoever calls it loses at most the trial in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from slotune.llama.candidate import Candidate
from slotune.search.answers import judged
from slotune.search.bounds import Bounds, RooflineBounds
from slotune.search.conclude import conclude
from slotune.search.decision import Decision
from slotune.search.drift import Place, Watch
from slotune.search.evidence import Evidence, Option
from slotune.search.finalists import duel_of, measurement_for
from slotune.search.knowledge import ATTEMPTS, Knowledge
from slotune.search.options import NO_PREFERENCE, Preference, best_options, passed_options
from slotune.search.problem import Problem
from slotune.search.rates import (
    COMPARISON_S,
    START_ALLOWANCE_S,
    must_hold_half,
    rates_to_try,
    requests_per_run,
    seconds_at,
)
from slotune.search.story import story_steps
from slotune.search.trial import Purpose, Trial, TrialResult

__all__ = ["next_step"]

MakeBounds = Callable[[Problem, Iterable[TrialResult]], Bounds]

CONFIRMATION_RESERVE = 0.25
"""Share of the budget that the search leaves for confirming an answer."""
SHORTEST_TRIAL_S = 20.0
"""A budget with less than this left buys no trial."""
HALF_LOAD_SEEDS = 2
"""Seed block of half load: neither that of the search (0) nor that of the confirmation (1)."""


def next_step(
    problem: Problem,
    results: Sequence[TrialResult],
    make_bounds: MakeBounds = RooflineBounds.from_results,
    preferred: Preference = NO_PREFERENCE,
) -> Trial | Decision:
    """The next trial, or the decision. Asked twice with the same arguments it says the same.

    Args:
        problem: the search.
        results: everything that was measured for it.
        make_bounds: what a candidate can do at the very best.
        preferred: which of equals to ask first, by whoever knows why trials failed. It rules nothing out and proves
            nothing: without it the answer costs as much.
    """
    results = judged(problem, (r for r in results if _belongs(problem, r)))
    knowledge = Knowledge.from_results(problem, results)
    desk = _Desk(problem, results, knowledge, make_bounds(problem, knowledge.sound), preferred)
    return (
        desk.baseline()
        or desk.sentinel()
        or desk.search()
        or desk.last_sentinel()
        or conclude(Evidence(problem, results, knowledge, desk.bounds, desk.options(), desk.stopped_by_budget))
    )


def _belongs(problem: Problem, result: TrialResult) -> bool:
    """Whether a result can say anything here: a manifest may have lost a GPU class or a model since."""
    candidate = result.trial.candidate
    return candidate.gpu_class in problem.hardware and candidate.variant in problem.models


class _Desk:
    """The one door for trials: it counts the budget and never asks a question twice."""

    def __init__(
        self,
        problem: Problem,
        results: Sequence[TrialResult],
        knowledge: Knowledge,
        bounds: Bounds,
        preferred: Preference,
    ) -> None:
        self.problem, self.results, self.knowledge, self.bounds = problem, results, knowledge, bounds
        self._preferred = preferred
        self._watch = Watch.from_results(problem, results)
        self.stopped_by_budget = False
        self._options: list[Option] | None = None

    def options(self) -> list[Option]:
        """Open options, cheapest first; computed once."""
        if self._options is None:
            self._options = best_options(self.problem, self.knowledge, self.bounds, self._preferred)
        return self._options

    def baseline(self) -> Trial | None:
        """What runs today, at today's replicas, before anything else: it is the story's first sentence."""
        problem = self.problem
        if problem.baseline not in problem.candidates:
            return None
        standing = self.knowledge.standing(problem.baseline)
        owed = problem.demand.peak_rate / problem.replicas_today
        if standing.out is not None or standing.passes(owed) or standing.is_closed(owed):
            return None
        return self._ask(problem.baseline, problem.replicas_today, Purpose.BASELINE)

    def sentinel(self) -> Trial | None:
        """An idle probe again, every few trials on a GPU class: has its machine drifted?"""
        every = self.problem.measurement.sentinel_every
        return None if every == 0 else self._probe_again(self._watch.due(every))

    def last_sentinel(self) -> Trial | None:
        """Nothing is concluded from trials that no sentinel stands behind."""
        return None if self.problem.measurement.sentinel_every == 0 else self._probe_again(self._watch.left())

    def _probe_again(self, places: Iterable[Place]) -> Trial | None:
        """A look at the first of ``places`` where a server's idle speed is known: the baseline's, where it is."""
        servers = (self._watch.server(place, self._is_out) for place in places)
        candidate = next((server for server in servers if server is not None), None)
        if candidate is None:
            return None
        stopped = self.stopped_by_budget
        trial = Trial(
            candidate,
            self.problem.demand.peak_rate / self.problem.replicas_today,
            seed_block=sum(r.trial.purpose is Purpose.SENTINEL for r in self.results),
            confidence=self.problem.measurement.confidence,
            purpose=Purpose.SENTINEL,
        )
        asked = self._within_budget(trial, reserve=0.0)
        self.stopped_by_budget = stopped  # a missing sentinel is a warning, not the end of the search
        return asked

    def _is_out(self, candidate: Candidate) -> bool:
        return self.knowledge.standing(candidate).out is not None

    def search(self) -> Trial | None:
        """The cheapest open question; then the confirmation of the answer; then the story behind it."""
        options = self.options()
        if not options:
            return None
        best = options[0]
        comparison = self.knowledge.answers.owed_before(best.candidate)
        if comparison is not None:
            return self._within_budget(comparison, reserve=self._reserve()) or self._secure()
        if not best.known_pass:
            return self._ask(best.candidate, best.replicas, Purpose.SEARCH) or self._secure()
        if not self._is_settled(best):
            return self._settle(best)
        return self._explain(best) or self._compare(best)

    def _is_confirmed(self, option: Option) -> bool:
        owed = self.problem.demand.peak_rate / option.replicas
        return self.knowledge.standing(option.candidate).is_confirmed(owed)

    def _is_settled(self, option: Option) -> bool:
        """Whether it is confirmed, and holds half of its load where that is owed."""
        return self._is_confirmed(option) and not self._owes_half(option)

    def _owes_half(self, option: Option) -> bool:
        confirmed = self.knowledge.standing(option.candidate).confirmed
        assert confirmed is not None
        return must_hold_half(option.candidate, self.problem.baseline) and not self.knowledge.standing(
            option.candidate
        ).holds_half_of(confirmed.trial.rate)

    def _settle(self, option: Option) -> Trial | None:
        """The confirmation, then half the load: each on a fresh start with fresh seeds."""
        if not self._is_confirmed(option):
            return self._confirm(option)
        confirmed = self.knowledge.standing(option.candidate).confirmed
        assert confirmed is not None
        confidence = self.problem.measurement.confidence
        return self._question(
            option.candidate, confirmed.trial.rate / 2, Purpose.PARTIAL, confidence, seed_block=HALF_LOAD_SEEDS
        )

    def _confirm(self, option: Option) -> Trial | None:
        """A fresh start, fresh seeds, and an error that halves with each confirmation that failed before."""
        passed = self.knowledge.standing(option.candidate).passed
        assert passed is not None
        error = (1 - self.problem.measurement.confidence) / 2**self.knowledge.confirmations_failed
        return self._question(
            option.candidate, passed.trial.rate, Purpose.CONFIRM, 1 - error, seed_block=1, reserve=0.0
        )

    def _explain(self, winner: Option) -> Trial | None:
        """The first open question of the story; None when it is told, or the budget does not reach."""
        if not self.problem.explain:
            return None
        for step in story_steps(self._evidence(), winner.candidate, winner.replicas):
            if step.open_replicas is not None:
                trial = self._ask(step.candidate, step.open_replicas, Purpose.EXPLAIN, reserve=0.0)
                if trial is not None:
                    return trial
        trial = self._todays_answers()
        self.stopped_by_budget = False  # the answer stands; only the story is shorter
        return trial

    def _compare(self, winner: Option) -> Trial | None:
        """The next block of the winner against its equal; then the confirmation of an equal that has more room."""
        duel = duel_of(self._evidence(), winner)
        trial = None
        if duel is not None and duel.open_block is not None:
            candidate, seeds = duel.open_block
            if self.knowledge.attempts(candidate, duel.rate, seeds, self.results) < ATTEMPTS:
                confidence = self.problem.measurement.confidence
                trial = self._question(candidate, duel.rate, Purpose.FINALIST, confidence, seed_block=seeds)
        elif duel is not None:
            favourite = replace(winner, candidate=duel.favourite(self.problem) or winner.candidate)
            trial = None if self._is_settled(favourite) else self._settle(favourite)
        self.stopped_by_budget = False  # the answer stands, and keeps the promise at the same cost
        return trial

    def _evidence(self) -> Evidence:
        return Evidence(self.problem, self.results, self.knowledge, self.bounds, self.options())

    def _todays_answers(self) -> Trial | None:
        """How what runs today answers, where no question of the search led there."""
        comparison = self.knowledge.answers.owed_before(self.problem.baseline)
        return None if comparison is None else self._within_budget(comparison, reserve=0.0)

    def _secure(self) -> Trial | None:
        """The budget is nearly spent without an answer: confirm the cheapest pass, or find any."""
        options = self.options()
        passed = passed_options(self.problem, self.knowledge)
        unsettled = [o for o in passed if not self._is_settled(o)]
        if unsettled:
            return self._settle(unsettled[0])
        if passed or not options:
            return None
        roomy = max(options, key=lambda o: (o.capacity_at_most, -o.replicas))
        comparison = self.knowledge.answers.owed_before(roomy.candidate)
        if comparison is not None:
            return self._within_budget(comparison, reserve=0.0)
        most = self.problem.hardware[roomy.candidate.gpu_class].replicas_max
        replicas = min(most, max(roomy.replicas + 1, 2 * roomy.replicas))
        return self._ask(roomy.candidate, replicas, Purpose.SEARCH, reserve=0.0)

    def _ask(
        self, candidate: Candidate, replicas: int, purpose: Purpose, *, reserve: float | None = None
    ) -> Trial | None:
        """The fastest rate for (candidate, N) that is still open."""
        standing = self.knowledge.standing(candidate)
        owed = self.problem.demand.peak_rate / replicas
        rates = rates_to_try(owed, self.bounds.capacity_at_most(candidate), self.problem.measurement)
        rate = next((r for r in rates if not standing.is_closed(r)), None)
        if rate is None:
            return None
        return self._question(
            candidate,
            rate,
            purpose,
            self.problem.measurement.confidence,
            reserve=self._reserve() if reserve is None else reserve,
        )

    def _question(
        self,
        candidate: Candidate,
        rate: float,
        purpose: Purpose,
        confidence: float,
        *,
        seed_block: int = 0,
        reserve: float = 0.0,
    ) -> Trial | None:
        attempt = 1 + self.knowledge.attempts(candidate, rate, seed_block, self.results)
        trial = Trial(candidate, rate, seed_block, confidence, attempt, purpose)
        return self._within_budget(trial, reserve=reserve)

    def _within_budget(self, trial: Trial, *, reserve: float) -> Trial | None:
        """The trial with the seconds that it may take, or None when the budget does not reach."""
        budget = self.problem.budget
        left = budget.gpu_seconds - self.knowledge.gpu_seconds - reserve
        if self.knowledge.trials >= budget.trials or left < SHORTEST_TRIAL_S:
            self.stopped_by_budget = True
            return None
        return replace(trial, time_limit_s=min(left, self._worst_s(trial)))

    def _worst_s(self, trial: Trial) -> float:
        """Seconds that the measurement takes at most when nothing is at fault."""
        measurement = measurement_for(trial, self.problem.measurement)
        worst = START_ALLOWANCE_S + measurement.request_timeout_s + measurement.startup_timeout_s
        if trial.purpose.asks_answers:
            return worst + COMPARISON_S
        looks = 1 + measurement.extensions
        per_run = requests_per_run(measurement, self.problem.promise, trial.confidence)
        return worst + seconds_at(trial.rate, measurement, looks=looks, per_run=per_run)

    def _reserve(self) -> float:
        return CONFIRMATION_RESERVE * self.problem.budget.gpu_seconds
