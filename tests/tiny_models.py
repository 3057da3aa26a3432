"""Writes GGUF models of a few hundred kilobytes that a real llama.cpp loads and generates with.

Random weights: sizes, layouts and speed are real, the text is not. One printable ASCII character is about one token,
so a prompt's length in tokens can be chosen. Special and byte tokens have zero output rows: a random model would else
end its answer early or emit half a character, and the server would hold the bytes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import gguf
import numpy as np

from tests.tiny_layers import Architecture, Sizes, add_keys, block, output_norm

__all__ = ["Architecture", "Quantization", "write_tiny_model"]

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
FLOATS_ONLY = ("ffn_gate_inp", "shortconv.conv", "ssm_conv1d", "ssm_a", "ssm_d")
"""llama.cpp never quantizes these: what chooses experts, convolutions, decays."""

WORDS_BEFORE_TEXT = 3 + 256
"""Unknown, start and end of text, and one token for each byte."""


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
    latent: int = 128,
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
        architecture: ``deci`` is ``llama`` with KV heads per layer. ``gemma2`` slides every other layer by default and
            ``gemma3`` five of six; both tie their embeddings. ``deepseek2`` has latent attention and is never ``tied``,
            ``mamba`` has no attention, and ``lfm2`` has a convolution in every layer without KV heads.
        kv_heads: a number, or one per layer (deci, lfm2); None: as many as ``heads``.
        embedding: a multiple of 32 for Q8_0 and Q4_0, as ``feed_forward``.
        key_length: elements of a head; None: ``embedding / heads``. ``value_length`` alike.
        latent: elements of deepseek2's compressed keys and values.
        window: tokens of a sliding window; only gemma2 and gemma3 use one.
        window_pattern: the period of full layers, or per layer whether it slides; None: the architecture's own.
        experts: of a mixture, of which ``experts_used`` are chosen; 0: none. Only llama.
        words: size of the vocabulary, at least 384.
        tied: the embedding table is the output matrix too.
        seed: of the weights; equal arguments write equal bytes.
    """
    per_layer = tuple(kv_heads) if isinstance(kv_heads, Sequence) else (kv_heads or heads,) * layers
    key = key_length or embedding // heads
    sizes = Sizes(heads, per_layer, embedding, feed_forward, key, value_length or key, experts, latent)
    tied = tied or architecture in {"gemma2", "gemma3", "lfm2", "mamba"}
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_file_type(FILE_TYPES[quantization])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(context)
    writer.add_embedding_length(embedding)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(0 if architecture == "mamba" else feed_forward)
    writer.add_head_count(0 if architecture == "mamba" else heads)
    if architecture != "mamba":
        writer.add_head_count_kv(list(per_layer) if isinstance(kv_heads, Sequence) else per_layer[0])
    writer.add_layer_norm_rms_eps(1e-5)
    add_keys(writer, architecture, sizes, layers)
    if window is not None:
        writer.add_sliding_window(window)
    if window_pattern is not None:
        writer.add_sliding_window_pattern(window_pattern)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(experts_used)
    _add_vocabulary(writer, words)

    random = np.random.default_rng(seed)
    shapes = {"token_embd.weight": (words, embedding), output_norm(architecture): (embedding,)}
    if not tied:
        shapes["output.weight"] = (words, embedding)
    for layer in range(layers):
        for name, shape in block(architecture, sizes, layer).items():
            suffix = "" if name in {"ssm_a", "ssm_d"} or name.endswith(".bias") else ".weight"
            shapes[f"blk.{layer}.{name}{suffix}"] = shape
    for name, shape in shapes.items():
        _add_tensor(writer, name, shape, quantization, random, is_output=name == "output.weight" or tied)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


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


def _add_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    shape: tuple[int, ...],
    quantization: Quantization,
    random: np.random.Generator,
    is_output: bool,
) -> None:
    if len(shape) == 1:
        writer.add_tensor(name, np.ones(shape, dtype=np.float32))
        return
    weights = random.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))
    if is_output and name in {"output.weight", "token_embd.weight"}:
        weights[:WORDS_BEFORE_TEXT] = 0
    if name.endswith("ssm_a"):
        weights = -np.abs(weights)  # a state that grows would overflow
    kind = gguf.GGMLQuantizationType[quantization]
    block_elements = gguf.GGML_QUANT_SIZES[kind][0]
    if any(part in name for part in FLOATS_ONLY):
        kind = gguf.GGMLQuantizationType.F32
    elif shape[-1] % block_elements:
        kind = gguf.GGMLQuantizationType.F16
    writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
