"""How many independent requests a sample is worth: known chains, few violations, and the extremes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.verdict.clustering import cautious_design_effect, design_effect, effective_requests

marks = st.lists(st.lists(st.booleans(), max_size=60), max_size=6)


def two_state_chain(generator: np.random.Generator, n: int, share: float, effect: float) -> list[bool]:
    """Marks whose lag-1 autocorrelation r gives the design effect (1 + r) / (1 - r)."""
    r = (effect - 1) / (effect + 1)
    draws = generator.random(n)
    chain = np.empty(n, dtype=bool)
    chain[0] = draws[0] < share
    for i in range(1, n):
        chain[i] = draws[i] < share + r * (chain[i - 1] - share)
    return [bool(mark) for mark in chain]


@pytest.mark.parametrize("effect", [1.0, 2.0, 6.0])
def test_the_design_effect_of_a_known_chain_is_recovered(effect: float) -> None:
    generator = np.random.default_rng(3)
    estimates = [design_effect([two_state_chain(generator, 1000, 0.05, effect) for _ in range(5)]) for _ in range(60)]
    assert np.mean(estimates) == pytest.approx(effect, rel=0.1)


def test_no_violation_or_nothing_else_leaves_the_plain_number() -> None:
    assert effective_requests([[False] * 100, [False] * 50]) == 150
    assert effective_requests([[True] * 100, [True] * 50]) == 150
    assert effective_requests([]) == 0
    assert effective_requests([[], []]) == 0


def test_violations_far_apart_leave_the_plain_number() -> None:
    run = [i % 40 == 20 for i in range(200)]
    assert effective_requests([run] * 5) == pytest.approx(1000)


def test_neighbouring_violations_count_less_than_scattered_ones() -> None:
    together = [98 <= i < 102 for i in range(200)]
    apart = [i in {20, 70, 120, 170} for i in range(200)]
    assert effective_requests([together, [False] * 200]) < 0.5 * effective_requests([apart, [False] * 200])


def test_a_run_that_goes_badly_as_a_whole_is_one_cluster() -> None:
    good, bad = [False] * 200, [True] * 200
    assert effective_requests([bad, good, good, good, good]) < 20


def test_clusters_do_not_reach_from_one_run_into_the_next() -> None:
    end, begin = [False] * 99 + [True], [True] + [False] * 99
    assert effective_requests([end, begin]) == pytest.approx(200)


def test_a_pass_assumes_more_clustering_the_fewer_clusters_were_seen() -> None:
    one_cluster = [[90 <= i < 95 for i in range(200)], [False] * 200]
    ten_clusters = [[i % 20 < 5 for i in range(200)]] * 2
    few = cautious_design_effect(one_cluster) / design_effect(one_cluster)
    many = cautious_design_effect(ten_clusters) / design_effect(ten_clusters)
    assert few > 1.5 > many >= 1.0


@given(marks)
def test_the_effective_number_lies_between_none_and_all(runs: list[list[bool]]) -> None:
    total = sum(map(len, runs))
    assert 0 <= effective_requests(runs) <= total
    assert total == 0 or effective_requests(runs) > 0
    assert cautious_design_effect(runs) >= design_effect(runs) >= 1


@given(marks, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(runs: list[list[bool]], random: object) -> None:
    shuffled = list(runs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert effective_requests(shuffled) == pytest.approx(effective_requests(runs), rel=1e-6)
