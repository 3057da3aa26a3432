"""The traffic that a server must carry, resolved from a LlamaWorkload into plain values. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Arrivals", "Demand", "Prompt", "SyntheticPrompts"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The process that requests come by."""

    process: Literal["poisson", "constant", "gamma", "replay"] = "poisson"
    burstiness: float = 1.0
    """Gamma shape as vLLM names it: below 1 burstier than Poisson, above 1 smoother. Only for ``gamma``."""
    offsets_s: tuple[float, ...] = ()
    """Recorded send times from 0, ascending; only for ``replay``. Scaled by rate / recorded rate."""
    input_tokens: tuple[int, ...] = ()
    """Recorded prompt length of each arrival, for synthetic prompts; empty when the recording has none."""
    output_tokens: tuple[int, ...] = ()
    """Recorded answer length of each arrival; empty when the recording has none."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One real prompt: raw text for /completion, or chat messages for /v1/chat/completions."""

    text: str | None = None
    messages: tuple[dict[str, Any], ...] | None = None
    max_tokens: int | None = None
    """Overrides the workload's output length for this prompt."""


@dataclass(frozen=True, slots=True)
class SyntheticPrompts:
    """Prompts made from token ids: a shared prefix by group, then a unique suffix. All counts are tokens."""

    input_tokens_mean: int
    input_tokens_stddev: int = 0
    input_tokens_max: int | None = None
    """None: mean plus three standard deviations."""
    shared_prefix_tokens: int = 0
    prefix_groups: int = 1
    zipf_exponent: float = 1.0
    """Popularity of groups: weight of group k is 1/k**exponent; 0 is uniform."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What arrives: how many, how spaced, how long in and out. Rates are requests per second of the whole fleet."""

    peak_rate: float
    output_tokens: int
    """Tokens asked of a request whose prompt or recording states none (most tokens when ``ignore_eos`` is off)."""
    arrivals: Arrivals = field(default_factory=Arrivals)
    synthetic: SyntheticPrompts | None = None
    """Exactly one of ``synthetic`` and ``prompts``."""
    prompts: tuple[Prompt, ...] = ()
    ignore_eos: bool = True
    """Makes output lengths the same for every candidate; off for real prompts whose length is the point."""
    sampling: tuple[tuple[str, Any], ...] = (("temperature", 0.0),)
    identity: str = ""
    """Digest of all of this, prompts included: part of a trial's key."""
    input_tokens_mean: float = 0.0
    """Tokens in, mean; for real prompts an estimate until a server tokenizes them."""
    input_tokens_p95: float = 0.0
    input_tokens_max: int = 0
    reusable_tokens: float = 0.0
    """Mean prompt tokens that a perfect prefix cache would not compute again."""
    asked_tokens_mean: float | None = None
    """Tokens asked of a request, mean over prompts or recording; None: ``output_tokens`` of each."""
    asked_tokens_max: int | None = None
    """Most tokens asked of any request; None: ``output_tokens``."""

    @property
    def mean_answer(self) -> float:
        """Tokens asked of a request, mean."""
        return float(self.output_tokens) if self.asked_tokens_mean is None else self.asked_tokens_mean

    @property
    def longest_answer(self) -> int:
        """Most tokens asked of any request."""
        return self.output_tokens if self.asked_tokens_max is None else self.asked_tokens_max
