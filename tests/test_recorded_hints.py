"""What was found of trials orders equals: on searches that real engines ran, fewer questions lead to an answer as good.

The recordings are those of ``tests/test_recorded_searches.py``. A question that nobody recorded counts as asked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.diagnose.hints import hints
from slotune.search.lossiness import lossiness
from slotune.search.replay import RecordedSearch, Replay, replay
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.search_file import SUFFIX, read_search

FILES = sorted((Path(__file__).parent / "recorded").glob(f"*{SUFFIX}"))
WITH_EQUALS = "tiny-conversations"
"""The recording in which candidates differ in what no bound knows of. In the others the first of equals that is asked
passes as it is, so nothing can be saved there."""


def asked(again: Replay) -> int:
    return len(again.results) + len(again.unrecorded)


def both(recorded: RecordedSearch) -> tuple[Replay, Replay]:
    """Without hints, and with them."""
    return replay(recorded, without_what_cannot_fit), replay(recorded, without_what_cannot_fit, hints)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(SUFFIX))
def test_hints_never_lead_to_a_worse_answer(path: Path) -> None:
    recorded = read_search(path)
    plain, hinted = both(recorded)
    assert len(hinted.unrecorded) <= len(plain.unrecorded)
    assert (hinted.monthly_cost, hinted.regret) == (plain.monthly_cost, plain.regret)
    assert (hinted.decision.kind, hinted.decision.cost_gap) == (plain.decision.kind, plain.decision.cost_gap)
    models = recorded.problem.models
    lost = [
        None if one.decision.choice is None else lossiness(one.decision.choice.candidate, models)
        for one in (plain, hinted)
    ]
    assert lost[0] == lost[1]
    assert asked(hinted) <= asked(plain)


def test_fewer_trials_are_needed_with_hints_than_without() -> None:
    assert any(WITH_EQUALS in path.name for path in FILES), "in no other recording does an order among equals matter"
    spent = {path.name: tuple(map(asked, both(read_search(path)))) for path in FILES}
    assert sum(hinted for _, hinted in spent.values()) < sum(plain for plain, _ in spent.values()), spent
