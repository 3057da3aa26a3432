"""Every candidate that a search may try: the product of the allowed values, less what can't be combined.

Values that the user named are the only ones used (a search that leaves the user's bounds is a
defect that peers have); where the user is silent, the values come from the workload, the model
and what runs today. The baseline is always among the candidates, since it is what runs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from slotune.llama.candidate import Candidate
from slotune.llama.flags import stated_twice
from slotune.llama.model_facts import ModelFacts
from slotune.llama.speculation import DRAFT_MODEL, KINDS
from slotune.load.demand import Demand
from slotune.search.problem import Pruned

__all__ = ["CONTEXT_STEP", "ORDER_CONSTRAINTS", "OrderConstraint", "SpaceLimits", "build_space", "context_needed"]

CONTEXT_STEP = 256
"""llama-server pads the context of a slot to this many tokens (build 11434)."""

ESTIMATE_MARGIN = 1.6
"""Real prompts are counted as 4 bytes a token; vocabularies and languages lie between 2.5 and 6.4."""

SLOTS = (1, 2, 4, 8, 16, 32)
BATCHES = (512, 2048)
UBATCHES = (512,)
CACHE_TYPES = ("f16", "q8_0")
CACHE_RAM_MIB = (0, 4096)


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """The values that the user allows; None lets slotune choose."""

    variants: tuple[str, ...]
    gpu_classes: tuple[str, ...]
    parallel_slots: tuple[int, ...] | None = None
    context_per_slot: tuple[int, ...] | None = None
    kv_unified: tuple[bool, ...] | None = None
    batch_size: tuple[int, ...] | None = None
    ubatch_size: tuple[int, ...] | None = None
    cache_types: tuple[str, ...] | None = None
    cache_ram_mib: tuple[int, ...] | None = None
    cache_reuse: tuple[int, ...] | None = None
    cache_idle_slots: tuple[bool, ...] | None = None
    speculation: tuple[str, ...] | None = None
    speculation_tokens: tuple[int, ...] | None = None
    speculation_match: tuple[int, ...] | None = None
    backend_sampling: tuple[bool, ...] | None = None
    drafts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Draft model of each variant that has one, both by name."""


@dataclass(frozen=True, slots=True)
class OrderConstraint:
    """A rule between two settings of one candidate."""

    name: str
    holds: Callable[[Candidate], bool]
    reason: str


ORDER_CONSTRAINTS: tuple[OrderConstraint, ...] = (
    OrderConstraint(
        "UBatchWithinBatch",
        lambda c: c.ubatch_size <= c.batch_size,
        "llama-server silently clamps a ubatch above the batch",
    ),
    OrderConstraint(
        "IdleSlotsNeedCacheRAM",
        lambda c: not c.cache_idle_slots or c.cache_ram_mib != 0,
        "idle slots are saved into the host cache, which is off",
    ),
    OrderConstraint(
        "ReuseNeedsPromptCache",
        lambda c: c.cache_reuse == 0 or c.cache_prompt,
        "chunks are only reused when the prompt cache is on",
    ),
    OrderConstraint(
        "QuantizedKVNeedsFlashAttention",
        lambda c: c.cache_type_v in {"f16", "f32", "bf16"} or c.flash_attention == "on",
        "llama-server refuses a quantized V cache without flash attention",
    ),
    OrderConstraint(
        "UnifiedNeedsTwoSlots",
        lambda c: not c.kv_unified or c.parallel_slots > 1,
        "with one slot both KV layouts are the same",
    ),
    OrderConstraint(
        "DraftNeedsItsModel",
        lambda c: (c.speculation == DRAFT_MODEL) == (c.draft is not None),
        "llama-server drafts with a model only where it is given one, and would serve without (build 11549)",
    ),
    OrderConstraint(
        "SpeculationIsSaidOnce",
        lambda c: not stated_twice(c),
        "a flag that the user's own server has would overrule the candidate's",
    ),
)


def context_needed(demand: Demand, answer: int = 0) -> int:
    """Tokens that a slot must hold for the longest request, rounded up to the server's step.

    Real prompts are only estimated from their bytes before a server tokenizes them, so room is left on top.
    ``answer``: tokens that an answer may take where that is more than the workload's longest.
    """
    margin = 1.0 if demand.synthetic is not None else ESTIMATE_MARGIN
    return _padded(math.ceil(margin * demand.input_tokens_max) + max(answer, demand.longest_answer))


def context_at_least(demand: Demand) -> int:
    """Tokens below which the longest request surely does not fit; for estimated prompts with the same margin off."""
    margin = 1.0 if demand.synthetic is not None else ESTIMATE_MARGIN
    return math.floor(demand.input_tokens_max / margin) + demand.longest_answer


