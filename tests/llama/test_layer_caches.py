"""Which layers keep what: the keys of known models in, the caches that llama.cpp makes for them out."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.llama.layer_caches import INEXACT, WINDOWS, layer_caches
from slotune.llama.model_facts import LayerCache


def caches(architecture: str, **keys: Any) -> tuple[LayerCache, ...]:
    """Caches of a model of eight layers, 1024 wide, eight heads of 128, two of them for keys and values."""
    stated = {"block_count": 8, "embedding_length": 1024, "attention.head_count": 8, "attention.head_count_kv": 2}
    stated |= {key.replace("__", "."): value for key, value in keys.items()}
    return layer_caches(architecture, stated.get)


def windows(architecture: str, **keys: Any) -> list[int | None]:
    return [layer.window for layer in caches(architecture, **keys)]


def test_all_layers_of_a_llama_keep_everything() -> None:
    assert caches("llama") == (LayerCache(256, 256),) * 8


def test_without_grouped_heads_every_head_is_kept() -> None:
    assert caches("llama", attention__head_count_kv=None)[0] == LayerCache(1024, 1024)


def test_heads_have_the_stated_lengths() -> None:
    assert caches("llama", attention__key_length=192, attention__value_length=64)[0] == LayerCache(384, 128)


def test_kv_heads_may_differ_between_layers() -> None:
    layers = caches("deci", attention__head_count_kv=(8, 4, 2, 1, 0, 1, 2, 4))

    assert [layer.key_elements for layer in layers] == [1024, 512, 256, 128, 0, 128, 256, 512]


def test_a_window_that_llama_cpp_does_not_use_is_not_used() -> None:
    assert windows("llama", attention__sliding_window=4096) == [None] * 8
    assert windows("phi3", attention__sliding_window=2047) == [None] * 8


@pytest.mark.parametrize(
    ("architecture", "keys", "want"),
    [
        pytest.param("gemma2", {}, [4096, None] * 4, id="Gemma 2 slides every other layer, 4096 by default"),
        pytest.param("gemma2", {"attention__sliding_window": 512}, [512, None] * 4, id="Gemma 2 with its own window"),
        pytest.param("gemma3", {"attention__sliding_window": 1024}, [1024] * 5 + [None] + [1024] * 2,
                     id="Gemma 3 slides five of six"),
        pytest.param("gemma3", {}, [None] * 8, id="Gemma 3 without a window is full"),
        pytest.param("gemma3", {"attention__sliding_window": 0}, [None] * 8, id="a window of zero is none"),
        pytest.param("gpt-oss", {"attention__sliding_window": 128}, [128, None] * 4, id="gpt-oss"),
        pytest.param("llama4", {}, [8192, 8192, 8192, None] * 2, id="Llama 4 chunks by default"),
        pytest.param("llama4", {"attention__sliding_window": 4096}, [8192, 8192, 8192, None] * 2,
                     id="Llama 4 has one size of chunk"),
        pytest.param("llama4", {"attention__sliding_window": 0}, [None] * 8, id="Llama 4 without chunks"),
        pytest.param("smallthinker", {"attention__sliding_window": 99}, [None, 4096, 4096, 4096] * 2,
                     id="SmallThinker begins with a full layer"),
        pytest.param("cohere2", {"attention__sliding_window": 4096}, [4096, 4096, 4096, None] * 2, id="Command R7B"),
        pytest.param("exaone4", {"attention__sliding_window": 4096}, [None] * 8, id="small EXAONE 4 is full"),
        pytest.param("gpt-oss", {"attention__sliding_window": 128, "attention__sliding_window_pattern": 4},
                     [128, 128, 128, None] * 2, id="the file's own period wins"),
        pytest.param("gpt-oss", {"attention__sliding_window": 128, "attention__sliding_window_pattern": 1},
                     [None] * 8, id="a period of one is full"),
        pytest.param("gemma4", {"attention__sliding_window": 64,
                                "attention__sliding_window_pattern": (True, True, False, True) * 2},
                     [64, 64, None, 64] * 2, id="the file's own pattern wins"),
        pytest.param("lfm2", {"attention__sliding_window": 32, "attention__head_count_kv": (0, 2) * 4},
                     [None, 32] * 4, id="every layer of LFM2 that attends"),
    ],
)  # fmt: skip
def test_layers_slide_as_llama_cpp_has_it(architecture: str, keys: dict[str, Any], want: list[int | None]) -> None:
    assert windows(architecture, **keys) == want


def test_large_exaone_4_slides() -> None:
    assert windows("exaone4", block_count=64)[:5] == [4096, 4096, 4096, None, 4096]


def test_heads_of_sliding_layers_may_have_lengths_of_their_own() -> None:
    layers = caches(
        "gemma4",
        attention__sliding_window=64,
        attention__sliding_window_pattern=(True, False) * 4,
        attention__key_length=512,
        attention__value_length=512,
        attention__key_length_swa=256,
        attention__value_length_swa=256,
    )

    assert layers[:2] == (LayerCache(512, 512, window=64), LayerCache(1024, 1024))


def test_later_layers_of_gemma_4_share_the_caches_of_earlier_ones() -> None:
    layers = caches("gemma4", attention__shared_kv_layers=3)

    assert [layer.key_elements for layer in layers] == [256] * 5 + [0] * 3


def test_gemma_3n_has_twenty_caches() -> None:
    assert sum(layer.key_elements > 0 for layer in caches("gemma3n", block_count=35)) == 20


def test_latent_attention_keeps_one_compressed_key_and_no_value() -> None:
    latent = {"attention__key_length_mla": 192, "attention__value_length_mla": 128, "attention__head_count_kv": 1}

    assert caches("deepseek2", attention__key_length=576, **latent)[0] == LayerCache(576, 0)
    assert caches("deepseek2", attention__kv_lora_rank=512, rope__dimension_count=64, **latent)[0] == LayerCache(576, 0)


def test_an_old_deepseek_file_without_latent_keys_has_plain_heads() -> None:
    old = caches("deepseek2", attention__key_length=192, attention__value_length=128, attention__kv_lora_rank=512)

    assert old[0] == LayerCache(384, 256)


def test_blocks_for_multi_token_prediction_have_no_cache_of_the_server() -> None:
    layers = caches("glm4moe", nextn_predict_layers=1)

    assert [layer.key_elements for layer in layers] == [256] * 7 + [0]


def test_mamba_keeps_a_state_and_no_keys() -> None:
    keys = {"ssm__conv_kernel": 4, "ssm__inner_size": 2048, "ssm__state_size": 16, "attention__head_count": 0}
    state = 4 * (3 * 2048 + 16 * 2048)

    assert caches("mamba", attention__head_count_kv=0, **keys) == (LayerCache(0, 0, state_bytes=state),) * 8


def test_a_convolution_sees_the_groups_of_mamba_2() -> None:
    keys = {"ssm__conv_kernel": 4, "ssm__inner_size": 2048, "ssm__state_size": 128, "ssm__group_count": 8}

    (layer, *_) = caches("mamba2", attention__head_count_kv=0, **keys)

    assert layer.state_bytes == 4 * (3 * (2048 + 2 * 8 * 128) + 128 * 2048)


def test_rwkv_keeps_two_shifted_tokens_and_a_matrix_per_head() -> None:
    assert caches("rwkv7", wkv__head_size=64)[0].state_bytes == 4 * 1024 * (2 + 64)


def test_every_fourth_layer_of_qwen_3_next_attends() -> None:
    keys = {"ssm__conv_kernel": 4, "ssm__inner_size": 4096, "ssm__state_size": 128, "ssm__group_count": 16}
    layers = caches("qwen3next", **keys)

    assert [layer.key_elements for layer in layers] == [0, 0, 0, 256] * 2
    assert [layer.state_bytes > 0 for layer in layers] == [True, True, True, False] * 2


def test_a_file_may_name_its_recurrent_layers() -> None:
    layers = caches("qwen35", attention__recurrent_layers=(True, False) * 4, ssm__inner_size=8, ssm__state_size=8)

    assert [layer.key_elements for layer in layers] == [0, 256] * 4


def test_layers_without_heads_of_a_hybrid_keep_a_state() -> None:
    layers = caches("lfm2", attention__head_count_kv=(0, 2) * 4, shortconv__l_cache=3)

    assert layers[:2] == (LayerCache(0, 0, state_bytes=4 * 1024 * 2), LayerCache(256, 256))


def test_all_layers_of_falcon_h1_keep_both() -> None:
    (layer, *_) = caches("falcon-h1", ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=64)

    assert layer.key_elements == 256
    assert layer.state_bytes > 0


def test_feed_forward_layers_of_nemotron_h_keep_nothing() -> None:
    layers = caches(
        "nemotron_h",
        attention__head_count_kv=(0, 0, 2, 0) * 2,
        feed_forward_length=(0, 4096, 0, 0) * 2,
        ssm__inner_size=1024,
        ssm__state_size=64,
    )

    assert [layer.key_elements for layer in layers] == [0, 0, 256, 0] * 2
    assert [layer.state_bytes > 0 for layer in layers] == [True, False, False, True] * 2


def test_linear_attention_of_kimi_keeps_a_matrix_per_head() -> None:
    layers = caches("kimi-linear", attention__head_count_kv=(0, 0, 0, 2) * 2, kda__head_dim=128, ssm__conv_kernel=4)

    assert layers[0].state_bytes == 4 * 8 * 128 * (3 * 3 + 128)


def test_architectures_whose_caches_are_not_all_known_are_not_known_to_slide() -> None:
    assert not INEXACT & WINDOWS.keys()
