"""The log is the only witness of what llama-server really did. These are its own words.

``logs/`` holds logs of build 11549 on a CPU, cut down, and one of a Vulkan build (b10434) that found no GPU. CUDA lines
are those of llama.cpp's source at b11434.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.log_lines import LogFacts, parse_log

LOGS = Path(__file__).parent / "logs"
MIB = 1024 * 1024


def facts(name: str) -> LogFacts:
    return parse_log((LOGS / f"{name}.log").read_text(encoding="utf-8"))


def test_a_split_quantized_server_with_speculation() -> None:
    got = facts("split_quantized")

    assert got.build == "xllamacpp 2026.10.11549"
    assert (got.slots, got.context_per_slot, got.context_total, got.kv_unified) == (3, 1024, 3072, False)
    assert (got.batch_size, got.ubatch_size, got.threads, got.threads_batch) == (256, 128, 1, 2)
    assert (got.cache_type_k, got.cache_type_v, got.flash_attention) == ("q8_0", "q8_0", True)
    assert (got.cache_ram_mib, got.cache_idle_slots, got.speculation, got.ready) == (64, True, True, True)
    assert got.model_buffers == {"CPU_Mapped": round(92.10 * MIB)}
    assert got.kv_bytes == round(35.86 * MIB)
    assert got.layers_offloaded is None
    assert not got.on_gpu


def test_a_unified_server_without_a_prompt_cache() -> None:
    got = facts("unified_pool")

    assert (got.slots, got.context_per_slot, got.kv_unified) == (4, 4096, True)
    assert (got.cache_ram_mib, got.cache_idle_slots, got.speculation) == (0, False, False)
    assert got.flash_attention is True, "auto was resolved to on"


def test_llama_servers_defaults_are_four_slots_on_one_pool_and_eight_gigabytes_of_host_cache() -> None:
    got = facts("all_defaults")

    assert (got.slots, got.kv_unified, got.cache_ram_mib, got.cache_idle_slots) == (4, True, 8192, True)
    assert got.kv_bytes == 180 * MIB, "the trial run of -fit is not counted"
    assert got.fit_changes == ()


def test_a_context_beyond_the_models_training_is_seen_to_be_cut() -> None:
    got = facts("context_capped")

    assert (got.context_per_slot, got.context_total, got.context_trained_cap) == (8192, 32768, 8192)
    assert (got.batch_size, got.ubatch_size) == (64, 64), "the physical batch was clamped"
    assert got.cache_idle_slots is False


def test_flash_attention_off_is_off() -> None:
    assert facts("flash_attention_off").flash_attention is False


def test_what_a_lower_log_level_hides_is_unknown_and_not_false() -> None:
    got = facts("log_level_three")

    assert (got.slots, got.context_per_slot, got.kv_unified, got.ready) == (2, 512, False, True)
    assert got.batch_size is None
    assert got.flash_attention is None
    assert got.cache_ram_mib is None
    assert got.cache_idle_slots is None
    assert got.memory_bytes is None


def test_a_gpu_build_without_a_gpu_puts_everything_into_host_memory_whatever_it_says() -> None:
    got = facts("gpu_build_without_gpu")

    assert (got.build, got.layers_offloaded, got.on_gpu) == ("1 (7e4c0a9)", 31, False)


@pytest.mark.parametrize("name", ["model_missing", "kv_too_big", "port_taken", "quantized_v_without_flash_attention"])
def test_a_server_that_failed_was_never_ready(name: str) -> None:
    assert not facts(name).ready


CUDA = """\
0.00.227.765 I build_info: b11434-abc1234
load_tensors: offloading 32 repeating layers to GPU
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  4403.50 MiB
load_tensors:   CPU_Mapped model buffer size =   281.81 MiB
llama_context: constructing llama_context
llama_context:  CUDA_Host  output buffer size =     1.96 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
llama_kv_cache: size = 1024.00 MiB (  4096 cells,  32 layers,  4/4 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
sched_reserve:      CUDA0 compute buffer size =   258.50 MiB
sched_reserve:  CUDA_Host compute buffer size =    16.01 MiB
"""


def test_on_a_gpu_only_what_lies_there_is_its_memory() -> None:
    got = parse_log(CUDA)

    assert (got.build, got.layers_offloaded, got.layers, got.on_gpu) == ("b11434-abc1234", 33, 33, True)
    assert got.memory_bytes == round((4403.50 + 1024 + 258.50) * MIB)
    assert got.device_compute_bytes == round(258.50 * MIB)
    assert got.model_bytes == round(4403.50 * MIB) + round(281.81 * MIB)


def test_a_context_that_reserves_again_does_not_take_its_memory_twice() -> None:
    again = "sched_reserve:      CUDA0 compute buffer size =   300.00 MiB\n"

    assert parse_log(CUDA + again).device_compute_bytes == 300 * MIB


def test_both_caches_of_a_sliding_window_model_count() -> None:
    log = """\
llama_kv_cache_iswa: creating non-SWA KV cache, size = 4096 cells
llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache:      CUDA0 KV buffer size =    16.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =     2.00 MiB
"""
    assert parse_log(log).kv_buffers == {"CUDA0": 82 * MIB}


def test_a_kernel_that_was_not_compiled_is_named() -> None:
    line = (
        "W ggml_cuda_fl: no FlashAttention vector kernel compiled for K/V types q5_0-f16, "
        "converting K and V to f16 instead (slow)\n"
    )
    assert parse_log(line).kernel_fallback == "q5_0-f16"


@pytest.mark.parametrize(
    "line",
    [
        "layer 3 is assigned to device CUDA0 but Flash Attention is assigned to device CPU (usually due to missing)",
        "Flash Attention not supported, set to disabled",
    ],
)
def test_attention_that_left_its_device_is_a_fallback(line: str) -> None:
    assert "Flash Attention" in (parse_log(f"W resolve_fused_ops: {line}\n").flash_attention_fallback or "")


@pytest.mark.parametrize(
    ("line", "attribute", "want"),
    [
        ("warning: no usable GPU found, --gpu-layers option will be ignored", "no_usable_gpu", True),
        (
            "W srv    load_model: cache_reuse is not supported by this context, it will be disabled",
            "cache_reuse_unsupported",
            True,
        ),
        (
            "W srv    load_model: cache_reuse is not supported by multimodal, it will be disabled",
            "cache_reuse_unsupported",
            True,
        ),
        (
            "E srv load_model: failed to initialize speculative decoding context: no draft",
            "speculation_error",
            "failed to initialize speculative decoding context: no draft",
        ),
        (
            "I common_params_fit_impl: context size reduced from 131072 to 4096 -> need 900 MiB less memory in total",
            "fit_changes",
            ("context size reduced from 131072 to 4096 -> need 900 MiB less memory in total",),
        ),
        ("I using config file: /etc/llama.cpp/config.ini", "config_files", ("/etc/llama.cpp/config.ini",)),
        ("I srv load_model: prompt cache is enabled, size limit: no limit", "cache_ram_mib", -1),
    ],
)
def test_a_warning_becomes_a_fact(line: str, attribute: str, want: object) -> None:
    assert getattr(parse_log(line + "\n"), attribute) == want


@given(st.text())
def test_no_text_upsets_the_parser(text: str) -> None:
    parse_log(text)


@given(st.sampled_from(["", "\x1b[34m", "1795971337 I ", "0.00.000.001 I srv  "]))
def test_the_prefix_of_a_line_does_not_matter(prefix: str) -> None:
    log = "".join(f"{prefix}{line}\n" for line in CUDA.splitlines())

    assert parse_log(log) == parse_log(CUDA)
