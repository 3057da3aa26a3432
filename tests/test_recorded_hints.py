"""What was found of trials orders equals: on searches that real engines ran, fewer questions lead to an answer as good.

The recordings are those of ``tests/test_recorded_searches.py``. A question that nobody recorded counts as asked.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from slotune.diagnose.hints import hints
from slotune.search.lossiness import lossiness
from slotune.search.options import Preference, unhinted
from slotune.search.problem import Problem
from slotune.search.replay import RecordedSearch, Replay, replay
from slotune.search.trial import TrialResult
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


Prefer = Callable[[Problem, Sequence[TrialResult]], Preference]
ORDERS = 40
"""Random ones: their mean is known within a third of a trial."""


def reversed_hints(problem: Problem, results: Sequence[TrialResult]) -> Preference:
    """What hints would have asked first comes last."""
    return {candidate: -place for candidate, place in hints(problem, results).items()}


def by_lot(seed: int) -> Prefer:
    """Equals in an order of their own, the same through the whole search."""

    def prefer(problem: Problem, _results: Sequence[TrialResult]) -> Preference:
        drawn = list(problem.candidates)
        random.Random(seed).shuffle(drawn)
        return {candidate: place for place, candidate in enumerate(drawn)}

    return prefer


@cache
def recordings() -> tuple[RecordedSearch, ...]:
    assert any(WITH_EQUALS in path.name for path in FILES), "in no other recording does an order among equals matter"
    return tuple(map(read_search, FILES))


def spent(prefer: Prefer) -> int:
    """Questions over all recordings."""
    return sum(asked(replay(recorded, without_what_cannot_fit, prefer)) for recorded in recordings())


def test_hints_need_fewer_trials_than_the_same_search_without_them() -> None:
    assert spent(hints) < spent(unhinted)


def test_hints_need_fewer_trials_than_their_reverse() -> None:
    """So it is what they say that helps, and not that the order is another one."""
    assert spent(hints) <= spent(reversed_hints) - 3


def test_hints_need_fewer_trials_than_the_mean_of_orders_by_lot() -> None:
    assert spent(hints) <= statistics.mean(spent(by_lot(seed)) for seed in range(ORDERS)) - 1
