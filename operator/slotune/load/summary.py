"""What many requests add up to: the idle server, the shape of latency, where TTFT went. Values only."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Attribution", "IdleProbe", "Latencies"]


@dataclass(frozen=True, slots=True)
class IdleProbe:
    """How fast the server is with nothing else to do: medians over a few requests sent one at a time."""

    overhead_s: float
    """TTFT from the send, minus prompt_ms: network, parsing, tokenizing, first write."""
    prefill_tokens_per_s: float
    decode_step_s: float
    """Seconds per token of a single sequence."""
    prefill_tokens_per_s_best: float | None = None
    """The fastest of the probe's requests: what a bound may rest on, since a neighbour only ever makes it slower."""
    decode_step_s_best: float | None = None
    """The fastest step of any request."""

    @property
    def fastest_prefill(self) -> float:
        """Prompt tokens per second at the best."""
        return self.prefill_tokens_per_s_best or self.prefill_tokens_per_s

    @property
    def fastest_step(self) -> float:
        """Seconds per token at the best."""
        return self.decode_step_s_best or self.decode_step_s


@dataclass(frozen=True, slots=True)
class Attribution:
    """Where mean TTFT went, seconds. queue + prefill + contention + overhead adds up to it."""

    queue_s: float
    prefill_s: float
    """Computing the uncached prompt at idle speed."""
    contention_s: float
    """What prefill took longer because other requests shared the batch."""
    overhead_s: float = 0.0
    cached_share: float | None = None
    """Cached prompt tokens over all prompt tokens; None when the server never said."""
    busy_slots: float | None = None
    """Mean slots at work, from /metrics."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """The shape of what users saw; seconds, and tokens per second."""

    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None
    tokens_per_second_p5: float | None = None
    tokens_per_second_p50: float | None = None
    longest_gap_p99_s: float | None = None
    ttft_quantiles_s: tuple[float, ...] = ()
    """TTFT at 0, 1, …, 100 %, for plots; empty when nothing answered."""
    output_tokens_per_s: float | None = None
    mean_output_tokens: float | None = None
    mean_prompt_tokens: float | None = None
    """Prompt tokens with cached ones."""
    drafted_tokens: int | None = None
    """Tokens that the server guessed ahead, of all requests; None when it guessed none."""
    accepted_tokens: int | None = None
    """Those of them that the model would have said as well."""

    @property
    def acceptance(self) -> float | None:
        """Share of guessed tokens that were right; None when none was guessed."""
        return (self.accepted_tokens or 0) / self.drafted_tokens if self.drafted_tokens else None
