"""How many violations among n requests show something about the share of all requests that are violations.

Exact binomial statements, not a point estimate: a candidate whose true share lies at the promise passes a point
estimate half of the time. Only ``scipy.special`` is imported, since ``scipy.stats`` costs two seconds at start-up.

Sources: Clopper and Pearson, *Biometrika* 26 (1934), for the bounds; Conover, *Practical Nonparametric Statistics*,
3rd ed. (1999), §3.2, for quantiles from order statistics. MLPerf's early stopping of latency percentiles is the same
statement.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import special

__all__ = [
    "excess_p_value",
    "fail_limit",
    "fewest_requests",
    "pass_limit",
    "quantile_upper_rank",
    "share_lower",
    "share_upper",
]


def fewest_requests(share: float, confidence: float) -> int:
    """Fewest requests, none of them a violation, that show "at most ``share`` violate": (1 - share)^n ≤ 1 - c.

    59 for a p95 at 95 %; 459 for a p99 at 99 %, as in MLPerf.
    """
    _check(share, confidence)
    estimate = max(1, math.ceil(math.log1p(-confidence) / math.log1p(-share)) - 1)
    # The logarithms may round either way at an exact boundary, the binomial decides.
    return next(n for n in range(estimate, estimate + 3) if pass_limit(n, share, confidence) >= 0)


@lru_cache(maxsize=4096)
def pass_limit(requests: int, share: float, confidence: float) -> int:
    """Most violations among ``requests`` with which "at most ``share`` of all requests violate" is shown.

    The largest x with P(Bin(requests, share) ≤ x) ≤ 1 - confidence; -1 when even none would be too many.
    """
    _check(share, confidence)
    low, high = -1, requests  # P(X <= low) is small enough, P(X <= high) = 1 is not
    while high - low > 1:
        middle = (low + high) // 2
        if special.bdtr(middle, requests, share) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=4096)
def fail_limit(requests: int, share: float, confidence: float) -> int:
    """Fewest violations among ``requests`` that show "more than ``share`` of all requests violate".

    The smallest x with P(Bin(requests, share) ≥ x) ≤ 1 - confidence; ``requests + 1`` when not even all of them
    would show it.
    """
    _check(share, confidence)
    low, high = 0, requests + 1  # P(X >= low) = 1 is too much, P(X >= high) = 0 is not
    while high - low > 1:
        middle = (low + high) // 2
        if special.bdtrc(middle - 1, requests, share) <= 1 - confidence:
            high = middle
        else:
            low = middle
    return high


def share_upper(violations: float, requests: float, confidence: float) -> float:
    """One-sided upper Clopper-Pearson bound of the share of violations, 0..1.

    ``requests`` may be fractional (an effective sample size), and ``violations`` with it. Without a request nothing
    is known: 1.0.
    """
    if violations >= requests:
        return 1.0
    return float(special.betaincinv(violations + 1, requests - violations, confidence))


def share_lower(violations: float, requests: float, confidence: float) -> float:
    """One-sided lower Clopper-Pearson bound of the share of violations, 0..1; the mirror of :func:`share_upper`."""
    if violations <= 0 or requests <= 0:
        return 0.0
    return float(special.betaincinv(violations, requests - violations + 1, 1 - confidence))


def excess_p_value(violations: float, requests: float, share: float) -> float:
    """P(Bin(requests, share) ≥ violations): how likely so many violations are if the promise were just kept.

    Both counts may be fractional; the binomial tail is then read as the incomplete beta function that equals it at
    whole numbers. It stays exact under curtailment: stopping at the k-th violation, the number of requests seen is
    negative binomial, and P(N ≤ n) is this very tail.
    """
    if violations <= 0 or requests <= 0:
        return 1.0
    return float(special.betainc(violations, max(0.0, requests - violations) + 1, share))


def quantile_upper_rank(requests: int, quantile: float, confidence: float) -> int | None:
    """Rank (1 is the smallest) of the order statistic that bounds a quantile from above; None if no sample value does.

    Of 200 latencies the 5th largest, rank 196, is at 95 % confidence not below the true p95.
    """
    exceedances = pass_limit(requests, 1 - quantile, confidence)
    return None if exceedances < 0 else requests - exceedances


def _check(share: float, confidence: float) -> None:
    if not 0 < share < 1:
        raise ValueError(f"share is {share}: it must lie between 0 and 1")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}: it must lie between 0 and 1, for example 0.95")
