"""One measured trial with what was owed and what came: all that a finding may look at."""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.rules.waiting import SPARE
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.load.summary import Attribution
from slotune.search.trial import TrialResult
from slotune.verdict.promise import Promise

__all__ = ["Case"]

FLAGS_OF_STATIC_BATCHING = frozenset({"-nocb", "--no-cont-batching"})


@dataclass(frozen=True, slots=True)
class Case:
    """Facts of one trial; properties are None where the facts are missing."""

    result: TrialResult
    promise: Promise
    demand: Demand
    roofline_step_s: float | None = None
    """Fewest seconds that one decode step of one sequence can take on this GPU; None when its bandwidth is unknown."""
    model: ModelFacts | None = None
    """Of the weights file, for what its layers forget."""

    @property
    def parts(self) -> Attribution | None:
        """Where TTFT went, of the slowest requests if known: the promise is about them, not about the mean."""
        return self.result.slowest or self.result.attribution

    @property
    def ttft_s(self) -> float:
        """Sum of the parts."""
        parts = self.parts
        return 0.0 if parts is None else parts.queue_s + parts.prefill_s + parts.contention_s + parts.overhead_s

    @property
    def is_late(self) -> bool:
        """Whether p95 TTFT misses the target; no p95 at all means that too many had no first token."""
        p95 = self.result.verdict.ttft_p95_s
        return p95 is None or p95 > self.promise.ttft_s

    @property
    def slots(self) -> int:
        """Requests that may decode at the same time."""
        return self.result.trial.candidate.parallel_slots

    @property
    def busy_slots(self) -> float | None:
        """Mean slots at work."""
        return None if self.parts is None else self.parts.busy_slots

    @property
    def speed(self) -> float | None:
        """Tokens/s of the slowest 5 % of users."""
        return self.result.verdict.tokens_per_second_p5 or self.result.latencies.tokens_per_second_p5

    @property
    def is_slow(self) -> bool:
        """Whether users get fewer tokens/s than owed."""
        owed, speed = self.promise.tokens_per_second_per_user, self.speed
        return owed is not None and speed is not None and speed < owed

    @property
    def has_speed_to_spare(self) -> bool:
        """Whether users get so many tokens/s that more of them could share a step."""
        owed, speed = self.promise.tokens_per_second_per_user, self.speed
        return owed is None or speed is None or speed >= SPARE * owed

    @property
    def uncached_tokens_p95(self) -> float:
        """Prompt tokens that even a perfect prefix cache leaves to compute, at p95 (at the mean if p95 is unknown)."""
        demand = self.demand
        return max(1.0, max(demand.input_tokens_p95, demand.input_tokens_mean) - demand.reusable_tokens)

    @property
    def reusable_share(self) -> float:
        """Share of prompt tokens that a perfect prefix cache would not compute again."""
        cache = self.result.cache
        if cache is not None and cache.theoretical_reuse is not None:
            return cache.theoretical_reuse
        mean = self.demand.input_tokens_mean
        return min(1.0, self.demand.reusable_tokens / mean) if mean > 0 else 0.0

    @property
    def cached_share(self) -> float | None:
        """Share of prompt tokens that were not computed again, over all requests."""
        mean = self.result.attribution or self.result.slowest
        return None if mean is None else mean.cached_share

    @property
    def is_cache_idle(self) -> bool:
        """Whether much of what could be cached is computed again."""
        return self.reusable_share >= 0.1 and (self.cached_share or 0.0) < 0.8 * self.reusable_share

    @property
    def is_static_batch(self) -> bool:
        """Whether the server was told to finish a batch before it lets new requests in."""
        return not FLAGS_OF_STATIC_BATCHING.isdisjoint(self.result.trial.candidate.extra_args)
