"""A change of the search code that loses money on searches that real engines ran is a failed test.

``tests/recorded`` holds searches with every result, and with the rest of their space, as ``bench/record_search.py``
measured them. Each is asked again. Where this fails and the change is right, the message says by how much it differs;
where it asks what nobody measured, complete the recording on a quiet machine:
``python -m bench.record_search --complete NAME``.

That the recordings see such changes is tested as well, by search code that was broken on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from slotune.search import best_first, evidence, options
from slotune.search.bounds import replicas_at_least
from slotune.search.evidence import Evidence, Option
from slotune.search.knowledge import Knowledge
from slotune.search.lossiness import lossiness
from slotune.search.problem import Problem, Pruned
from slotune.search.rates import must_hold_half
from slotune.search.replay import Comparison, RecordedSearch, Replay, SearchNeverEndsError, cheapest_recorded, replay
from slotune.search.standing import Standing
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.search_file import SUFFIX, read_search
from slotune.verdict.verdicts import Outcome

FILES = sorted((Path(__file__).parent / "recorded").glob(f"*{SUFFIX}"))
SEARCHES = {path.name.removesuffix(SUFFIX): read_search(path) for path in FILES}
ALLOWED = 1.1
"""Trials and GPU-seconds, over those that the recorded search took."""


@pytest.fixture(params=SEARCHES)
def recorded(request: pytest.FixtureRequest) -> RecordedSearch:
    return SEARCHES[request.param]


def faults(recorded: RecordedSearch, again: Replay) -> list[str]:
    """What is worse than it was, in words."""
    found = []
    models, choice, best, then = recorded.problem.models, again.decision.choice, again.cheapest, recorded.answer
    if again.unrecorded:
        found.append(f"the search asks what nobody measured: complete the recording ({again.unrecorded})")
    if again.comparison not in {Comparison.SAME, Comparison.EQUAL}:
        found.append(f"{again.comparison}: {again.decision.reason}")
    if again.regret != 0:
        found.append(f"{again.monthly_cost} a month, and {best} keeps the promise")
    if choice and best and lossiness(choice.candidate, models) > lossiness(best.candidate, models):
        found.append(f"{choice.candidate} loses more of the answers than {best.candidate}, which costs as little")
    if len(again.results) > ALLOWED * then.trials:
        found.append(f"{len(again.results)} trials, {then.trials} then")
    if again.gpu_seconds > ALLOWED * then.gpu_seconds:
        found.append(f"{again.gpu_seconds:.0f} s, {then.gpu_seconds:.0f} s then")
    return found


def test_todays_search_loses_nothing_on_it_and_needs_no_more_than_the_recorded_one(recorded):
    assert faults(recorded, replay(recorded, without_what_cannot_fit)) == []


def test_the_recorded_answer_was_the_cheapest_of_all_that_was_measured(recorded):
    best = cheapest_recorded(recorded)
    assert best is not None
    assert recorded.answer.monthly_cost == best.monthly_cost


def test_the_recordings_are_of_two_models_and_three_workloads():
    assert len(SEARCHES) >= 3
    assert len({search.problem.demand.identity for search in SEARCHES.values()}) >= 3
    assert len({facts.embedding for search in SEARCHES.values() for facts in search.problem.models.values()}) >= 2


# ---------------------------------------------------------------------- search code that was broken on purpose

Refine = Callable[[Problem, Sequence[TrialResult]], Problem]


def forgets(name: str, value: Any) -> Refine:
    """A space without the candidates that have ``value`` in field ``name``; what runs today stays."""

    def space(problem: Problem, results: Sequence[TrialResult]) -> Problem:
        fitting = without_what_cannot_fit(problem, results)
        kept = (c for c in fitting.candidates if c == problem.baseline or getattr(c, name) != value)
        return replace(fitting, candidates=tuple(kept))

    return space


def keeps_as_today(name: str) -> Refine:
    """A space that ignores the dimension ``name``."""

    def space(problem: Problem, results: Sequence[TrialResult]) -> Problem:
        fitting = without_what_cannot_fit(problem, results)
        kept = (c for c in fitting.candidates if getattr(c, name) == getattr(problem.baseline, name))
        return replace(fitting, candidates=tuple(kept))

    return space


RECALL, IS_CLOSED, LEARN, REFUSE = Standing._recall, Standing.is_closed, Knowledge._learn, Standing.refuse
BEST_OPTIONS, REPLICAS_FOR = best_first.best_options, Evidence.replicas_for


def takes_a_pass_for_a_confirmation(standing: Standing) -> None:
    RECALL(standing)
    standing.confirmed = standing.passed


def confirms_on_the_same_seeds(desk: best_first._Desk, option: Option) -> Trial | None:
    passed = desk.knowledge.standing(option.candidate).passed
    assert passed is not None
    return replace(passed.trial, purpose=Purpose.CONFIRM)


def passes_what_stayed_open(knowledge: Knowledge, problem: Problem, result: TrialResult) -> None:
    if result.verdict.outcome is Outcome.INCONCLUSIVE:
        result = replace(result, verdict=replace(result.verdict, outcome=Outcome.PASS))
    LEARN(knowledge, problem, result)


def gives_up_what_was_refused_once(standing: Standing, result: TrialResult) -> None:
    REFUSE(standing, result)
    standing.out = Pruned(result.trial.candidate, "Refused", "it was refused at some rate")


@dataclass(frozen=True)
class Mutant:
    """Search code with one defect."""

    patches: tuple[tuple[Any, str, Any], ...] = ()
    """(owner, name, what stands there instead)."""
    space: Refine = without_what_cannot_fit
    unseen: str = ""
    """Why no recording may see it; empty where at least one must."""


ANY_OWES_HALF = any(
    search.answer.candidate and must_hold_half(search.answer.candidate, search.problem.baseline)
    for search in SEARCHES.values()
)
MUTANTS = {
    "takes a pass for a confirmation": Mutant(((Standing, "_recall", takes_a_pass_for_a_confirmation),)),
    "confirms on the seeds of the search": Mutant(((best_first._Desk, "_confirm", confirms_on_the_same_seeds),)),
    "never asks half of the load": Mutant(
        ((best_first, "must_hold_half", lambda *_: False), (evidence, "must_hold_half", lambda *_: False)),
        unseen="" if ANY_OWES_HALF else "no recorded answer owes half of its load",
    ),
    "first asks one server too many": Mutant(
        ((options, "replicas_at_least", lambda peak, capacity: replicas_at_least(peak, capacity) + 1),)
    ),
    "leaves out a number of servers after a refusal": Mutant(
        ((Standing, "is_closed", lambda standing, rate: IS_CLOSED(standing, rate) or IS_CLOSED(standing, 2 * rate)),),
        unseen="where the answer was refused with fewer servers, another that was not does for as little",
    ),
    "answers one server too many": Mutant(
        ((Evidence, "replicas_for", lambda known, rate: REPLICAS_FOR(known, rate) + 1),)
    ),
    "answers one server too few": Mutant(
        ((Evidence, "replicas_for", lambda known, rate: max(1, REPLICAS_FOR(known, rate) - 1)),)
    ),
    "asks the dearest first": Mutant(
        ((best_first, "best_options", lambda *known: sorted(BEST_OPTIONS(*known), key=lambda o: -o.cost_per_hour)),)
    ),
    "asks the lossiest of equals first": Mutant(
        ((options, "lossiness", lambda c, models: tuple(-place for place in lossiness(c, models))),)
    ),
    "takes what stayed open for a pass": Mutant(((Knowledge, "_learn", passes_what_stayed_open),)),
    "gives up a candidate after one refusal": Mutant(
        ((Standing, "refuse", gives_up_what_was_refused_once),),
        unseen="where the answer was refused with fewer servers, another that was not does for as little",
    ),
    "keeps what runs today": Mutant(space=lambda problem, _: replace(problem, candidates=(problem.baseline,))),
    "ignores the cache": Mutant(space=keeps_as_today("cache_prompt")),
    "ignores the slots": Mutant(space=keeps_as_today("parallel_slots")),
    "ignores the weights": Mutant(space=keeps_as_today("variant")),
    "forgets Q8_0": Mutant(space=forgets("variant", "Q8_0")),
    "forgets Q4_0": Mutant(space=forgets("variant", "Q4_0")),
    "forgets many slots": Mutant(space=forgets("parallel_slots", 8)),
    "forgets a few slots": Mutant(
        space=forgets("parallel_slots", 4), unseen="one slot with the same weights does for as little where four do"
    ),
    "forgets one slot": Mutant(space=forgets("parallel_slots", 1), unseen="no answer has a single slot"),
    "forgets other servers for today's weights": Mutant(
        space=forgets("variant", "F16"), unseen="fewer bits do with fewer servers in all of them"
    ),
}
"""A candidate that would not have won can be forgotten unseen: the answer is the same, and found sooner."""


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, instead in mutant.patches:
            patch.setattr(owner, name, instead)
        yield


def seen_by(mutant: Mutant) -> list[str]:
    """Names of the recordings on which it is a failed test."""
    names = []
    for name, recorded in SEARCHES.items():
        with broken(mutant):
            try:
                red = faults(recorded, replay(recorded, mutant.space)) != []
            except SearchNeverEndsError:
                red = True
        if red:
            names.append(name)
    return names


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_the_recordings_see_search_code_that(mutant: Mutant) -> None:
    assert seen_by(mutant) or mutant.unseen