def build_space(
    baseline: Candidate, limits: SpaceLimits, demand: Demand, models: Mapping[str, ModelFacts]
) -> tuple[tuple[Candidate, ...], tuple[Pruned, ...]]:
    """All candidates (the baseline first) and those that the workload rules out at once, with the reason.

    The order is that of the story: the queue (slots, batches) varies slowest, then the cache, then bytes.
    """
    kept: dict[Candidate, None] = {baseline: None}
    pruned: dict[Candidate, Pruned] = {}
    longest = context_at_least(demand)
    for candidate in _product(baseline, limits, context_needed(demand), models):
        if candidate in kept or not all(rule.holds(candidate) for rule in ORDER_CONSTRAINTS):
            continue
        refusal = _refusal(candidate, longest, models[candidate.variant])
        if refusal is None:
            kept[candidate] = None
        else:
            pruned[candidate] = refusal
    return tuple(kept), tuple(pruned.values())


def _product(
    baseline: Candidate, limits: SpaceLimits, needed: int, models: Mapping[str, ModelFacts]
) -> Iterator[Candidate]:
    axes: dict[str, Sequence[Any]] = {
        "parallel_slots": _values(limits.parallel_slots, SLOTS, baseline.parallel_slots),
        # Padded as llama-server pads it: what the answer states is what is in effect.
        "context_per_slot": tuple(dict.fromkeys(map(_padded, limits.context_per_slot or (needed,)))),
        "kv_unified": limits.kv_unified or (False, True),
        "batch_size": _values(limits.batch_size, BATCHES, baseline.batch_size),
        "ubatch_size": _values(limits.ubatch_size, UBATCHES, baseline.ubatch_size),
        "cache_ram_mib": _values(limits.cache_ram_mib, CACHE_RAM_MIB, baseline.cache_ram_mib),
        "cache_idle_slots": limits.cache_idle_slots or (False, True),
        "cache_reuse": limits.cache_reuse or (0,),
        "cache_type_k": limits.cache_types or CACHE_TYPES,
        "variant": limits.variants,
        "gpu_class": limits.gpu_classes,
        "speculation": tuple(_speculations(limits)),
        # Not tried unless asked for, and what today's server does is kept.
        "backend_sampling": limits.backend_sampling or (baseline.backend_sampling,),
    }
    for values in itertools.product(*axes.values()):
        settings = dict(zip(axes, values, strict=True))
        settings |= settings["speculation"]
        if settings["speculation"] == DRAFT_MODEL:
            settings["draft"] = limits.drafts.get(settings["variant"])
        # With the host cache on, saving idle slots is what fills it (build 11434): off only when the user asks for it.
        if limits.cache_idle_slots is None and settings["cache_idle_slots"] != (settings["cache_ram_mib"] != 0):
            continue
        if limits.context_per_slot is None:  # room on top of an estimate, but no more than the model can hold
            room = models[settings["variant"]].context_length
            settings["context_per_slot"] = min(needed, max(CONTEXT_STEP, room // CONTEXT_STEP * CONTEXT_STEP))
        # K and V always have one type: stock builds have no flash-attention kernels for mixed pairs (llama.cpp#28455).
        yield replace(
            baseline,
            **settings,
            cache_type_v=settings["cache_type_k"],
            flash_attention="on",
            cache_prompt=True,
            # A server that is told to compute on the CPU does so on purpose; part of the layers there is a stopgap.
            gpu_layers="0" if baseline.gpu_layers == "0" else "all",
        )


def _speculations(limits: SpaceLimits) -> Iterator[dict[str, Any]]:
    """Ways to guess with their numbers, each only where the way has it."""
    for way in limits.speculation or ("none",):
        kind = KINDS[way]
        tokens = limits.speculation_tokens if kind.tokens else None
        match = limits.speculation_match if kind.match else None
        for most, needed in itertools.product(tokens or (None,), match or (None,)):
            yield {"speculation": way, "speculation_tokens": most, "speculation_match": needed, "draft": None}


def _padded(tokens: int) -> int:
    return max(CONTEXT_STEP, -(-tokens // CONTEXT_STEP) * CONTEXT_STEP)


def _values(allowed: tuple[int, ...] | None, defaults: tuple[int, ...], today: int) -> tuple[int, ...]:
    return allowed if allowed is not None else tuple(sorted({*defaults, today}))


def _refusal(candidate: Candidate, needed: int, facts: ModelFacts) -> Pruned | None:
    if needed > facts.context_length:
        return Pruned(
            candidate,
            "ModelContextTooSmall",
            f"the model was trained for {facts.context_length} tokens, the longest request takes {needed}",
        )
    if _padded(candidate.context_per_slot) < needed:
        return Pruned(
            candidate,
            "ContextTooSmall",
            f"{candidate.context_per_slot} tokens per slot cannot hold the longest request, {needed} tokens",
        )
    if candidate.context_per_slot > _padded(facts.context_length):
        return Pruned(
            candidate,
            "ContextAboveTraining",
            f"{candidate.context_per_slot} tokens per slot are more than the {facts.context_length} that the model was "
            "trained for, and llama-server cuts them",
        )
    return None
