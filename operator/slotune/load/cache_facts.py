"""What a trial found out about its prompt cache: how much it could save, how much it saved, and whose it was.

Values only. Shares lie in 0..1, times are seconds. None means that nothing could be said, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EFFECTIVE", "CacheFacts"]

EFFECTIVE = 0.8
"""A cache that serves less than this part of what a perfect one would have served is worth a finding."""


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """The prompt cache of one server, over all runs of a trial."""

    theoretical_reuse: float | None = None
    """Share of the measured requests' prompt tokens that a cache which forgets nothing would have served; exact for
    synthetic prompts, an estimate from bytes of text for real ones."""
    measured_reuse: float | None = None
    """Share that the server says came from its cache: sum of cache_n / sum of (cache_n + prompt_n)."""
    slots_reuse: float | None = None
    """Share that the slots alone could serve at best: each holds the last prompt it read, and none is ever busy."""
    prefixes: int = 0
    """Different beginnings that arrived and can be shared; of synthetic prompts the most in one run."""
    prefix_share: float | None = None
    """Of the prompts that could reuse anything: the part of a prompt that could be reused, mean."""
    template_keeps_prefix: bool | None = None
    """Whether the chat template leaves alike what is alike; None where nobody needed to know."""
    cold_ttft_s: float | None = None
    """Median TTFT of a prompt of the mean length of which nothing is cached, alone on the server: the idle probe."""
    cold_reuse: float | None = None
    """Share of these prompts' tokens that came from a cache all the same: about 0, or the cache mixes prompts up."""
    warm_ttft_s: float | None = None
    """Median TTFT, also alone, of prompts of the same length whose prefix the server has just read."""
    warm_reuse: float | None = None
    """Share of these prompts' tokens that came from the cache."""
    canaries: int = 0
    """Answers to canaries that were compared with those of a server without any load behind it."""
    foreign: int = 0
    """Of these, answers that were given from another prompt's context."""
    canary_noise: float | None = None
    """Nats: most that two answers to one canary differed without any cache."""
    canary_divergence: float | None = None
    """Nats: most that an answer to a canary differed from its first one."""

    @property
    def effectiveness(self) -> float | None:
        """Measured over theoretical reuse; None where either is unknown or nothing can be reused."""
        if self.measured_reuse is None or not self.theoretical_reuse:
            return None
        return self.measured_reuse / self.theoretical_reuse
