"""Strategies on recorded spaces: who loses nothing is compared by time, and what was left out vouches for nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import recorded_grid
from bench.recorded_grid import OURS, RecordedLaboratory, compare, is_cheapest
from bench.strategies import Row
from slotune.llama.failures import FailureClass
from slotune.search.problem import Problem
from slotune.search.rates import seconds_at
from slotune.search.replay import RecordedAnswer, RecordedSearch
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.search_file import to_bytes
from tests.search.worlds import World, candidate, live, problem

TODAY, BEST = candidate(slots=8), candidate("Q8_0", slots=8)
SPACE = problem([TODAY, BEST], replicas_today=5)
GRID = Row("grid", 20, 10.0, (2,))


def measured(world: World, one: object, rate: float) -> TrialResult:
    return world.measure(Trial(one, rate))  # type: ignore[arg-type]  # a candidate


def search(space: Problem, world: World, more: tuple[TrialResult, ...] = ()) -> RecordedSearch:
    decision, results = live(space, world)
    return RecordedSearch(space, (*results, *more), RecordedAnswer.from_decision(decision))


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        ([GRID, Row(OURS, 4, 2.0, (2,))], True),
        ([GRID, Row(OURS, 4, 2.0, (3,))], False),
        ([GRID, Row(OURS, 4, 2.0, (1,))], False),
        ([GRID, Row("lucky", 3, 1.0, (2, 2)), Row(OURS, 4, 2.0, (2,))], False),
        ([GRID, Row("sometimes lucky", 3, 1.0, (2, 3)), Row(OURS, 4, 2.0, (2,))], True),
        ([GRID, Row("wrong", 1, 0.1, (5,)), Row(OURS, 4, 2.0, (2,))], True),
        ([GRID, Row(f"{OURS}, without hints", 3, 1.0, (2,)), Row(OURS, 4, 2.0, (2,))], True),
    ],
)
def test_ours_must_lose_nothing_and_take_no_longer_than_any_that_loses_nothing(rows, want):
    assert is_cheapest(rows, 2) == want


def test_a_server_that_never_ran_costs_peers_what_it_cost():
    world = World({TODAY: 1e9}, failures={BEST: FailureClass.OUT_OF_MEMORY_KV})
    recorded = search(SPACE, world, (measured(world, BEST, 6.0), measured(world, TODAY, 6.0)))
    peer = RecordedLaboratory(recorded)
    peer.ask(Trial(BEST, 6.0))
    assert peer.gpu_seconds == 30.0
    peer.ask(Trial(TODAY, 6.0))
    assert peer.gpu_seconds >= 30.0 + seconds_at(6.0, SPACE.measurement)


def test_a_recording_that_was_left_out_is_no_success(tmp_path: Path, monkeypatch, capsys):
    recorded = search(SPACE, World({TODAY: 1.2, BEST: 3.0}))
    assert {Purpose.CONFIRM} <= {result.trial.purpose for result in recorded.results}
    path = tmp_path / "alone.json.gz"
    path.write_bytes(to_bytes(recorded, version="1", packed=True))
    assert compare(path) is None
    monkeypatch.setattr(recorded_grid, "RECORDED", tmp_path)
    assert recorded_grid.main() == 1
    said = capsys.readouterr().out
    assert "left out, its space was not measured as a whole" in said
    assert "0 of 1 recordings compared" in said
