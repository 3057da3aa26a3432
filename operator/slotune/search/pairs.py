"""A pair of weights and KV cache: what decides how a server answers, and with which server that is looked at.

Slots, batches and caches change how soon an answer comes, not (beyond rounding) which; so answers are compared once per
pair, on the smallest server that has it, and the result holds for every candidate of the pair on every GPU class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slotune.llama.candidate import Candidate
from slotune.llama.memory import fits, predict
from slotune.search.problem import Problem
from slotune.search.space import CONTEXT_STEP, context_needed

__all__ = ["Pair", "comparison_candidate", "gated_pairs", "home_of_reference", "pair_of", "pairs_of", "reference_pair"]

REFERENCE_CACHE = "f16"
"""llama-server's own default: the KV cache that nobody calls quantized."""


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """What answers depend on."""

    variant: str
    cache_type_k: str
    cache_type_v: str

    @property
    def label(self) -> str:
        """``Q4_0 with KV cache q8_0``."""
        kv = self.cache_type_k if self.cache_type_k == self.cache_type_v else f"{self.cache_type_k}/{self.cache_type_v}"
        return f"{self.variant} with KV cache {kv}"


def pair_of(candidate: Candidate) -> Pair:
    """The pair that ``candidate`` answers with."""
    return Pair(candidate.variant, candidate.cache_type_k, candidate.cache_type_v)


def pairs_of(problem: Problem) -> tuple[Pair, ...]:
    """All pairs that are offered, in the order of the candidates."""
    return tuple(dict.fromkeys(map(pair_of, problem.candidates)))


def reference_pair(problem: Problem) -> Pair | None:
    """The pair that all others are compared with; None when nobody looks."""
    return None if problem.quality is None else Pair(problem.quality.reference, REFERENCE_CACHE, REFERENCE_CACHE)


def gated_pairs(problem: Problem) -> frozenset[Pair]:
    """Pairs that must be compared before they may win: all but the reference; none where there is no choice."""
    pairs = pairs_of(problem)
    if problem.quality is None or len(pairs) < 2:
        return frozenset()
    return frozenset(pairs) - {reference_pair(problem)}


def comparison_candidate(problem: Problem, pair: Pair, gpu_class: str) -> Candidate:
    """The server on which a pair's answers are looked at: one slot, as long as the longest prompt needs.

    The rest is that of what runs today. It depends on nothing that is owed, so the result outlives a changed SLO.
    """
    today = problem.baseline
    steps = 0 if problem.quality is None else problem.quality.settings.steps
    room = problem.models[pair.variant].context_length // CONTEXT_STEP * CONTEXT_STEP
    return replace(
        today,
        variant=pair.variant,
        gpu_class=gpu_class,
        parallel_slots=1,
        context_per_slot=min(context_needed(problem.demand, steps), max(CONTEXT_STEP, room)),
        kv_unified=False,
        cache_type_k=pair.cache_type_k,
        cache_type_v=pair.cache_type_v,
        flash_attention="on",
        cache_prompt=True,
        cache_ram_mib=0,
        cache_idle_slots=False,
        cache_reuse=0,
        gpu_layers="0" if today.gpu_layers == "0" else "all",
        speculation="none",
        speculation_tokens=None,
        speculation_match=None,
        draft=None,
        # Probabilities come from the model's own logits either way; those of llama.cpp's sampler are what was checked.
        backend_sampling=False,
    )


def home_of_reference(problem: Problem) -> str | None:
    """GPU class that the reference is recorded on: today's if it fits there, else the cheapest; None if none holds it.

    The prediction errs on the small side, so what is refused here could not have run.
    """
    pair = reference_pair(problem)
    assert pair is not None
    today = problem.baseline.gpu_class
    for name, hardware in sorted(
        problem.hardware.items(), key=lambda it: (it[0] != today, it[1].price_per_hour, it[0])
    ):
        estimate = predict(
            comparison_candidate(problem, pair, name), problem.models[pair.variant], on_gpu=hardware.is_gpu
        )
        if hardware.memory_bytes is None or fits(estimate, hardware.memory_bytes).ok:
            return name
    return None
