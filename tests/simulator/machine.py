"""What a GPU does in a second, and what a configuration costs on it. Linear physics, no kernel inefficiency."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slotune.llama.candidate import Candidate
from slotune.llama.kv_types import bytes_per_element
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand

__all__ = ["NO_CONTINUOUS_BATCHING", "Machine", "capacity_at_most", "kv_bytes_per_token", "memory_needed"]

NO_CONTINUOUS_BATCHING = "--no-cont-batching"
"""In ``Candidate.extra_args``: a batch must finish before a new request gets in."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One GPU with its host. A step takes step_overhead + bytes read / bandwidth + prompt tokens / prefill speed."""

    bandwidth_bytes_per_s: float
    prefill_tokens_per_s: float
    memory_bytes: int
    step_overhead_s: float = 0.0004
    request_overhead_s: float = 0.005
    """From the send until the server has the tokens: network, parsing, tokenizing."""
    host_bytes_per_s: float = 20e9
    """Copies to and from the prompt cache in host memory; decoding stands still meanwhile."""
    unified_prefill_share: float = 1.0
    """Prefill speed with a unified KV pool over that with split streams (ggml-org/llama.cpp#28495: 0.46 to 0.58)."""
    usable_memory_share: float = 0.92
    runtime_bytes: int = 1_200_000_000
    """Context of the device and compute buffers."""
    start_s: float = 30.0

    def decode_step_s(self, facts: ModelFacts, candidate: Candidate, sequences: int, context: float) -> float:
        """Seconds of one step in which ``sequences`` neighbouring slots at ``context`` tokens get one token each."""
        read = facts.active_weights_bytes + sequences * context * kv_bytes_per_token(facts, candidate)
        return self.step_overhead_s + read / self.bandwidth_bytes_per_s

    def prefill_speed(self, candidate: Candidate) -> float:
        """Prompt tokens per second when nothing else runs."""
        return self.prefill_tokens_per_s * (self.unified_prefill_share if candidate.kv_unified else 1.0)

    def fits(self, facts: ModelFacts, candidate: Candidate) -> bool:
        """Whether weights, KV and buffers fit."""
        return memory_needed(facts, candidate, self) <= self.usable_memory_share * self.memory_bytes


def kv_bytes_per_token(facts: ModelFacts, candidate: Candidate) -> float:
    """Bytes that one token takes in the KV cache, all layers."""
    k, v = bytes_per_element(candidate.cache_type_k), bytes_per_element(candidate.cache_type_v)
    return sum(layer.key_elements * k + layer.value_elements * v for layer in facts.layers)


def memory_needed(facts: ModelFacts, candidate: Candidate, machine: Machine) -> int:
    """Bytes on the device."""
    kv = candidate.context_total * kv_bytes_per_token(facts, candidate)
    return math.ceil(facts.weights_bytes + kv + machine.runtime_bytes)


def capacity_at_most(facts: ModelFacts, candidate: Candidate, machine: Machine, demand: Demand) -> float:
    """Requests per second that one server can't exceed: every step full, every shared prefix cached.

    The exact form of the bound that a search approximates: it shares this simulator's physics.
    """
    reusable = demand.reusable_tokens if candidate.cache_prompt else 0.0
    prefill = (demand.input_tokens_mean - reusable) / machine.prefill_speed(candidate)
    context = demand.input_tokens_mean + demand.output_tokens / 2
    slots = candidate.parallel_slots
    step = machine.decode_step_s(facts, candidate, slots, context)
    return 1 / (prefill + (demand.output_tokens - 1) * step / slots)
