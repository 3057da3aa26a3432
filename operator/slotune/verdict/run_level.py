"""What whole runs say about the share of violations: each run counts once, so clusters inside it can't deceive.

Requests of one run share a queue, runs with different seeds don't. The price is few degrees of freedom: below about
five runs the bound is wide. Source: the one-sample t bound of the mean, e.g. Student (1908).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from scipy import special

__all__ = ["run_share_upper"]


def run_share_upper(shares: Sequence[float], confidence: float) -> float | None:
    """Upper confidence bound of the mean violation share over runs: mean + t(c, R-1) · sd / √R, at most 1.

    None below two runs: a single run says nothing about how runs differ.
    """
    runs = len(shares)
    if runs < 2:
        return None
    bound = fmean(shares) + float(special.stdtrit(runs - 1, confidence)) * stdev(shares) / math.sqrt(runs)
    return min(1.0, bound)
