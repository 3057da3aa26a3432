"""Eight models on four devices, each bound worked out again from the model's published shape and the device's sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.symptoms import GPUFacts, PodFacts, ProbeFacts, Symptoms
from slotune.llama.gguf_facts import read_facts
from tests.sparse_models import Tensor, write_sparse_model

CONTEXT = 6000
"""Tokens of the probe's prompts."""

DEVICES = {
    # name: (GB/s, 10^12 operations/s) of the data sheets
    "NVIDIA L4": (300, 242),
    "NVIDIA GeForce RTX 4090": (1008, 661),
    "NVIDIA A100-SXM4-80GB": (2039, 624),
    "NVIDIA H100 80GB HBM3": (3350, 1979),
}

Q4_K, Q6_K, Q8_0, Q4_0, MXFP4 = 4.5 / 8, 6.5625 / 8, 8.5 / 8, 4.5 / 8, 4.25 / 8
"""Bytes of a weight, from its bits."""


@dataclass(frozen=True)
class Worked:
    """What a person works out on paper."""

    weights: float
    """Bytes that a token reads, but for norms and one row of a table."""
    multiplied: float
    """Weights that a prompt token is multiplied with."""
    cache: float
    """Bytes of keys, values and states after CONTEXT tokens."""


def llama(layers: int, width: int, wide: int, kv: int, vocabulary: int, kind: str, output: str | None) -> list[Tensor]:
    """Tensors of a dense model; without ``output`` the table is the output matrix as well."""
    tensors: list[Tensor] = [("token_embd.weight", (width, vocabulary), kind)]
    if output is not None:
        tensors.append(("output.weight", (width, vocabulary), output))
    for layer in range(layers):
        tensors += [
            (f"blk.{layer}.attn_norm.weight", (width,), "F32"),
            (f"blk.{layer}.attn_q.weight", (width, width), kind),
            (f"blk.{layer}.attn_k.weight", (width, kv), kind),
            (f"blk.{layer}.attn_v.weight", (width, kv), kind),
            (f"blk.{layer}.attn_output.weight", (width, width), kind),
            (f"blk.{layer}.ffn_gate.weight", (width, wide), kind),
            (f"blk.{layer}.ffn_up.weight", (width, wide), kind),
            (f"blk.{layer}.ffn_down.weight", (wide, width), kind),
        ]
    return tensors


def mixture(
    layers: int, width: int, q: int, kv: int, experts: int, wide: int, vocabulary: int, kind: str, expert: str
) -> list[Tensor]:
    tensors: list[Tensor] = [
        ("token_embd.weight", (width, vocabulary), kind),
        ("output.weight", (width, vocabulary), kind),
    ]
    for layer in range(layers):
        tensors += [
            (f"blk.{layer}.attn_q.weight", (width, q), kind),
            (f"blk.{layer}.attn_k.weight", (width, kv), kind),
            (f"blk.{layer}.attn_v.weight", (width, kv), kind),
            (f"blk.{layer}.attn_output.weight", (q, width), kind),
            (f"blk.{layer}.ffn_gate_inp.weight", (width, experts), "F32"),
            (f"blk.{layer}.ffn_gate_exps.weight", (width, wide, experts), expert),
            (f"blk.{layer}.ffn_up_exps.weight", (width, wide, experts), expert),
            (f"blk.{layer}.ffn_down_exps.weight", (wide, width, experts), expert),
        ]
    return tensors


