"""What runs show about the share of violations, before anybody decides: counts, bounds, quantiles."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from slotune.load.demand import Demand
from slotune.load.records import RunResult
from slotune.verdict.binomial import excess_p_value, share_lower, share_upper
from slotune.verdict.clustering import cautious, cautious_design_effect, design_effect
from slotune.verdict.crowds import Averaged, average_crowd
from slotune.verdict.promise import Promise
from slotune.verdict.run_level import run_share_upper
from slotune.verdict.violations import Judged, Violation, judged_requests

__all__ = ["Evidence", "ShareEvidence", "gather", "weigh"]

_P95 = 0.95

NEAR = 0.5
"""Part of the promised time that a request must have taken, or part of its slowness, to count as nearly late."""


@dataclass(frozen=True, slots=True)
class ShareEvidence:
    """What violation marks alone show. Shares lie in 0..1."""

    requests: int
    violations: int
    effective_requests: float
    """What the requests are worth to a pass."""
    share_lower: float
    share_upper: float
    run_share_upper: float | None
    """None below two runs."""
    excess_p_value: float
    """How likely so many violations are, clusters discounted, if the promise were just kept."""
    average_crowd_share: float | None = None
    """Share of violations with a crowd as it is on average, on which the upper bounds then rest; None: on the plain
    share."""

    def shows_kept(self, share: float) -> bool:
        """Whether both bounds agree that at most ``share`` of all requests violate."""
        return self.share_upper <= share and self.run_share_upper is not None and self.run_share_upper <= share


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a verdict reports. Times are seconds; None means "not measured" or "beyond all that was seen"."""

    share: ShareEvidence
    kinds: Counter[Violation]
    ttft_p95_s: float | None
    ttft_p95_upper_s: float | None
    tokens_per_second_p5: float | None


def weigh(
    runs: Sequence[Sequence[bool]],
    share: float,
    confidence: float,
    severities: Sequence[Sequence[float]] = (),
    averaged: Averaged | None = None,
) -> ShareEvidence:
    """Bounds at ``confidence`` from violation marks, one sequence per run in send order.

    Clusters are discounted by scaling requests and violations alike: the share stays, its certainty shrinks. The
    upper bound, which passes, discounts more than the lower one, see :func:`cautious_design_effect`. It also looks for
    clusters among the slowest ``share`` of requests by ``severities`` (how near each was to a violation, same shape as
    ``runs``): where few violations were seen their clusters weren't either, but the queue that makes them was. Only
    those count that came at least :data:`NEAR` to a violation: neighbours that waited a tenth of the promise together
    say nothing about clusters of broken promises, and discounting them would make short trials pass nothing.

    With ``averaged`` the upper bounds rest on that share and its error in place of the plain share and its clusters.
    They stay at or above the exact binomial bound of what was counted, so no luck excuses more violations than
    independent requests could have shown.
    """
    requests = sum(len(run) for run in runs)
    counts = [sum(map(bool, run)) for run in runs]
    violations = sum(counts)
    effect = design_effect(runs)
    shares = [count / len(run) for count, run in zip(counts, runs, strict=True) if len(run)]
    if averaged is None:
        discount = max(cautious_design_effect(runs), design_effect(_slowest(severities, share, least=NEAR)))
        upper = share_upper(violations / discount, requests / discount, confidence)
    else:
        shares = list(averaged.run_shares)
        expected = averaged.share * requests
        variance = averaged.share * (1 - averaged.share)
        discount = cautious(max(1.0, requests * averaged.standard_error**2 / variance), expected)
        upper = max(
            share_upper(expected / discount, requests / discount, confidence),
            share_upper(violations, requests, confidence),
        )
    return ShareEvidence(
        requests=requests,
        violations=violations,
        effective_requests=requests / discount,
        share_lower=share_lower(violations / effect, requests / effect, confidence),
        share_upper=upper,
        run_share_upper=run_share_upper(shares, confidence),
        excess_p_value=excess_p_value(violations / effect, requests / effect, share),
        average_crowd_share=None if averaged is None else averaged.share,
    )


