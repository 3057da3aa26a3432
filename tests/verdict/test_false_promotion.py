"""The whole procedure on a modelled server: what just misses the promise is not promoted, what has room is.

A small, seeded version of ``bench/false_promotion.py``, which has the figures. A rule that takes clusters for
independent requests passes the boundary five times too often; one that waits until a crowd's luck has averaged out
promotes a bursty candidate with a fifth of room in about half of the cases.
"""

from __future__ import annotations

import pytest

from bench.false_promotion import compare, promotions
from bench.queue_model import WORKLOADS, boundary

BURSTY = next(workload for workload in WORKLOADS if workload.name == "bursty arrivals")
SHARED = next(workload for workload in WORKLOADS if workload.name == "shared prefix, high utilisation")


def test_a_boundary_is_found_with_its_uncertainty() -> None:
    found = boundary(BURSTY, 80_000)
    assert found.rate == pytest.approx(BURSTY.guess, rel=0.06)
    assert 0 < found.standard_error < 0.06 * found.rate
    assert 0 < found.share_error < 0.01


def test_a_configuration_at_the_boundary_passes_rarely_and_is_not_promoted() -> None:
    tried = [*promotions(SHARED, SHARED.guess, 15), *promotions(BURSTY, BURSTY.guess, 15)]
    assert sum(one.passed_once for one in tried) <= 0.15 * len(tried)
    assert not any(one.promoted for one in tried)


def test_a_configuration_with_a_fifth_of_room_is_promoted_within_4000_requests() -> None:
    tried = list(promotions(BURSTY, 0.8 * BURSTY.guess, 15))
    assert sum(one.promoted for one in tried) >= 0.8 * len(tried)
    assert max(one.requests for one in tried) <= 4000


def test_rules_are_compared_on_the_same_requests() -> None:
    counts = compare(SHARED, SHARED.guess, 0)
    assert set(counts) == {"point estimate", "naive binomial", "clusters and runs", "and the crowd's luck"}
    assert counts["naive binomial"] <= counts["point estimate"]
