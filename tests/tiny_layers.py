"""Keys and tensors of one block of each architecture that ``tests/tiny_models.py`` writes.

Shapes are (rows, columns). What llama.cpp requires of each architecture, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import gguf

__all__ = ["Architecture", "Sizes", "add_keys", "block", "output_norm"]

Architecture = Literal["llama", "deci", "gemma2", "gemma3", "deepseek2", "mamba", "lfm2"]

CONVOLUTION = 4
"""Tokens that a convolution of mamba sees; lfm2 sees one less."""
STATE = 16
ROPE = 32
"""Rotated elements of a latent attention head, and as many that are not."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Widths of a model."""

    heads: int
    kv_heads: tuple[int, ...]
    """Per layer."""
    embedding: int
    feed_forward: int
    key: int
    value: int
    experts: int
    latent: int
    """Rank of the compressed keys and values of deepseek2."""


def add_keys(writer: gguf.GGUFWriter, architecture: Architecture, sizes: Sizes, layers: int) -> None:
    """Keys that only ``architecture`` has. Latent heads have their own lengths, mamba has no heads."""
    if architecture == "mamba":
        writer.add_ssm_conv_kernel(CONVOLUTION)
        writer.add_ssm_inner_size(2 * sizes.embedding)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(STATE)
        return
    if architecture == "deepseek2":
        writer.add_key_length(sizes.latent + ROPE)
        writer.add_value_length(sizes.latent)
        writer.add_key_length_mla(2 * ROPE)
        writer.add_value_length_mla(2 * ROPE)
        writer.add_q_lora_rank(sizes.latent)
        writer.add_kv_lora_rank(sizes.latent)
        writer.add_rope_dimension_count(ROPE)
        writer.add_leading_dense_block_count(layers)
        writer.add_expert_feed_forward_length(sizes.feed_forward)
        writer.add_expert_shared_count(1)
        return
    writer.add_key_length(sizes.key)
    writer.add_value_length(sizes.value)
    writer.add_rope_dimension_count(sizes.key)
    if architecture == "lfm2":
        writer.add_shortconv_l_cache(CONVOLUTION - 1)


def block(architecture: Architecture, sizes: Sizes, layer: int) -> Mapping[str, tuple[int, ...]]:
    """Tensors of one block without ``blk.N.`` and ``.weight``; those of one dimension are kept in f32."""
    if architecture == "mamba":
        return _mamba(sizes)
    tensors: dict[str, tuple[int, ...]] = {"attn_norm": (sizes.embedding,), "ffn_norm": (sizes.embedding,)}
    if architecture == "deepseek2":
        tensors |= _latent_attention(sizes)
    elif architecture == "lfm2" and sizes.kv_heads[layer] == 0:
        tensors |= {
            "shortconv.conv": (sizes.embedding, CONVOLUTION - 1),
            "shortconv.in_proj": (3 * sizes.embedding, sizes.embedding),
            "shortconv.out_proj": (sizes.embedding, sizes.embedding),
        }
    else:
        tensors |= _attention(sizes, sizes.kv_heads[layer])
        if architecture in {"gemma3", "lfm2"}:
            tensors |= {"attn_q_norm": (sizes.key,), "attn_k_norm": (sizes.key,)}
    if architecture in {"gemma2", "gemma3"}:
        tensors |= {"post_attention_norm": (sizes.embedding,), "post_ffw_norm": (sizes.embedding,)}
    return tensors | _feed_forward(sizes)


def output_norm(architecture: Architecture) -> str:
    """Name of the last norm."""
    return "token_embd_norm.weight" if architecture == "lfm2" else "output_norm.weight"


def _attention(sizes: Sizes, kv_heads: int) -> dict[str, tuple[int, ...]]:
    return {
        "attn_q": (sizes.heads * sizes.key, sizes.embedding),
        "attn_k": (kv_heads * sizes.key, sizes.embedding),
        "attn_v": (kv_heads * sizes.value, sizes.embedding),
        "attn_output": (sizes.embedding, sizes.heads * sizes.value),
    }


def _latent_attention(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    return {
        "attn_q_a": (sizes.latent, sizes.embedding),
        "attn_q_a_norm": (sizes.latent,),
        "attn_q_b": (sizes.heads * 2 * ROPE, sizes.latent),
        "attn_kv_a_mqa": (sizes.latent + ROPE, sizes.embedding),
        "attn_kv_a_norm": (sizes.latent,),
        "attn_k_b": (sizes.heads, sizes.latent, ROPE),
        "attn_v_b": (sizes.heads, 2 * ROPE, sizes.latent),
        "attn_output": (sizes.embedding, sizes.heads * 2 * ROPE),
    }


def _mamba(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    inner = 2 * sizes.embedding
    return {
        "attn_norm": (sizes.embedding,),
        "ssm_in": (2 * inner, sizes.embedding),
        "ssm_conv1d": (inner, CONVOLUTION),
        "ssm_conv1d.bias": (inner,),
        "ssm_x": (STATE + 2 * STATE, inner),
        "ssm_dt": (inner, STATE),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, STATE),
        "ssm_d": (inner,),
        "ssm_out": (sizes.embedding, inner),
    }


def _feed_forward(sizes: Sizes) -> dict[str, tuple[int, ...]]:
    wide: tuple[int, ...] = (sizes.feed_forward, sizes.embedding)
    narrow: tuple[int, ...] = (sizes.embedding, sizes.feed_forward)
    if not sizes.experts:
        return {"ffn_gate": wide, "ffn_up": wide, "ffn_down": narrow}
    return {
        "ffn_gate_inp": (sizes.experts, sizes.embedding),
        "ffn_gate_exps": (sizes.experts, *wide),
        "ffn_up_exps": (sizes.experts, *wide),
        "ffn_down_exps": (sizes.experts, *narrow),
    }
