"""Prompt lengths: a normal distribution cut at both ends whose mean is the mean that was declared.

Cutting a normal distribution moves its mean when the cuts are not symmetric (a mean of 500 tokens, at least
400 of shared prefix, at most 4,000). The declared mean is what costs money, so the centre is moved until the
mean after cutting is right again. Pure.

Formulas: mean and quantiles of the truncated normal distribution, Johnson, Kotz and Balakrishnan,
Continuous Univariate Distributions 1 (1994), chapter 13, section 10.1.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from slotune.load.demand import SyntheticPrompts

__all__ = ["DemandError", "PromptLengths"]

_HALVINGS = 80
"""Bisection steps for the centre: far below a token for any length."""


class DemandError(ValueError):
    """A demand that contradicts itself. The message names the field, its value and the cure."""


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Lengths in tokens, shared prefix included."""

    centre: float
    spread: float
    least: int
    most: int

    @classmethod
    def of(cls, prompts: SyntheticPrompts) -> PromptLengths:
        """Fit the distribution to what was declared.

        Raises:
            DemandError: no such distribution exists.
        """
        mean, spread = prompts.input_tokens_mean, float(prompts.input_tokens_stddev)
        # One token behind the prefix at least: the same prompt twice would come out of the cache whole.
        least = prompts.shared_prefix_tokens + 1
        most = prompts.input_tokens_max or math.ceil(mean + 3 * spread)
        if mean < 1 or spread < 0 or prompts.shared_prefix_tokens < 0:
            raise DemandError(
                f"input_tokens_mean {mean}, input_tokens_stddev {prompts.input_tokens_stddev} and "
                f"shared_prefix_tokens {prompts.shared_prefix_tokens} must be positive"
            )
        if mean < least:
            raise DemandError(
                f"shared_prefix_tokens is {prompts.shared_prefix_tokens} of input_tokens_mean {mean}: "
                f"leave at least one token that is unique"
            )
        if mean > most:
            raise DemandError(
                f"input_tokens_max {most} is below input_tokens_mean {mean}: raise it to the mean at least"
            )
        if spread == 0 or least == most or mean in (least, most):
            return cls(float(mean), 0.0, mean, mean)
        # A mean this close to a cut can't have the spread that was declared; keep the mean.
        spread = min(spread, 4.0 * min(mean - least, most - mean))
        return cls(_centre(float(mean), spread, least, most), spread, least, most)

    def at(self, shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths below which ``shares`` (0 to 1) of all prompts lie, as whole tokens."""
        if self.spread == 0:
            return np.full(shares.shape, self.least, dtype=np.int64)
        uncut = NormalDist(self.centre, self.spread)
        low, high = uncut.cdf(self.least), uncut.cdf(self.most)
        inside = np.clip(low + shares * (high - low), sys.float_info.min, 1 - sys.float_info.epsilon)
        lengths = np.rint([uncut.inv_cdf(share) for share in inside.tolist()])
        return np.clip(lengths, self.least, self.most).astype(np.int64)

    def quantile(self, share: float) -> int:
        """Return the length below which ``share`` of the prompts lie."""
        return int(self.at(np.array([share]))[0])


def _centre(mean: float, spread: float, least: int, most: int) -> float:
    """Find the centre at which the cut distribution has ``mean``; the mean grows with the centre."""
    low, high = least - 5 * spread, most + 5 * spread
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _cut_mean(middle, spread, least, most) < mean:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _cut_mean(centre: float, spread: float, least: int, most: int) -> float:
    a, b = (least - centre) / spread, (most - centre) / spread
    mass = (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2
    if mass <= 0:  # all of it lies beyond one cut
        return float(least if a > 0 else most)
    density = (math.exp(-a * a / 2) - math.exp(-b * b / 2)) / math.sqrt(2 * math.pi)
    return centre + spread * density / mass
