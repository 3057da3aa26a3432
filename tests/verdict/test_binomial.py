"""The exact statements, against scipy's own tests, printed tables, and constants that others publish."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from slotune.verdict.binomial import (
    excess_p_value,
    fail_limit,
    fewest_requests,
    pass_limit,
    quantile_upper_rank,
    share_lower,
    share_upper,
)

requests = st.integers(1, 3000)
shares = st.floats(0.005, 0.5)
confidences = st.floats(0.5, 0.999)

# Violations allowed, then the fewest requests that allow so many for a p95 at 95, 90 and 99 % confidence.
FEWEST_FOR_P95 = [
    (0, 59, 45, 90),
    (1, 93, 77, 130),
    (2, 124, 105, 165),
    (3, 153, 132, 198),
    (5, 208, 184, 259),
    (8, 286, 258, 344),
    (10, 336, 306, 398),
    (20, 577, 538, 656),
    (30, 809, 763, 901),
    (50, 1260, 1202, 1372),
]

# Requests, most violations of a pass, fewest of a fail, all for a p95 at 95 %; ranks of the two-sided 95 % interval.
LIMITS_FOR_P95 = [
    (59, 0, 7, None),
    (100, 1, 10, 100),
    (200, 4, 16, 197),
    (300, 8, 22, 293),
    (400, 12, 28, 389),
    (600, 20, 40, 581),
    (1000, 38, 63, 964),
    (2000, 83, 117, 1920),
]


@pytest.mark.parametrize(("allowed", "at_95", "at_90", "at_99"), FEWEST_FOR_P95)
def test_the_table_of_fewest_requests(allowed: int, at_95: int, at_90: int, at_99: int) -> None:
    for n, confidence in ((at_95, 0.95), (at_90, 0.90), (at_99, 0.99)):
        assert pass_limit(n, 0.05, confidence) == allowed
        assert pass_limit(n - 1, 0.05, confidence) == allowed - 1


@pytest.mark.parametrize(("n", "passing", "failing", "upper_rank"), LIMITS_FOR_P95)
def test_the_table_of_limits(n: int, passing: int, failing: int, upper_rank: int | None) -> None:
    assert pass_limit(n, 0.05, 0.95) == passing
    assert fail_limit(n, 0.05, 0.95) == failing
    assert quantile_upper_rank(n, 0.95, 0.95) == n - passing
    assert quantile_upper_rank(n, 0.95, 0.975) == upper_rank


def test_the_published_constants_of_mlperf() -> None:
    assert fewest_requests(0.01, 0.99) == 459 == math.ceil(math.log(0.01) / math.log(0.99))
    assert fewest_requests(0.05, 0.99) == 90
    assert fewest_requests(0.05, 0.95) == 59


@given(requests, shares, confidences)
def test_limits_agree_with_an_independent_binomial(n: int, share: float, confidence: float) -> None:
    passing, failing = pass_limit(n, share, confidence), fail_limit(n, share, confidence)

    def holds(violations: int, side: str) -> bool:
        return bool(stats.binomtest(violations, n, share, alternative=side).pvalue <= 1 - confidence)

    # Within rounding of the boundary either answer is right, so only clear sides are compared.
    if passing >= 0:
        assert stats.binom.cdf(passing, n, share) <= (1 - confidence) * (1 + 1e-9)
    assert passing == n or stats.binom.cdf(passing + 1, n, share) >= (1 - confidence) * (1 - 1e-9)
    if failing <= n:
        assert stats.binom.sf(failing - 1, n, share) <= (1 - confidence) * (1 + 1e-9)
        assert holds(min(n, failing + 1), "greater") or failing == n
    assert failing == 1 or stats.binom.sf(failing - 2, n, share) >= (1 - confidence) * (1 - 1e-9)


@given(st.integers(59, 400), st.integers(0, 2**32))
def test_a_pass_is_what_the_quantile_test_of_scipy_says(n: int, seed: int) -> None:
    latencies = np.random.default_rng(seed).random(n)
    for target in (0.9, 0.95, 0.97, 0.99):
        violations = int((latencies > target).sum())
        want = stats.quantile_test(latencies, q=target, p=0.95, alternative="less").pvalue <= 0.05
        assert (violations <= pass_limit(n, 0.05, 0.95)) == want


@settings(deadline=None)  # the first call imports what takes longer than a test may
@given(st.integers(0, 500), st.integers(1, 2000), confidences)
def test_bounds_are_the_exact_interval_of_scipy(violations: int, n: int, confidence: float) -> None:
    violations = min(violations, n)
    upper = stats.binomtest(violations, n, 0.5, alternative="less").proportion_ci(confidence, "exact").high
    lower = stats.binomtest(violations, n, 0.5, alternative="greater").proportion_ci(confidence, "exact").low
    assert share_upper(violations, n, confidence) == pytest.approx(upper, rel=1e-6, abs=1e-12)
    assert share_lower(violations, n, confidence) == pytest.approx(lower, rel=1e-6, abs=1e-12)


@given(st.integers(0, 200), st.integers(1, 2000))
def test_the_p_value_is_that_of_the_binomial_test(violations: int, n: int) -> None:
    violations = min(violations, n)
    want = stats.binomtest(violations, n, 0.05, alternative="greater").pvalue
    assert excess_p_value(violations, n, 0.05) == pytest.approx(want, rel=1e-6, abs=1e-300)


@given(requests, shares, confidences)
def test_bound_and_limit_are_the_same_statement(n: int, share: float, confidence: float) -> None:
    limit = pass_limit(n, share, confidence)
    if 0 <= limit < n:
        assert share_upper(limit, n, confidence) <= share * (1 + 1e-9)
        assert share_upper(limit + 1, n, confidence) >= share * (1 - 1e-9)


@given(st.floats(0.001, 0.5), st.floats(10, 2000), st.floats(1, 20), confidences)
def test_fewer_effective_requests_never_lower_the_upper_bound(
    share: float, n: float, effect: float, confidence: float
) -> None:
    assert share_upper(share * n / effect, n / effect, confidence) >= share_upper(share * n, n, confidence) - 1e-9


@given(requests, shares, confidences)
def test_more_requests_never_allow_fewer_violations(n: int, share: float, confidence: float) -> None:
    assert (
        pass_limit(n, share, confidence) <= pass_limit(n + 1, share, confidence) <= pass_limit(n, share, confidence) + 1
    )


@given(requests, shares, confidences)
def test_nothing_is_both_a_pass_and_a_fail(n: int, share: float, confidence: float) -> None:
    assert pass_limit(n, share, confidence) < fail_limit(n, share, confidence)


def test_nothing_is_known_without_a_request() -> None:
    assert share_upper(0, 0, 0.95) == 1.0
    assert share_lower(0, 0, 0.95) == 0.0
    assert excess_p_value(0, 0, 0.05) == 1.0
    assert pass_limit(0, 0.05, 0.95) == -1
    assert quantile_upper_rank(10, 0.95, 0.95) is None


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 95.0])
def test_a_share_or_confidence_outside_0_to_1_is_refused_with_its_value(bad: float) -> None:
    with pytest.raises(ValueError, match=f"share is {bad}"):
        pass_limit(100, bad, 0.95)
    with pytest.raises(ValueError, match=f"confidence is {bad}"):
        fail_limit(100, 0.05, bad)
