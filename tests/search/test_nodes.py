"""A look goes where the trials ran that it judges, blocks of a comparison run together, and all else runs anywhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.load.summary import IdleProbe
from slotune.search.best_first import next_step
from slotune.search.nodes import preferred_node
from slotune.search.problem import Measurement
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome
from tests.search.worlds import World, candidate, problem

TODAY, OTHER = candidate(slots=8), candidate(slots=4)
SPACE = problem([TODAY, OTHER], measurement=Measurement(sentinel_every=3))
WORLD = World({TODAY: 6.0, OTHER: 6.0}, probe=IdleProbe(0.001, 10_000.0, 0.01))


def ran(purpose: Purpose, node: str, one=TODAY, seeds: int = 0) -> TrialResult:
    return replace(WORLD.measure(Trial(one, 6.0, seeds, purpose=purpose)), node=node)


def test_a_look_goes_to_the_node_with_most_to_judge() -> None:
    results = [ran(Purpose.BASELINE, "a"), ran(Purpose.SEARCH, "b", OTHER), ran(Purpose.SEARCH, "b", OTHER, 5)]
    step = next_step(SPACE, results)
    assert isinstance(step, Trial)
    assert (step.purpose, step.candidate) == (Purpose.SENTINEL, OTHER), "today's idle speed on b is not known"
    assert preferred_node(SPACE, results, step) == "b"
    results.append(replace(WORLD.measure(step), node="b"))
    assert preferred_node(SPACE, results, replace(step, candidate=TODAY)) == "a"


def test_blocks_run_where_the_first_of_them_ran_and_that_where_its_candidate_did() -> None:
    block = Trial(OTHER, 6.0, 3, purpose=Purpose.FINALIST)
    results = [
        ran(Purpose.SEARCH, "a", OTHER),
        ran(Purpose.CONFIRM, "b", OTHER, 1),
        ran(Purpose.CONFIRM, "c", TODAY, 1),
    ]
    assert preferred_node(SPACE, results, block) == "b"
    results.append(ran(Purpose.FINALIST, "d", TODAY, 3))
    assert preferred_node(SPACE, results, block) == "d"
    spoilt = replace(results[-1], verdict=replace(results[-1].verdict, outcome=Outcome.INVALID))
    assert preferred_node(SPACE, [*results[:-1], spoilt], block) == "b"


@pytest.mark.parametrize("purpose", sorted(set(Purpose) - {Purpose.SENTINEL, Purpose.FINALIST}))
def test_what_is_held_against_the_promise_runs_anywhere(purpose: Purpose) -> None:
    assert preferred_node(SPACE, [ran(Purpose.BASELINE, "a")], Trial(TODAY, 6.0, purpose=purpose)) is None


@pytest.mark.parametrize("purpose", [Purpose.SENTINEL, Purpose.FINALIST])
def test_where_no_node_is_known_any_will_do(purpose: Purpose) -> None:
    asked = Trial(TODAY, 6.0, 3, purpose=purpose)
    assert preferred_node(SPACE, [], asked) is None
    assert preferred_node(SPACE, [ran(Purpose.BASELINE, "")], asked) is None
