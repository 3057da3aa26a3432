"""What a candidate can do at the very best: never pessimistic, so nothing feasible is ever dropped.

Two sources. Before anything ran, a GPU class's memory bandwidth bounds decoding (the roofline:
one step reads all active weights once). After that, every idle probe bounds its own kind of
candidate closely and the others loosely, by a slack that grows with how much they differ.
Why not a fitted model: a fit can be wrong in the pessimistic direction, and then the proof that
nothing cheaper exists would be worth nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from slotune.llama.candidate import Candidate
from slotune.llama.kv_types import bytes_per_element
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.search.problem import Problem, Pruned
from slotune.search.space import ESTIMATE_MARGIN
from slotune.search.trial import TrialResult

__all__ = ["Bounds", "RooflineBounds", "replicas_at_least", "uncached_tokens"]

REPEAT_SLACK = 1.1
"""Two probes of one configuration differ; the best observed speed gets this much on top."""
LAYOUT_SLACK = 2.0
"""Unified KV costs up to 54 % of prefill speed (ggml-org/llama.cpp#28495): the other layout may be this much faster."""
KV_TYPE_SLACK = 1.5
"""Another KV type skips or adds conversions (ggml-org/llama.cpp#28454)."""
VARIANT_SLACK = 2.0
"""Another weights format runs other kernels: beyond the ratio of bytes it may be this much faster."""
BATCH_SLACK_MOST = 4.0
"""A larger ubatch reads prompts faster until the device is full (textgen#7309 saw 3x)."""
UNKNOWN_EFFECT = (
    "threads",
    "extra_args",
    "speculation",
    "speculation_tokens",
    "speculation_match",
    "draft",
    "backend_sampling",
)
"""Settings of which nothing known says by how much a server may get faster."""


class Bounds(Protocol):
    """Optimistic bounds of one candidate."""

    def capacity_at_most(self, candidate: Candidate) -> float:
        """Requests per second that one server can carry at the very best; infinity when nothing is known."""
        ...

    def floor(self, candidate: Candidate) -> Pruned | None:
        """Why the candidate can't keep the promise at any rate, or None."""
        ...


def replicas_at_least(peak_rate: float, capacity: float) -> int:
    """Fewest replicas that could carry ``peak_rate``; tolerates the rounding of a capacity that divides it exactly."""
    if math.isinf(capacity):
        return 1
    return max(1, math.ceil(peak_rate / capacity - 1e-9))


def uncached_tokens(candidate: Candidate, demand: Demand, prompt_tokens: float) -> float:
    """Fewest prompt tokens that must be computed when the prefix cache is perfect; estimates count at their least."""
    reusable = demand.reusable_tokens if candidate.cache_prompt else 0.0
    return max(1.0, (prompt_tokens - reusable) / _margin(demand))


@dataclass(frozen=True, slots=True)
class _Speed:
    """The best that an idle probe saw for one kind of candidate."""

    candidate: Candidate
    prefill_tokens_per_s: float
    decode_step_s: float


@dataclass(frozen=True)
class RooflineBounds:
    """Bounds from the roofline and from every idle probe so far."""

    problem: Problem
    speeds: tuple[_Speed, ...] = ()

    @classmethod
    def from_results(cls, problem: Problem, results: Iterable[TrialResult]) -> RooflineBounds:
        """Keep the fastest probe of each kind of candidate."""
        best: dict[tuple[object, ...], _Speed] = {}
        for result in results:
            if result.probe is None:
                continue
            c, probe = result.trial.candidate, result.probe
            seen = best.get(_kind(c))
            best[_kind(c)] = _Speed(
                c,
                max(probe.fastest_prefill, seen.prefill_tokens_per_s if seen else 0.0),
                min(probe.fastest_step, seen.decode_step_s if seen else math.inf),
            )
        return cls(problem, tuple(best.values()))

    def prefill_speed_at_most(self, candidate: Candidate) -> float:
        """Prompt tokens per second; infinity when nothing like the candidate was probed."""
        models = self.problem.models
        return min(
            (
                speed.prefill_tokens_per_s * _slack(speed.candidate, candidate, models)
                for speed in self.speeds
                if speed.candidate.gpu_class == candidate.gpu_class
            ),
            default=math.inf,
        )

    def decode_step_at_least(self, candidate: Candidate, sequences: int = 1) -> float:
        """Seconds of one decode step with ``sequences`` active sequences."""
        models, demand = self.problem.models, self.problem.demand
        measured = max(
            (
                speed.decode_step_s / _slack(speed.candidate, candidate, models)
                for speed in self.speeds
                if speed.candidate.gpu_class == candidate.gpu_class
            ),
            default=0.0,
        )
        bandwidth = self._bandwidth_at_most(candidate.gpu_class)
        if bandwidth is None:
            return measured
        facts = models[candidate.variant]
        context = demand.input_tokens_mean / _margin(demand)
        read = facts.active_weights_bytes + sequences * context * _kv_bytes_per_token(facts, candidate)
        return max(measured, read / bandwidth)

    def _bandwidth_at_most(self, gpu_class: str) -> float | None:
        """The declared bandwidth, or what a probe needed at least: a declaration that is too low must not rule out."""
        declared = self.problem.hardware[gpu_class].bandwidth_bytes_per_s
        if declared is None:
            return None
        seen = (
            self.problem.models[speed.candidate.variant].active_weights_bytes / speed.decode_step_s * REPEAT_SLACK
            for speed in self.speeds
            if speed.candidate.gpu_class == gpu_class and speed.decode_step_s > 0
        )
        return max(declared, *seen, declared)

    def capacity_at_most(self, candidate: Candidate) -> float:
        """1 / (GPU-seconds of one request): prefill of the uncached part, and its share of full decode steps."""
        demand = self.problem.demand
        if candidate.speculation != "none":
            decode = 0.0  # several tokens a step, how many is unknown
        else:
            slots = candidate.parallel_slots
            output = demand.mean_answer if demand.ignore_eos else 1.0
            decode = max(0.0, output - 1) * self.decode_step_at_least(candidate, slots) / slots
        uncached = uncached_tokens(candidate, demand, demand.input_tokens_mean)
        # A probe reads one prompt at a time; under load, short ones share a physical batch and are read faster.
        shared = min(BATCH_SLACK_MOST, max(1.0, min(candidate.ubatch_size, candidate.batch_size) / uncached))
        prefill = uncached / (self.prefill_speed_at_most(candidate) * (shared if candidate.parallel_slots > 1 else 1.0))
        seconds = prefill + decode
        return 1 / seconds if seconds > 0 else math.inf

    def floor(self, candidate: Candidate) -> Pruned | None:
        """A prompt that alone takes too long to read, or a step that alone is too slow: no rate is low enough."""
        promise, demand = self.problem.promise, self.problem.demand
        speed = self.prefill_speed_at_most(candidate)
        tokens = uncached_tokens(candidate, demand, demand.input_tokens_p95)
        if tokens / speed > promise.ttft_s:
            return Pruned(
                candidate,
                "TTFTFloor",
                f"reading {tokens:,.0f} uncached tokens takes at least {tokens / speed:.2f} s here "
                f"({speed:,.0f} tokens/s at the very best), {promise.ttft_s:g} s are owed",
            )
        owed = promise.tokens_per_second_per_user
        step = self.decode_step_at_least(candidate)
        if owed is not None and candidate.speculation == "none" and step > 0 and 1 / step < owed:
            return Pruned(
                candidate,
                "DecodeFloor",
                f"one user alone gets at most {1 / step:.1f} tokens/s here, {owed:g} are owed",
            )
        return None


def _margin(demand: Demand) -> float:
    """What estimated token counts may be too high by; 1 where they are exact."""
    return 1.0 if demand.synthetic is not None else ESTIMATE_MARGIN


def _kind(candidate: Candidate) -> tuple[object, ...]:
    """What an idle probe's speed depends on."""
    return (
        candidate.variant,
        candidate.gpu_class,
        candidate.ubatch_size,
        candidate.batch_size,
        candidate.kv_unified,
        candidate.cache_type_k,
        candidate.cache_type_v,
        candidate.flash_attention,
        candidate.threads,
        candidate.gpu_layers,
        candidate.speculation,
        candidate.speculation_tokens,
        candidate.speculation_match,
        candidate.draft,
        candidate.backend_sampling,
        candidate.extra_args,
    )


def _slack(measured: Candidate, other: Candidate, models: Mapping[str, ModelFacts]) -> float:
    """Factor by which ``other`` may be faster than ``measured`` at the very best."""
    slack = REPEAT_SLACK
    if measured.kv_unified != other.kv_unified:
        slack *= LAYOUT_SLACK
    if (measured.cache_type_k, measured.cache_type_v) != (other.cache_type_k, other.cache_type_v):
        slack *= KV_TYPE_SLACK
    if measured.variant != other.variant:
        ratio = models[measured.variant].active_weights_bytes / max(1, models[other.variant].active_weights_bytes)
        slack *= VARIANT_SLACK * max(1.0, ratio)
    physical = min(other.ubatch_size, other.batch_size) / min(measured.ubatch_size, measured.batch_size)
    slack *= min(BATCH_SLACK_MOST, max(1.0, physical))
    if measured.flash_attention != other.flash_attention:
        slack *= LAYOUT_SLACK
    if {measured.gpu_layers, other.gpu_layers} > {"all"} and "auto" not in {measured.gpu_layers, other.gpu_layers}:
        return math.inf  # layers on the CPU slow everything by an unknown factor
    if any(getattr(measured, name) != getattr(other, name) for name in UNKNOWN_EFFECT):
        return math.inf  # nothing known says how much: only its own probe bounds it
    return slack


def _kv_bytes_per_token(facts: ModelFacts, candidate: Candidate) -> float:
    k, v = bytes_per_element(candidate.cache_type_k), bytes_per_element(candidate.cache_type_v)
    return sum(layer.key_elements * k + layer.value_elements * v for layer in facts.layers if layer.window is None)
