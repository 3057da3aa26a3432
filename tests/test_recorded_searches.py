"""A change of the search code that loses money on searches that real engines ran is a failed test.

``tests/recorded`` holds searches with every result, and with the rest of their space, as ``bench/record_search.py``
measured them. Each is asked again. Where this fails and the change is right, the message says by how much it differs;
where it asks what nobody measured, record again: ``python -m bench.record_search NAME`` on a quiet machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.search.replay import Comparison, RecordedSearch, cheapest_recorded, replay
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.search_file import SUFFIX, read_search

FILES = sorted((Path(__file__).parent / "recorded").glob(f"*{SUFFIX}"))
ALLOWED = 1.1
"""Trials and GPU-seconds, over those that the recorded search took."""


@pytest.fixture(params=FILES, ids=lambda path: path.name.removesuffix(SUFFIX))
def recorded(request: pytest.FixtureRequest) -> RecordedSearch:
    return read_search(request.param)


def test_todays_search_loses_no_money_on_it(recorded):
    again = replay(recorded, without_what_cannot_fit)
    assert again.unrecorded == (), "the search asks what nobody measured: record again"
    assert again.comparison in {Comparison.SAME, Comparison.EQUAL}
    assert again.regret == 0, f"{again.monthly_cost} a month, and {again.cheapest} keeps the promise"


def test_todays_search_needs_no_more_than_the_recorded_one_did(recorded):
    again = replay(recorded, without_what_cannot_fit)
    assert len(again.results) <= ALLOWED * recorded.answer.trials
    assert again.gpu_seconds <= ALLOWED * recorded.answer.gpu_seconds


def test_the_recorded_answer_was_the_cheapest_of_all_that_was_measured(recorded):
    best = cheapest_recorded(recorded)
    assert best is not None
    assert recorded.answer.monthly_cost == best.monthly_cost


def test_the_recordings_are_of_two_models_and_three_workloads():
    searches = [read_search(path) for path in FILES]
    assert len(searches) >= 3
    assert len({search.problem.demand.identity for search in searches}) >= 3
    assert len({facts.embedding for search in searches for facts in search.problem.models.values()}) >= 2