def gather(runs: Sequence[RunResult], promise: Promise, confidence: float, demand: Demand | None = None) -> Evidence:
    """Everything that ``runs`` show, at ``confidence``; with the ``demand`` that they sent, less their crowds' luck."""
    judged = [judged_requests(run, promise) for run in runs]
    marks = [[one.violation is not None for one in run] for run in judged]
    times = [[_ttft(one) for one in run] for run in judged]
    speeds = sorted(
        record.tokens_per_second for run in runs for record in run.records if record.tokens_per_second is not None
    )
    return Evidence(
        share=weigh(
            marks,
            promise.violation_share,
            confidence,
            [[_severity(one, promise) for one in run] for run in judged],
            None if demand is None else average_crowd(runs, marks, demand, promise),
        ),
        kinds=Counter(one.violation for run in judged for one in run if one.violation is not None),
        ttft_p95_s=_quantile(sorted(t for run in times for t in run if t is not None), _P95),
        ttft_p95_upper_s=_p95_upper([[t for t in run if t is not None] for run in times], confidence),
        tokens_per_second_p5=_quantile(speeds, 1 - _P95),
    )


def _ttft(one: Judged) -> float | None:
    """Infinity for a violation that never brought a token, None for a request whose fate was not known."""
    if one.record is not None and one.record.ttft_s is not None:
        return one.record.ttft_s
    return None if one.violation is None else math.inf


def _severity(one: Judged, promise: Promise) -> float:
    """How near a request came to a violation: above 1 it is one; infinite where nothing could be timed."""
    record = one.record
    if record is None or record.ttft_s is None:
        return 0.0 if one.violation is None else math.inf
    slow = 0.0
    if promise.tokens_per_second_per_user is not None and record.tokens_per_second is not None:
        slow = promise.tokens_per_second_per_user / record.tokens_per_second
    return max(record.ttft_s / promise.ttft_s, slow)


def _slowest(runs: Sequence[Sequence[float]], share: float, least: float = 0.0) -> list[list[bool]]:
    """Marks on the largest ``share`` of all values, as far as they exceed ``least``."""
    ascending = sorted(value for run in runs for value in run)
    if not ascending:
        return []
    threshold = max(least, ascending[_rank(1 - share, len(ascending)) - 1])
    return [[value > threshold for value in run] for run in runs]


def _rank(quantile: float, size: int) -> int:
    """Rank from 1 of the smallest value that at least this share of the sample does not exceed."""
    # The product is rounded first: a hair above a whole number would count one rank too far.
    return max(1, math.ceil(round(quantile * size, 9)))


def _quantile(ascending: Sequence[float], quantile: float) -> float | None:
    """The smallest value that at least this share of the sample does not exceed; None if there is none or infinite.

    An order statistic, not an interpolation: between a number and infinity there is nothing to interpolate.
    """
    if not ascending:
        return None
    value = ascending[_rank(quantile, len(ascending)) - 1]
    return value if math.isfinite(value) else None


def _p95_upper(runs: Sequence[Sequence[float]], confidence: float) -> float | None:
    """The order statistic that bounds p95 from above, clusters of slow requests discounted.

    Clusters are judged where p95 lies in this sample: which requests were among its slowest 5 %.
    """
    ascending = sorted(t for run in runs for t in run)
    if not ascending:
        return None
    effect = design_effect(_slowest(runs, 1 - _P95))
    effective = len(ascending) / effect
    low, high = -1, len(ascending)  # so many values above the bound are few enough, so many are not
    while high - low > 1:
        middle = (low + high) // 2
        if share_upper(middle / effect, effective, confidence) <= 1 - _P95:
            low = middle
        else:
            high = middle
    if low < 0:
        return None
    value = ascending[len(ascending) - 1 - low]
    return value if math.isfinite(value) else None
