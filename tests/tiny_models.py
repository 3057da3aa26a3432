"""Writes GGUF models of a few hundred kilobytes that a real llama.cpp loads and generates with.

Random weights: sizes, layouts and speed are real, the text is not. One printable ASCII character is about one token,
so a prompt's length in tokens can be chosen. Special and byte tokens have zero output rows: a random model would else
end its answer early or emit half a character, and the server would hold the bytes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import gguf
import numpy as np

__all__ = ["Architecture", "Quantization", "write_tiny_model"]

Architecture = Literal["llama", "gemma2", "gemma3"]
Quantization = Literal["F32", "F16", "Q8_0", "Q4_0"]

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "F16": gguf.LlamaFileType.MOSTLY_F16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
    "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
}


def write_tiny_model(
    path: Path,
    *,
    architecture: Architecture = "llama",
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | Sequence[int] | None = None,
    embedding: int = 256,
    feed_forward: int = 512,
    key_length: int | None = None,
    value_length: int | None = None,
    window: int | None = None,
    window_pattern: int | Sequence[bool] | None = None,
    experts: int = 0,
    experts_used: int = 0,
    context: int = 2048,
    words: int = 512,
    tied: bool = False,
    quantization: Quantization = "F16",
    seed: int = 0,
) -> Path:
    """Write a model to ``path`` and return it.

    Args:
        architecture: ``gemma2`` slides every other layer by default, ``gemma3`` five of six; both tie their embeddings.
        kv_heads: a number, or one per layer; None: as many as ``heads``.
        embedding: a multiple of 32 for Q8_0 and Q4_0, as ``feed_forward``.
        key_length: elements of a head; None: ``embedding / heads``. ``value_length`` alike.
        window: tokens of a sliding window; only gemma2 and gemma3 use one.
        window_pattern: the period of full layers, or per layer whether it slides; None: the architecture's own.
        experts: of a mixture, of which ``experts_used`` are chosen; 0: none. Only llama.
        words: size of the vocabulary, at least 384.
        tied: the embedding table is the output matrix too.
        seed: of the weights; equal arguments write equal bytes.
    """
    gemma = architecture != "llama"
    per_layer = list(kv_heads) if isinstance(kv_heads, Sequence) else [kv_heads or heads] * layers
    key = key_length or embedding // heads
    value = value_length or key
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_file_type(FILE_TYPES[quantization])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(context)
    writer.add_embedding_length(embedding)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(feed_forward)
    writer.add_head_count(heads)
    writer.add_head_count_kv(per_layer if isinstance(kv_heads, Sequence) else per_layer[0])
    writer.add_key_length(key)
    writer.add_value_length(value)
    writer.add_rope_dimension_count(key)
    writer.add_layer_norm_rms_eps(1e-5)
    if window is not None:
        writer.add_sliding_window(window)
    if window_pattern is not None:
        writer.add_sliding_window_pattern(window_pattern)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(experts_used)
    _add_vocabulary(writer, words)

    random = np.random.default_rng(seed)
    shapes = _matrices(layers, heads, per_layer, embedding, feed_forward, key, value, experts)
    if not (gemma or tied):
        shapes = [("output.weight", (words, embedding)), *shapes]
    for name, shape in [("token_embd.weight", (words, embedding)), *shapes]:
        weights = random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))
        if name in {"output.weight", "token_embd.weight"} and (name == "output.weight" or gemma or tied):
            weights[:WORDS_BEFORE_TEXT] = 0
        _add_matrix(writer, name, weights, quantization)
    for name, width in _norms(layers, embedding, key, architecture):
        writer.add_tensor(name, np.ones(width, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


WORDS_BEFORE_TEXT = 3 + 256
"""Unknown, start and end of text, and one token for each byte."""


def _add_vocabulary(writer: gguf.GGUFWriter, words: int) -> None:
    special = ["<unk>", "<s>", "</s>"]
    text = ["\u2581", *(chr(code) for code in range(33, 127))]
    filler = [f"\u2581filler{number}" for number in range(words - WORDS_BEFORE_TEXT - len(text))]
    types = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    types += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (len(text) + len(filler))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*special, *(f"<0x{byte:02X}>" for byte in range(256)), *text, *filler])
    writer.add_token_scores([0.0] * words)
    writer.add_token_types([int(kind) for kind in types])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(TEMPLATE)


def _matrices(
    layers: int, heads: int, kv_heads: Sequence[int], embedding: int, wide: int, key: int, value: int, experts: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes (rows, columns) of all that may be quantized."""
    shapes: list[tuple[str, tuple[int, ...]]] = []
    for layer in range(layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_q": (heads * key, embedding),
            "attn_k": (kv_heads[layer] * key, embedding),
            "attn_v": (kv_heads[layer] * value, embedding),
            "attn_output": (embedding, heads * value),
        }
        if experts:
            block["ffn_gate_inp"] = (experts, embedding)
            block["ffn_gate_exps"] = block["ffn_up_exps"] = (experts, wide, embedding)
            block["ffn_down_exps"] = (experts, embedding, wide)
        else:
            block["ffn_gate"] = block["ffn_up"] = (wide, embedding)
            block["ffn_down"] = (embedding, wide)
        shapes += [(f"blk.{layer}.{name}.weight", shape) for name, shape in block.items()]
    return shapes


def _norms(layers: int, embedding: int, key: int, architecture: Architecture) -> Iterator[tuple[str, int]]:
    yield "output_norm.weight", embedding
    for layer in range(layers):
        names = {"attn_norm": embedding, "ffn_norm": embedding}
        if architecture != "llama":
            names |= {"post_attention_norm": embedding, "post_ffw_norm": embedding}
        if architecture == "gemma3":
            names |= {"attn_q_norm": key, "attn_k_norm": key}
        for name, width in names.items():
            yield f"blk.{layer}.{name}.weight", width


def _add_matrix(writer: gguf.GGUFWriter, name: str, weights: np.ndarray, quantization: Quantization) -> None:
    router = "ffn_gate_inp" in name  # llama.cpp never quantizes what chooses the experts
    kind = gguf.GGMLQuantizationType["F32" if router else quantization]
    writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
