"""What each layer of a model keeps per sequence, from a GGUF file's metadata.

The keys alone do not say it: whether a sliding window is used, and by which layers, is knowledge that llama.cpp holds
per architecture. The tables below are that knowledge (llama.cpp's src/models, read at b11434). An architecture that
is not listed has no window whatever its keys say, as in llama.cpp: Mistral's files name one that is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slotune.llama.model_facts import LayerCache

__all__ = ["INEXACT", "RECURRENT", "layer_caches", "per_layer"]

Get = Callable[[str], Any]
"""Metadata below the architecture's prefix by the rest of the key; None where it is missing."""


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Which layers of one architecture slide, when the file has no pattern of its own."""

    period: int | None
    """Every ``period``-th layer is full. None: the file must say it, layer by layer."""
    dense_first: bool = False
    """The full layer is the first of each period, not the last."""
    window: int | None = None
    """Tokens where the file has no ``attention.sliding_window``; None: no key, no window."""
    fixed: bool = False
    """``window`` holds whatever the file says, unless it says 0."""


WINDOWS: Final = {
    "afmoe": WindowRule(4),
    "cohere2": WindowRule(4),
    "cohere2moe": WindowRule(4, dense_first=True),
    "exaone-moe": WindowRule(4, window=128),
    "exaone4": WindowRule(4, window=4096),
    "gemma2": WindowRule(2, window=4096),
    "gemma3": WindowRule(6),
    "gemma3n": WindowRule(5),
    "gemma4": WindowRule(None),
    "gpt-oss": WindowRule(2),
    "granite_swa": WindowRule(None),
    "laguna": WindowRule(4, dense_first=True),
    "llama4": WindowRule(4, window=8192, fixed=True),
    "maple": WindowRule(None),
    "mellum": WindowRule(4),
    "mimo2": WindowRule(None),
    "muse-glimmer": WindowRule(4),
    "olmo2": WindowRule(4),
    "plamo3": WindowRule(8),
    "smallthinker": WindowRule(4, dense_first=True, window=4096, fixed=True),
    "spark2_5": WindowRule(None),
    "step35": WindowRule(None),
}
"""Phi-3 is absent on purpose: llama.cpp ignores its window (ggml-org/llama.cpp#13676)."""

EXAONE4_WINDOW_LAYERS: Final = 64
"""Of EXAONE 4 only the 32B model, told by its 64 layers, has windows."""

RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""No layer has a KV cache."""

INTERVAL: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
"""Every ``full_attention_interval``-th layer (4) has a KV cache, the others a state."""

HYBRID: Final = frozenset({"bailingmoe3", "granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "plamo2"})
"""Layers without KV heads have a state."""

GEMMA3N_KV_LAYERS: Final = 20
"""Later layers of Gemma 3n read the caches of earlier ones."""

INEXACT: Final = frozenset(
    {"deepseek32", "deepseek4", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "kimi-k3", "minimax-01", "minimax-m3",
     "nanbeige", "qwen4exp"}
)  # fmt: skip
"""Architectures with further caches (indexers, linear attention, compressed keys) that are not counted here."""

STATE_BYTES: Final = 4
"""Recurrent states are f32 whatever ``-ctk`` says."""


def layer_caches(architecture: str, get: Get) -> tuple[LayerCache, ...]:
    """One entry per block of the model, in order; a block without any cache has zeros.

    ``get`` must have ``block_count`` and ``embedding_length``, and ``attention.head_count`` unless no layer attends.
    """
    count = int(get("block_count"))
    trunk = count - int(get("nextn_predict_layers") or 0)
    windows = _windows(architecture, get, trunk)
    recurrent = _recurrent(architecture, get, trunk)
    state = _state_bytes(get) if any(recurrent) else 0
    with_kv = _layers_with_kv(architecture, get, trunk)
    keys, values = _head_lengths(get)
    heads = per_layer(_first(get("attention.head_count_kv"), get("attention.head_count"), 0), count)
    caches = []
    for layer in range(count):
        attends = layer < with_kv and architecture not in RECURRENT and not (recurrent[layer] and heads[layer] == 0)
        if architecture in INTERVAL and recurrent[layer]:
            attends = False
        window = windows[layer]
        key_length, value_length = (
            (get("attention.key_length_swa") or keys, get("attention.value_length_swa") or values)
            if window is not None
            else (keys, values)
        )
        caches.append(
            LayerCache(
                key_elements=heads[layer] * key_length if attends else 0,
                value_elements=heads[layer] * value_length if attends else 0,
                window=window if attends else None,
                state_bytes=state if recurrent[layer] else 0,
            )
        )
    return tuple(caches)


def per_layer(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """A setting that files state once, or once for each layer; a list that is too short ends in zeros."""
    if isinstance(value, int):
        return (value,) * count
    return tuple(int(item) for item in (*value, *(0,) * count)[:count])


def _first(*values: Any) -> Any:
    """The first that the file states."""
    return next(value for value in values if value is not None)


def _query_heads(get: Get) -> int:
    """Heads of the first block, or of the widest one where the first does not attend."""
    heads = per_layer(get("attention.head_count") or 0, int(get("block_count")))
    return heads[0] or max(heads)


def _head_lengths(get: Get) -> tuple[int, int]:
    """Elements of one head's K and V. With multi-head latent attention V is part of K and takes nothing."""
    heads = _query_heads(get)
    default = int(get("embedding_length")) // heads if heads else 0
    if get("attention.key_length_mla") and get("attention.value_length_mla"):
        latent = int(get("attention.kv_lora_rank") or 0) + int(get("rope.dimension_count") or 0)
        return int(get("attention.key_length") or latent), 0
    return int(get("attention.key_length") or default), int(get("attention.value_length") or default)


def _windows(architecture: str, get: Get, trunk: int) -> list[int | None]:
    """The window of each block, None where it attends to everything. Blocks past ``trunk`` never slide."""
    count = int(get("block_count"))
    full: list[int | None] = [None] * count
    window = get("attention.sliding_window")
    if architecture == "lfm2":
        return [window or None] * count  # every layer that attends
    rule = WINDOWS.get(architecture)
    if rule is None or window == 0 or (architecture == "exaone4" and trunk != EXAONE4_WINDOW_LAYERS):
        return full
    tokens = rule.window if rule.fixed or window is None else int(window)
    if tokens is None:
        return full
    pattern = get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        slides = [bool(item) for item in per_layer(pattern, count)]
    else:
        period = rule.period if pattern is None else int(pattern)
        if period is None:
            return full
        full_at = 0 if rule.dense_first else period - 1
        slides = [layer < trunk and (period == 0 or layer % period != full_at) for layer in range(count)]
    return [tokens if slide else None for slide in slides]


def _recurrent(architecture: str, get: Get, trunk: int) -> list[bool]:
    """Which blocks keep a state of fixed size."""
    count = int(get("block_count"))
    kv_heads = per_layer(get("attention.head_count_kv") or 0, count)
    if architecture in RECURRENT or architecture == "falcon-h1":
        return [True] * count
    if architecture in INTERVAL:
        stated = get("attention.recurrent_layers")
        if stated is not None:
            return [bool(item) for item in per_layer(stated, count)]
        interval = int(get("full_attention_interval") or 4)
        return [layer < trunk and (layer + 1) % interval != 0 for layer in range(count)]
    if architecture in HYBRID:
        return [layer < trunk and heads == 0 for layer, heads in enumerate(kv_heads)]
    if architecture in {"nemotron_h", "nemotron_h_moe"}:
        wide = per_layer(get("feed_forward_length") or 0, count)
        return [layer < trunk and kv_heads[layer] == 0 and wide[layer] == 0 for layer in range(count)]
    return [False] * count


def _layers_with_kv(architecture: str, get: Get, trunk: int) -> int:
    """Blocks from the first on that have a KV cache of their own. Blocks for multi-token prediction have none here."""
    if architecture == "gemma3n":
        return min(trunk, GEMMA3N_KV_LAYERS)
    if architecture == "gemma4":
        return trunk - int(get("attention.shared_kv_layers") or 0)
    return trunk


def _state_bytes(get: Get) -> int:
    """Bytes of one sequence's state in one recurrent layer (llama-hparams.cpp, n_embd_r and n_embd_s)."""
    embedding = int(get("embedding_length"))
    kernel = int(get("ssm.conv_kernel") or 0)
    if wkv := int(get("wkv.head_size") or 0):
        return STATE_BYTES * embedding * (int(get("token_shift_count") or 2) + wkv)
    if shortconv := int(get("shortconv.l_cache") or 0):
        return STATE_BYTES * embedding * (shortconv - 1)
    if kda := int(get("kda.head_dim") or 0):
        return STATE_BYTES * _query_heads(get) * kda * (3 * ((kernel or 4) - 1) + kda)
    inner, size = int(get("ssm.inner_size") or 0), int(get("ssm.state_size") or 0)
    convolution = max(0, kernel - 1) * (inner + 2 * int(get("ssm.group_count") or 0) * size)
    return STATE_BYTES * (convolution + inner * size)