def deepseek_lite() -> list[Tensor]:
    """Its rows rounded to whole blocks of 256."""
    tensors: list[Tensor] = [
        ("token_embd.weight", (2048, 102400), "Q4_K"),
        ("output.weight", (2048, 102400), "Q6_K"),
    ]
    for layer in range(27):
        tensors += [
            (f"blk.{layer}.attn_q.weight", (2048, 3072), "Q8_0"),
            (f"blk.{layer}.attn_kv_a_mqa.weight", (2048, 576), "Q8_0"),
            (f"blk.{layer}.attn_k_b.weight", (128, 512, 16), "Q8_0"),
            (f"blk.{layer}.attn_v_b.weight", (512, 128, 16), "Q8_0"),
            (f"blk.{layer}.attn_output.weight", (2048, 2048), "Q8_0"),
        ]
        if layer == 0:
            tensors += [
                ("blk.0.ffn_gate.weight", (2048, 10752), "Q4_K"),
                ("blk.0.ffn_up.weight", (2048, 10752), "Q4_K"),
                ("blk.0.ffn_down.weight", (10752, 2048), "Q4_K"),
            ]
        else:
            tensors += [
                (f"blk.{layer}.ffn_gate_inp.weight", (2048, 64), "F32"),
                (f"blk.{layer}.ffn_gate_exps.weight", (2048, 1536, 64), "Q4_K"),
                (f"blk.{layer}.ffn_up_exps.weight", (2048, 1536, 64), "Q4_K"),
                (f"blk.{layer}.ffn_down_exps.weight", (1536, 2048, 64), "Q4_K"),
                (f"blk.{layer}.ffn_gate_shexp.weight", (2048, 3072), "Q4_K"),
                (f"blk.{layer}.ffn_up_shexp.weight", (2048, 3072), "Q4_K"),
                (f"blk.{layer}.ffn_down_shexp.weight", (3072, 2048), "Q4_K"),
            ]
    return tensors


def gemma() -> list[Tensor]:
    """Its heads are wider together than it is, and its table is in another type."""
    tensors = [one for one in llama(26, 1152, 6912, 256, 262144, "Q4_0", None) if "attn_q" not in one[0]]
    tensors = [one for one in tensors if "attn_output" not in one[0] and one[0] != "token_embd.weight"]
    tensors.append(("token_embd.weight", (1152, 262144), "Q8_0"))
    for layer in range(26):
        tensors.append((f"blk.{layer}.attn_q.weight", (1152, 1024), "Q4_0"))
        tensors.append((f"blk.{layer}.attn_output.weight", (1024, 1152), "Q4_0"))
    return tensors


def mamba() -> list[Tensor]:
    tensors: list[Tensor] = [("token_embd.weight", (2560, 50280), "F16")]
    for layer in range(64):
        tensors += [
            (f"blk.{layer}.ssm_in.weight", (2560, 10240), "F16"),
            (f"blk.{layer}.ssm_x.weight", (5120, 192), "F16"),
            (f"blk.{layer}.ssm_dt.weight", (160, 5120), "F16"),
            (f"blk.{layer}.ssm_out.weight", (5120, 2560), "F16"),
        ]
    return tensors


def keys(layers: int, width: int, heads: int, kv: int, **more: int) -> dict[str, int]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    stated = {"block_count": layers, "context_length": 131072, "embedding_length": width}
    return {**stated, "attention.head_count": heads, "attention.head_count_kv": kv, **named}


def llama_8b() -> Worked:
    block = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336  # q and o, k and v, feed forward
    weights = 32 * block * Q4_K + 4096 * 128256 * Q6_K
    return Worked(weights, 32 * block - 3 * 4096 * 14336, CONTEXT * 32 * 2 * 8 * 128 * 2)


def llama_70b() -> Worked:
    block = 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672
    weights = 80 * block * Q4_K + 8192 * 128256 * Q6_K
    return Worked(weights, 80 * block - 3 * 8192 * 28672, CONTEXT * 80 * 2 * 8 * 128 * 2)


def smollm2() -> Worked:
    block = 2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536
    weights = (30 * block + 576 * 49152) * Q8_0  # the table is the output matrix
    assert 30 * block == pytest.approx(106.2e6, rel=1e-3)
    return Worked(weights, 30 * block - 3 * 576 * 1536, CONTEXT * 30 * 2 * 3 * 64 * 2)


