"""How far a candidate's next-token distributions lie from the reference's, with what is not known about it.

``mean_kld`` is a lower bound of the true mean divergence, see ``coarse``; the bounds around it say how much the sample
of positions may mislead about the bound, not how far the bound lies below the truth. ``residual_mass`` hints at that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from slotune.quality.bounds import mean_bounds, share_bounds
from slotune.quality.coarse import Likeliest, divergence

__all__ = ["Divergence", "PositionFacts", "compare_position", "summarise"]

RATIO_MAX = 1e12
"""Perplexity ratios above it are cut: a candidate that gives the reference's answers no probability has no finite one,
and one that fits into a status says as much."""


@dataclass(frozen=True, slots=True)
class PositionFacts:
    """One position of one prompt. Numbers only: no token of it is known here."""

    prompt: int
    """Number of the prompt: positions of one prompt belong together."""
    kld: float
    agrees: bool
    residual: float
    """Probability that the reference gives to the tokens that were not told apart."""
    log_ratio: float
    """Reference's logprob of its own answer minus the candidate's; a lower bound where the candidate lists it not."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """One comparison with a reference. Divergences are nats per position, shares lie in 0..1.

    All bounds are one-sided: ``kld_upper`` and ``top1_lower`` hold at ``confidence`` each, which is what a pass needs
    (both must hold, so a wrong pass is no likelier than one wrong bound); ``kld_lower`` and ``top1_upper`` share the
    error between them, since either alone is enough to fail.
    """

    positions: int
    prompts: int
    mean_kld: float
    """Mean of a lower bound of the true divergence: the reference's likeliest tokens, and all others as one."""
    kld_standard_error: float
    """Of ``mean_kld``, clustered by prompt."""
    kld_lower: float
    kld_upper: float
    top1: float
    """Share of positions at which both call the same token the likeliest."""
    top1_lower: float
    top1_upper: float
    effective_positions: float
    """Independent positions that ``top1`` is worth: those of one prompt err together."""
    residual_mass: float
    """Mean probability that the reference gives to tokens that were not told apart."""
    perplexity_ratio: float
    """Perplexity of the candidate on the reference's answers, by that of the reference; 1 is equal. A lower bound."""
    confidence: float
    reference_digest: str


def compare_position(prompt: int, reference: Likeliest, candidate: Likeliest) -> PositionFacts:
    """What one position says; ``prompt`` is the number of its prompt."""
    answer = reference.tokens[0]
    return PositionFacts(
        prompt=prompt,
        kld=divergence(reference, candidate),
        agrees=candidate.tokens[0] == answer,
        residual=1.0 - reference.mass,
        log_ratio=reference.logprobs[0] - candidate.logprob_at_most(answer),
    )


def summarise(facts: Sequence[PositionFacts], reference_digest: str, confidence: float) -> Divergence:
    """All positions together.

    Raises:
        ValueError: positions of fewer than two prompts, which can't show how much prompts differ.
    """
    clusters = [
        list(group)
        for _, group in itertools.groupby(sorted(facts, key=lambda fact: fact.prompt), key=lambda fact: fact.prompt)
    ]
    if len(clusters) < 2:
        raise ValueError(f"positions of {len(clusters)} prompts: at least 2 prompts are needed")
    shared = 1 - (1 - confidence) / 2
    kld = mean_bounds([[fact.kld for fact in cluster] for cluster in clusters], upper=confidence, lower=shared)
    top1 = share_bounds([[fact.agrees for fact in cluster] for cluster in clusters], upper=shared, lower=confidence)
    log_ratio = math.fsum(fact.log_ratio for fact in facts) / len(facts)
    return Divergence(
        positions=len(facts),
        prompts=len(clusters),
        mean_kld=kld.mean,
        kld_standard_error=kld.standard_error,
        kld_lower=max(0.0, kld.lower),
        kld_upper=kld.upper,
        top1=top1.share,
        top1_lower=top1.lower,
        top1_upper=top1.upper,
        effective_positions=top1.effective,
        residual_mass=math.fsum(fact.residual for fact in facts) / len(facts),
        perplexity_ratio=math.exp(min(log_ratio, math.log(RATIO_MAX))),
        confidence=confidence,
        reference_digest=reference_digest,
    )
