"""Every trial measures the same seeds, each in an order of its own that anybody can draw again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotune.sandbox.order import run_order

LOTS = st.text("0123456789abcdef", min_size=10, max_size=10)


@given(st.integers(1, 4), st.integers(1, 50), LOTS)
def test_an_order_leaves_no_run_out_and_takes_none_from_another_look(look: int, runs: int, lot: str) -> None:
    assert sorted(run_order(look, runs, lot)) == list(range((look - 1) * runs, look * runs))


@given(st.integers(1, 4), st.integers(1, 50), LOTS)
def test_the_same_trial_has_the_same_order(look: int, runs: int, lot: str) -> None:
    assert run_order(look, runs, lot) == run_order(look, runs, lot)


def test_trials_differ_in_their_order_and_no_run_is_always_first() -> None:
    orders = {run_order(1, 5, f"{number:010x}") for number in range(200)}
    assert {order[0] for order in orders} == {0, 1, 2, 3, 4}
    assert len(orders) > 50


def test_without_a_lot_the_order_stays() -> None:
    assert run_order(2, 3, "") == (3, 4, 5)