def gemma_1b() -> Worked:
    block = 2 * 1152 * 1024 + 2 * 1152 * 256 + 3 * 1152 * 6912
    full, sliding = 4, 22  # of 26 every sixth
    cache = (full * CONTEXT + sliding * 512) * 2 * 256 * 2
    return Worked(26 * block * Q4_0 + 1152 * 262144 * Q8_0, 26 * block - 3 * 1152 * 6912, cache)


def gpt_oss_20b() -> Worked:
    attention, router, expert = 2 * 2880 * 4096 + 2 * 2880 * 512, 2880 * 32, 3 * 2880 * 2880
    weights = 24 * (attention * Q8_0 + router * 4 + 4 * expert * MXFP4) + 2880 * 201088 * Q8_0
    multiplied = 24 * attention + 23 * (router + 4 * expert)
    assert 24 * (attention + router + 4 * expert) + 2880 * 201088 == pytest.approx(3.6e9, rel=0.01), "as published"
    return Worked(weights, multiplied, 12 * (CONTEXT + 128) * 2 * 8 * 64 * 2)


def qwen3_30b() -> Worked:
    attention, router, expert = 2 * 2048 * 4096 + 2 * 2048 * 512, 2048 * 128, 3 * 2048 * 768
    weights = 48 * (attention * Q4_K + router * 4 + 8 * expert * Q4_K) + 2048 * 151936 * Q4_K
    assert 48 * (attention + router + 8 * expert) + 2 * 2048 * 151936 == pytest.approx(3.3e9, rel=0.02), "as published"
    return Worked(weights, 48 * attention + 47 * (router + 8 * expert), CONTEXT * 48 * 2 * 4 * 128 * 2)


def deepseek() -> Worked:
    attention = 2048 * 3072 + 2048 * 576 + 2 * 128 * 512 * 16 + 2048**2
    dense, expert, shared, router = 3 * 2048 * 10752, 3 * 2048 * 1536, 3 * 2048 * 3072, 2048 * 64
    weights = 27 * attention * Q8_0 + (dense + 26 * (6 * expert + shared)) * Q4_K + 26 * router * 4
    weights += 2048 * 102400 * Q6_K
    multiplied = 27 * attention + dense + 25 * (6 * expert + shared + router)
    return Worked(weights, multiplied, CONTEXT * 27 * (512 + 64) * 2)


def mamba_3b() -> Worked:
    block = 2560 * 10240 + 5120 * 192 + 160 * 5120 + 5120 * 2560
    state = 64 * 4 * (3 * 5120 + 16 * 5120)  # of the convolution and of the scan, f32, whatever the context
    return Worked((64 * block + 2560 * 50280) * 2, 64 * block, state)


