"""How far a candidate's next-token distributions lie from the reference's, with what is not known about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Divergence"]


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
    """Perplexity of the candidate on the reference's answers, by that of the reference; 1 is equal."""
    confidence: float
    reference_digest: str
