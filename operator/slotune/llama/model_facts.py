"""What a GGUF file says about itself, as far as memory and speed depend on it. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LayerCache", "ModelFacts"]


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer keeps per sequence."""

    key_elements: int
    """Elements of K per token (KV heads x key length; MLA: rank + rope dimensions); 0 if the layer has no K."""
    value_elements: int
    """Elements of V per token; 0 for MLA and recurrent layers."""
    window: int | None = None
    """Sliding window in tokens, or None when the layer attends to the whole context."""
    state_bytes: int = 0
    """Fixed state per sequence of a recurrent layer."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One weights file."""

    path: str
    file_bytes: int
    identity: str
    """Digest of every byte of the file, or of all its parts; empty where it was not asked for."""
    architecture: str
    quantization: str
    """File type as people write it, e.g. ``Q4_K_M`` or ``F16``."""
    context_length: int
    """Tokens the model was trained for."""
    vocabulary: int
    embedding: int
    heads: int
    layers: tuple[LayerCache, ...]
    weights_bytes: int
    """Sum of all tensors."""
    active_weights_bytes: int
    """Bytes read per decoded token of one sequence: all but the embedding table's unread rows and idle experts."""
    bits_per_weight: float
    """Weights bits over parameters: the order of lossiness between variants."""
    feed_forward: int = 0
    """Elements of the widest feed-forward layer, all chosen experts together; 0 when unknown."""
    host_weights_bytes: int = 0
    """Part of ``weights_bytes`` that stays in host memory with all layers on a GPU: input tables of their own."""
    cpu_buffer_bytes: int = 0
    """Model buffers when the model runs on a CPU: the mapped part of the file, and copies of some matrices that
    llama.cpp rearranges for vector units; 0 when unknown."""
    prompt_parameters: int = 0
    """Weights that a prompt token is multiplied with: chosen experts, but no input table, not the output matrix, which
    only the last token needs, and not the last block's feed-forward part, as little; 0 when unknown."""
    kv_exact: bool = True
    """False: the architecture keeps caches that ``layers`` does not describe, so KV memory is a lower bound."""