MODELS: Mapping[str, tuple[str, dict[str, int], Callable[[], list[Tensor]], Callable[[], Worked]]] = {
    "Llama 3.1 8B": (
        "llama",
        keys(32, 4096, 32, 8),
        lambda: llama(32, 4096, 14336, 1024, 128256, "Q4_K", "Q6_K"),
        llama_8b,
    ),
    "Llama 3.3 70B": (
        "llama",
        keys(80, 8192, 64, 8),
        lambda: llama(80, 8192, 28672, 1024, 128256, "Q4_K", "Q6_K"),
        llama_70b,
    ),
    "SmolLM2 135M": ("llama", keys(30, 576, 9, 3), lambda: llama(30, 576, 1536, 192, 49152, "Q8_0", None), smollm2),
    "gpt-oss 20B": (
        "gpt-oss",
        keys(24, 2880, 64, 8, attention__key_length=64, attention__value_length=64, attention__sliding_window=128,
             expert_count=32, expert_used_count=4),
        lambda: mixture(24, 2880, 4096, 512, 32, 2880, 201088, "Q8_0", "MXFP4"),
        gpt_oss_20b,
    ),
    "Qwen3 30B-A3B": (
        "qwen3moe",
        keys(48, 2048, 32, 4, attention__key_length=128, attention__value_length=128, expert_count=128,
             expert_used_count=8),
        lambda: mixture(48, 2048, 4096, 512, 128, 768, 151936, "Q4_K", "Q4_K"),
        qwen3_30b,
    ),
    "DeepSeek V2 Lite": (
        "deepseek2",
        keys(27, 2048, 16, 1, attention__key_length=576, attention__value_length=512, attention__key_length_mla=192,
             attention__value_length_mla=128, attention__kv_lora_rank=512, rope__dimension_count=64, expert_count=64,
             expert_used_count=6),
        deepseek_lite,
        deepseek,
    ),
    "Mamba 2.8B": (
        "mamba",
        {"block_count": 64, "context_length": 131072, "embedding_length": 2560, "ssm.conv_kernel": 4,
         "ssm.inner_size": 5120, "ssm.state_size": 16},
        mamba,
        mamba_3b,
    ),
    "Gemma 3 1B": (
        "gemma3",
        keys(26, 1152, 4, 1, attention__key_length=256, attention__value_length=256, attention__sliding_window=512),
        gemma,
        gemma_1b,
    ),
}  # fmt: skip


def bounds(path: Path, device: str, pod: PodFacts | None = None) -> Roofline:
    probe = ProbeFacts(4, CONTEXT, 0.01, prefill_tokens_per_s=100.0, decode_step_s=1.0)
    model = read_facts(path, hashed=False)
    found = roofline_of(Symptoms("s", model=model, gpu=GPUFacts(device), probe=probe, pod=pod))
    assert isinstance(found, Roofline)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_bounds_are_what_a_person_works_out(name: str, tmp_path: Path) -> None:
    architecture, stated, tensors, worked = MODELS[name]
    path = write_sparse_model(tmp_path / "model.gguf", architecture, stated, tensors())
    paper = worked()
    for device, (bandwidth, operations) in DEVICES.items():
        found = bounds(path, device)
        assert found.weights_bytes == pytest.approx(paper.weights, rel=2e-3)
        assert found.kv_bytes == pytest.approx(paper.cache, rel=1e-6)
        assert found.decode.at_most == pytest.approx(bandwidth * 1e9 / (paper.weights + paper.cache), rel=2e-3)
        assert found.prefill.at_most == pytest.approx(operations * 1e12 / 2 / paper.multiplied, rel=2e-3)


@pytest.mark.parametrize(("split", "times"), [("layer", 1), ("row", 2), ("tensor", 2)])
def test_70_b_on_two_gpus(split: str, times: int, tmp_path: Path) -> None:
    architecture, stated, tensors, worked = MODELS["Llama 3.3 70B"]
    path = write_sparse_model(tmp_path / "model.gguf", architecture, stated, tensors())
    pod = PodFacts("p", args=("llama-server", "-sm", split, "-ctk", "q8_0", "-ctv", "q8_0"), gpus=2)
    paper = worked()
    found = bounds(path, "NVIDIA A100-SXM4-80GB", pod)
    assert found.decode.at_most == pytest.approx(times * 2039e9 / (paper.weights + paper.cache * 17 / 32), rel=2e-3)
    assert found.prefill.at_most == pytest.approx(2 * 624e12 / 2 / paper.multiplied, rel=2e-3)


def test_numbers_as_they_are_known() -> None:
    """Llama 8B at 4.5 bits: 4.4 GB and 0.8 GB of cache, 194 tokens/s of an RTX 4090."""
    paper = llama_8b()
    assert paper.weights == pytest.approx(4.36e9, rel=0.01)
    assert paper.cache == pytest.approx(0.786e9, rel=0.01)
    assert 1008e9 / (paper.weights + paper.cache) == pytest.approx(196, rel=0.01)
