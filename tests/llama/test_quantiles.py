"""Any number of figures is kept in little room, near to what they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.quantiles import Quantiles


@given(st.lists(st.floats(0.01, 1e7), min_size=1), st.floats(0.01, 1e7))
def test_how_many_are_above_a_limit_is_known_to_half_a_percent(values: list[float], limit: float) -> None:
    kept = Quantiles()
    kept.add(values)
    spread = kept.spread()
    above = sum(count for value, count in spread if value > limit)
    assert sum(value > 1.0051 * limit for value in values) <= above <= sum(value > limit / 1.0051 for value in values)
    assert sum(count for _, count in spread) == len(values)
    assert list(spread) == sorted(spread)


@given(st.lists(st.floats(0.01, 1e7), min_size=1), st.floats(0.0, 1.0))
def test_no_quantile_is_outside_of_what_was_counted(values: list[float], share: float) -> None:
    kept = Quantiles()
    for value in values:
        kept.add((value,))
    (found,) = kept.at((share,)) or ()
    assert min(values) <= found <= max(values)


def test_a_figure_of_its_own_is_given_back_as_it_was() -> None:
    kept = Quantiles()
    kept.add((5193.0, 1008.0))
    assert kept.spread() == ((1008.0, 1), (5193.0, 1))
    assert kept.at((0.5, 0.95)) == (1008.0, 5193.0)


def test_a_million_figures_take_the_room_of_their_steps() -> None:
    kept = Quantiles()
    for _ in range(10):
        kept.add(range(1, 100_001))
    assert len(kept.spread()) < 1200
    assert kept.at((0.5,)) == pytest.approx((50_000.0,), rel=0.006)
