"""The least that two next-token distributions can differ by, from the likeliest tokens that a server lists of each.

A server lists the likeliest K of a hundred thousand tokens, so the divergence itself can't be had. What can be had is
a lower bound of it: tell apart the tokens that the reference listed, count all others as one. Merging outcomes never
raises a Kullback-Leibler divergence (data processing inequality: Cover and Thomas, *Elements of Information Theory*,
2nd ed. (2006), §2.8 and problem 2.20 f), and telling more of them apart never lowers it.

A listed token of the reference may be missing from the candidate's list. Then its probability there is unknown, but at
most that of the last one listed, and what is unknown adds up to what the list leaves. Among all candidates that could
have answered like this, the one nearest to the reference is taken, so the bound stays a bound. Its unknown shares are
proportional to the reference's until they meet a limit: the usual filling up of a convex sum, solved exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LEAST_LOGPROB", "Likeliest", "divergence", "kept"]

LEAST_LOGPROB = -149 * math.log(2)
"""Of the smallest number above zero that a 32-bit float holds. A server that says zero means "less than this"."""

ROUNDING = 1e-6
"""What a server's 32-bit sums over a whole vocabulary may be off by. The candidate's unlisted tokens are given this
much more, so that no divergence is made of rounding: it stays a lower bound, and equal lists have exactly none."""

_MASS_MAX = 1 + 1e-3
"""A sum above it is no rounding: what was listed are no probabilities."""

KEPT_PROBABILITY = 1e-7
"""Tokens of the reference below it are counted with the rest: 64 of them move a divergence by less than its noise."""


@dataclass(frozen=True, slots=True)
class Likeliest:
    """The likeliest next tokens at one position, likeliest first."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Natural logarithms, never above 0, as many as ``tokens``."""

    def __post_init__(self) -> None:
        if not self.tokens or len(self.tokens) != len(self.logprobs):
            raise ValueError(
                f"{len(self.tokens)} tokens with {len(self.logprobs)} logprobs: one for each, at least one"
            )
        if len(set(self.tokens)) != len(self.tokens):
            raise ValueError("a token is listed twice")
        if min(self.tokens) < 0:
            raise ValueError(f"token {min(self.tokens)} is below 0")
        if not all(LEAST_LOGPROB - 1 <= logprob <= 0 for logprob in self.logprobs):
            raise ValueError(f"a logprob lies outside {LEAST_LOGPROB - 1:.1f} to 0, or is no number")
        if any(left < right for left, right in zip(self.logprobs, self.logprobs[1:], strict=False)):
            raise ValueError("the logprobs are not in falling order")
        if math.fsum(math.exp(logprob) for logprob in self.logprobs) > _MASS_MAX:
            raise ValueError("the probabilities add up to more than 1")

    @property
    def mass(self) -> float:
        """Probability of all that is listed, 0..1."""
        return min(1.0, math.fsum(math.exp(logprob) for logprob in self.logprobs))

    def logprob_at_most(self, token: int) -> float:
        """Of a token, or, where it isn't listed, the largest that it can have."""
        try:
            return self.logprobs[self.tokens.index(token)]
        except ValueError:
            return self.logprobs[-1]


def kept(listed: Likeliest) -> Likeliest:
    """What a reference keeps: the tokens that are likely enough to matter, the likeliest always."""
    least = math.log(KEPT_PROBABILITY)
    count = max(1, sum(logprob >= least for logprob in listed.logprobs))
    return Likeliest(listed.tokens[:count], listed.logprobs[:count])


def divergence(reference: Likeliest, candidate: Likeliest) -> float:
    """Nats, at least 0: a lower bound of KL(reference || candidate), from the lists of both."""
    known = dict(zip(candidate.tokens, candidate.logprobs, strict=True))
    terms, missing = [], []
    left = 1.0 + ROUNDING  # what the candidate gives to all but the listed tokens of the reference
    for token, logprob in zip(reference.tokens, reference.logprobs, strict=True):
        share = math.exp(logprob)
        if (theirs := known.get(token)) is None:
            missing.append(share)
        else:
            left -= math.exp(theirs)
            terms.append(share * (logprob - theirs))
    rest = 1.0 - reference.mass
    unlisted = 1.0 - candidate.mass + ROUNDING
    shares = _nearest(missing, rest, max(ROUNDING, left), math.exp(candidate.logprobs[-1]), unlisted)
    terms += [
        share * (math.log(share) - math.log(theirs))
        for share, theirs in zip([*missing, rest], shares, strict=True)
        if share > 0
    ]
    return max(0.0, math.fsum(terms))


def _nearest(missing: Sequence[float], rest: float, left: float, each: float, unlisted: float) -> list[float]:
    """How the candidate may have shared out ``left`` among the missing tokens and the rest, as near as can be.

    A missing token gets ``each`` at most, all of them ``unlisted`` at most: the remainder of ``left`` was listed for
    tokens that the reference did not list, so it belongs to the rest. Returns one share per missing token, the rest's
    behind them.
    """
    if not missing:
        return [left]
    shares = _filled(missing, rest, left, each)
    if shares[-1] < left - unlisted:
        shares = [*_filled(missing, 0.0, unlisted, each)[:-1], left - unlisted]
    return shares


def _filled(missing: Sequence[float], rest: float, left: float, each: float) -> list[float]:
    """Shares of ``left`` in proportion to the reference, ``each`` at most; what is over goes to the rest."""
    order = sorted(range(len(missing)), key=missing.__getitem__, reverse=True)
    given = [0.0] * len(missing)
    for number, index in enumerate(order):
        scale = left / (math.fsum(missing[other] for other in order[number:]) + rest)
        if missing[index] * scale <= each:
            for other in order[number:]:  # all that follow are smaller
                given[other] = missing[other] * scale
            return [*given, rest * scale]
        given[index] = each
        left -= each
    return [*given, left]
