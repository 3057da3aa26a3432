"""Which of two candidates changes answers less: fewer bits are only cheaper if the answers hold.

The order is by file first (bits per weight), then by KV type: the published divergences of a
step in weight bits are larger than those of the KV cache at the same step (llama.cpp PR 7412
against its perplexity tables for LLaMA-3-8B).
"""

from __future__ import annotations

from collections.abc import Mapping

from slotune.llama.candidate import KV_TYPES, Candidate
from slotune.llama.model_facts import ModelFacts

__all__ = ["lossiness"]


def lossiness(candidate: Candidate, models: Mapping[str, ModelFacts]) -> tuple[float, int]:
    """Sort key, least lossy first: (minus bits per weight, rank of the lossier KV type)."""
    return (
        -models[candidate.variant].bits_per_weight,
        max(_kv_rank(candidate.cache_type_k), _kv_rank(candidate.cache_type_v)),
    )


def _kv_rank(kv_type: str) -> int:
    """Types outside the searched set (a user's own baseline) rank behind the least lossy one by name alone."""
    ranks: tuple[str, ...] = KV_TYPES
    return ranks.index(kv_type) if kv_type in ranks else (0 if kv_type in {"f32", "bf16"} else 1)
