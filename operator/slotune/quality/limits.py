"""How far answers may move: two limits, and how many positions are looked at.

The presets follow what published measurements of llama.cpp's quantizations show for one family (LLaMA-3-8B on
Wikitext-2, ``tools/perplexity/README.md``): Q8_0 and Q6_K keep Strict, Q4_K_M keeps Balanced, Q3_K_M and below keep
neither. Other models lose more or less at the same label, so it is always the file at hand that is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["BALANCED", "CUSTOM", "OFF", "PRESETS", "STRICT", "Limits", "QualitySettings", "limits_of"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pair of weights and KV cache must keep, against the reference."""

    name: str
    """``Strict``, ``Balanced`` or ``Custom``."""
    mean_kld_max: float
    """Largest mean Kullback-Leibler divergence per position, in nats."""
    top1_min: float
    """Smallest share of positions, 0..1, at which both call the same token the likeliest."""

    def __post_init__(self) -> None:
        if not 0 < self.mean_kld_max <= 10:
            raise ValueError(f"mean_kld_max is {self.mean_kld_max}: it must be above 0 and at most 10 nats")
        if not 0 < self.top1_min < 1:
            raise ValueError(f"top1_min is {self.top1_min}: it must lie between 0 and 1, for example 0.9")


STRICT = Limits("Strict", mean_kld_max=0.01, top1_min=0.95)
BALANCED = Limits("Balanced", mean_kld_max=0.05, top1_min=0.90)
PRESETS: Mapping[str, Limits] = MappingProxyType({limits.name: limits for limits in (STRICT, BALANCED)})
CUSTOM = "Custom"
"""The word for limits of one's own."""
OFF = "Off"
"""The word with which a user says that nothing is measured; there are no limits of that name."""


def limits_of(name: str, mean_kld_max: float | None = None, top1_min: float | None = None) -> Limits | None:
    """The limits that a word asks for; None for ``Off``. Numbers belong to ``Custom``, and both of them.

    Raises:
        ValueError: an unknown word, numbers beside a preset, or ``Custom`` without them.
    """
    given = mean_kld_max is not None or top1_min is not None
    if name == CUSTOM:
        if mean_kld_max is None or top1_min is None:
            raise ValueError(f"quality is {CUSTOM}: it needs both limits, the divergence and the agreement")
        return Limits(CUSTOM, mean_kld_max, top1_min)
    if name != OFF and name not in PRESETS:
        raise ValueError(f"quality is {name!r}: use {', '.join(PRESETS)}, {CUSTOM} or {OFF}")
    if given:
        raise ValueError(f"quality is {name}: limits of one's own need quality {CUSTOM}")
    return PRESETS.get(name)


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """How much a comparison looks at. 64 prompts of 16 tokens are 1,024 positions, which is what tells tiers apart:
    the standard error is then about 9 % of the mean divergence, and 0.9 points of a top-1 agreement of 92 %."""

    prompts: int = 64
    steps: int = 16
    """Tokens of each prompt's answer that are compared; fewer where the reference ends its answer."""
    top: int = 64
    """Likeliest tokens of the reference that are told apart at each position; the others count as one."""
    confidence: float = 0.95
    seed: int = 7
    """Which of the workload's prompts are taken, or how synthetic ones are drawn."""
    request_timeout_s: float = 120.0
    """Longest wait for one position, prefill of the longest prompt included."""

    def __post_init__(self) -> None:
        for name, least, most in (("prompts", 2, 4096), ("steps", 1, 1024), ("top", 2, 1024)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}: it must lie between {least} and {most}")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence is {self.confidence}: it must be at least 0.5 and below 1, for example 0.95")
        if self.request_timeout_s <= 0:
            raise ValueError(f"request_timeout_s is {self.request_timeout_s}: it must be above 0")
