"""The whole procedure on a modelled server: what just misses the promise is not promoted, what has room is.

A small, seeded version of ``bench/false_promotion.py``, which has the figures. A rule that takes clusters for
independent requests passes the boundary five times too often; one that waits until a crowd's luck has averaged out
promotes a bursty candidate with a fifth of room in about half of the cases.

On a machine with one state the runs of a trial differ by their crowds alone, so the model hardly sees the bound over
runs. A server that is well in one run and ill in the next does.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bench.false_promotion import compare, promotions
from bench.queue_model import WORKLOADS, boundary
from slotune.verdict.judge import judge
from slotune.verdict.verdicts import Outcome
from tests.verdict.builders import PROMISE, run_of_marks, runs_of_counts

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


def test_a_server_that_is_ill_in_half_of_its_runs_passes_rarely_at_the_boundary() -> None:
    """Exactly 5 % of its requests are late: a tenth in every other run, each by itself, and none in the others."""
    luck, tried = np.random.default_rng(7), 200
    passed = 0
    for _ in range(tried):
        ill = luck.random(5) < 0.5
        runs = [run_of_marks(luck.random(200) < (0.1 if one else 0.0)) for one in ill]
        passed += judge(runs, PROMISE, confidence=0.95, planned_requests=1000).outcome is Outcome.PASS
    assert passed <= 0.1 * tried, "without the bound over runs a fifth of them passes"


@given(st.lists(st.integers(0, 40), min_size=2, max_size=8))
@settings(max_examples=60, deadline=None)
def test_nothing_passes_whose_runs_differ_more_than_their_mean_has_room(counts: list[int]) -> None:
    verdict = judge(runs_of_counts(counts), PROMISE, confidence=0.95, planned_requests=200 * len(counts))
    shares = [count / 200 for count in counts]
    bound = np.mean(shares) + stats.t.ppf(0.95, len(shares) - 1) * stats.sem(shares)
    assert verdict.outcome is not Outcome.PASS or bound <= PROMISE.violation_share + 1e-9
