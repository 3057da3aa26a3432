"""Memory must be exact where llama.cpp's rules are, small where they are not, and learn from the first start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.kv_cells import context_flag, padded, physical_batch, slot_cells, streams, window_cells
from slotune.llama.memory import NOTHING_LEARNED, MemoryEstimate, fits, kv_bytes, predict
from slotune.llama.model_facts import LayerCache, ModelFacts

MIB = 2**20
GIB = 2**30

LLAMA_8B = ModelFacts(
    path="8b.gguf",
    file_bytes=16 * GIB,
    identity="8b",
    architecture="llama",
    quantization="BF16",
    context_length=131072,
    vocabulary=128256,
    embedding=4096,
    heads=32,
    layers=(LayerCache(8 * 128, 8 * 128),) * 32,
    weights_bytes=16_060_000_000,
    active_weights_bytes=15_000_000_000,
    bits_per_weight=16.0,
    feed_forward=14336,
    host_weights_bytes=1_050_000_000,
)


def candidate(**changes: Any) -> Candidate:
    settings: dict[str, Any] = {"variant": "bf16", "gpu_class": "l4", "parallel_slots": 8, "context_per_slot": 4096}
    return Candidate(**(settings | changes))


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    return candidate(
        parallel_slots=draw(st.integers(1, 64)),
        context_per_slot=draw(st.integers(1, 32768)),
        kv_unified=draw(st.booleans()),
        batch_size=draw(st.integers(1, 4096)),
        ubatch_size=draw(st.integers(1, 4096)),
        cache_type_k=draw(st.sampled_from(["f16", "q8_0", "q4_0"])),
        cache_type_v=draw(st.sampled_from(["f16", "q8_0", "q4_0"])),
    )


@pytest.mark.parametrize(("kv_type", "want"), [("f16", 131_072), ("q8_0", 69_632), ("q4_0", 36_864)])
def test_a_token_of_llama_8b_takes_the_published_bytes(kv_type: str, want: int) -> None:
    one = candidate(parallel_slots=1, context_per_slot=256, cache_type_k=kv_type, cache_type_v=kv_type)

    assert kv_bytes(one, LLAMA_8B) == 256 * want


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, 8 * 4096, id="split: slots times context"),
        pytest.param({"kv_unified": True}, 8 * 4096, id="unified: the same pool"),
        pytest.param({"context_per_slot": 1000}, 8 * 1024, id="split: each share is rounded up"),
        pytest.param({"context_per_slot": 1000, "kv_unified": True}, 8192, id="unified: the pool is rounded up"),
        pytest.param({"context_per_slot": 1}, 8 * 256, id="split: a block at least"),
        pytest.param({"context_per_slot": 1, "kv_unified": True}, 256, id="unified: a block in all"),
    ],
)
def test_cells_are_allocated_in_blocks(changes: dict[str, Any], want: int) -> None:
    one = candidate(**changes)

    assert slot_cells(one) * streams(one) == want
    assert kv_bytes(one, LLAMA_8B) == want * 131_072


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, 1536, id="split: one window and a ubatch"),
        pytest.param({"kv_unified": True}, 1024 * 8 + 512, id="unified: the windows of all slots"),
        pytest.param({"context_per_slot": 768}, 768, id="never more than the context"),
        pytest.param({"ubatch_size": 100}, 1280, id="rounded up"),
        pytest.param({"ubatch_size": 4096, "batch_size": 256}, 1280, id="the ubatch is clamped to the batch"),
    ],
)
def test_a_sliding_layer_keeps_its_window_and_one_ubatch(changes: dict[str, Any], want: int) -> None:
    assert window_cells(candidate(**changes), 1024) == padded(want)


def test_sliding_and_full_layers_add_up() -> None:
    facts = replace(LLAMA_8B, layers=(LayerCache(128, 128, window=1024), LayerCache(128, 128)))

    assert kv_bytes(candidate(), facts) == 8 * (1536 + 4096) * 256 * 2


def test_full_size_sliding_caches_are_as_large_as_the_context() -> None:
    facts = replace(LLAMA_8B, layers=(LayerCache(128, 128, window=1024), LayerCache(128, 128)))

    assert kv_bytes(candidate(extra_args=("--swa-full",)), facts) == 8 * 2 * 4096 * 256 * 2


def test_a_state_is_kept_per_slot_and_never_quantized() -> None:
    facts = replace(LLAMA_8B, layers=(LayerCache(0, 0, state_bytes=1000),) * 4)

    assert kv_bytes(candidate(cache_type_k="q4_0", kv_unified=True), facts) == 8 * 4 * 1000


def test_without_flash_attention_values_are_as_wide_as_the_widest_layers() -> None:
    facts = replace(LLAMA_8B, layers=(LayerCache(128, 128), LayerCache(128, 64)))

    assert kv_bytes(candidate(), facts) == 8 * 4096 * (256 + 192) * 2
    assert kv_bytes(candidate(flash_attention="off"), facts) == 8 * 4096 * (256 + 256) * 2


def test_latent_attention_has_no_values_even_without_flash_attention() -> None:
    facts = replace(LLAMA_8B, layers=(LayerCache(576, 0),) * 2)

    assert kv_bytes(candidate(flash_attention="off"), facts) == 8 * 4096 * 2 * 576 * 2


def test_on_a_gpu_the_input_table_stays_outside() -> None:
    assert predict(candidate(), LLAMA_8B).weights == 16_060_000_000 - 1_050_000_000
    assert predict(candidate(), LLAMA_8B, on_gpu=False).weights == 16_060_000_000


@pytest.mark.parametrize(
    ("layers", "share"),
    [("all", 1.0), ("auto", 1.0), ("99", 1.0), ("33", 1.0), ("32", 32 / 33), ("1", 1 / 33), ("0", 0.0)],
)
def test_layers_that_stay_on_the_host_take_nothing_of_the_gpu(layers: str, share: float) -> None:
    estimate = predict(candidate(gpu_layers=layers), LLAMA_8B)
    whole = predict(candidate(), LLAMA_8B)

    assert estimate.weights == pytest.approx(whole.weights * share, rel=1e-6)
    caches = max(0, (33 if share == 1 else int(layers)) - 1)  # the output layer goes first and has no cache
    assert estimate.kv == whole.kv * caches // 32


def test_a_kv_cache_in_host_memory_takes_nothing_of_the_gpu() -> None:
    assert predict(candidate(extra_args=("-nkvo",)), LLAMA_8B).kv == 0
    assert predict(candidate(extra_args=("-nkvo",)), LLAMA_8B, on_gpu=False).kv > 0


def test_copies_of_the_cpu_backend_count_but_the_file_behind_them_can_go() -> None:
    facts = replace(LLAMA_8B, weights_bytes=1000 * MIB, cpu_buffer_bytes=1900 * MIB)
    estimate = predict(candidate(), facts, on_gpu=False)

    assert estimate.weights == 1900 * MIB
    assert estimate.total - estimate.needed == 900 * MIB


def test_compute_is_the_masks_and_the_widest_part_of_the_graph() -> None:
    estimate = predict(candidate(), LLAMA_8B)

    assert estimate.compute == 512 * 4096 * 2 + 512 * 4 * (5 * 4096 + 3 * 14336)


def test_without_flash_attention_the_scores_of_all_heads_count() -> None:
    off, on = predict(candidate(flash_attention="off"), LLAMA_8B), predict(candidate(), LLAMA_8B)

    assert off.compute - on.compute > 512 * 4096 * 32 * 4 - 512 * 4 * 3 * 14336


def test_on_the_host_the_copied_logits_count() -> None:
    host, gpu = predict(candidate(), LLAMA_8B, on_gpu=False), predict(candidate(), LLAMA_8B)

    assert host.compute - gpu.compute == 8 * 128256 * 4


def test_a_start_replaces_the_estimate_for_its_kind_and_scales_to_others() -> None:
    started = candidate()
    seen = predict(started, LLAMA_8B).compute * 3
    learned = NOTHING_LEARNED.with_start(started, LLAMA_8B, seen)

    assert predict(started, LLAMA_8B, learned).compute == seen
    assert predict(started, LLAMA_8B, learned).learned
    mask = 512 * 4096 * 2
    twice_the_context = predict(candidate(context_per_slot=8192), LLAMA_8B, learned).compute
    assert twice_the_context == seen + mask
    half_the_ubatch = predict(candidate(ubatch_size=256), LLAMA_8B, learned).compute
    assert half_the_ubatch == pytest.approx(seen / 2, rel=1e-6)
    assert predict(candidate(cache_type_k="q8_0", cache_type_v="q8_0"), LLAMA_8B, learned).compute == seen


@pytest.mark.parametrize(
    "changes", [{"variant": "q4"}, {"gpu_class": "a10"}, {"flash_attention": "off"}, {"gpu_layers": "4"}]
)
def test_a_start_says_nothing_about_another_kind(changes: dict[str, Any]) -> None:
    learned = NOTHING_LEARNED.with_start(candidate(), LLAMA_8B, 10 * GIB)

    assert predict(candidate(**changes), LLAMA_8B, learned) == predict(candidate(**changes), LLAMA_8B)


def test_of_two_starts_of_one_kind_the_larger_counts_and_the_old_value_stays_as_it_was() -> None:
    once = NOTHING_LEARNED.with_start(candidate(), LLAMA_8B, 500 * MIB)
    twice = once.with_start(candidate(), LLAMA_8B, 400 * MIB)

    assert twice == once
    assert NOTHING_LEARNED.scratch == {}


@given(candidates())
def test_what_was_learned_of_a_candidate_is_predicted_of_it(one: Candidate) -> None:
    seen = predict(one, LLAMA_8B).compute + 7 * MIB

    assert predict(one, LLAMA_8B, NOTHING_LEARNED.with_start(one, LLAMA_8B, seen)).compute == seen


@given(candidates(), st.sampled_from(["parallel_slots", "context_per_slot"]), st.integers(1, 4096))
def test_more_slots_or_context_never_take_less(one: Candidate, field: str, more: int) -> None:
    larger = replace(one, **{field: getattr(one, field) + more})
    facts = replace(LLAMA_8B, layers=(LayerCache(128, 128, window=1024), LayerCache(128, 128)))

    assert predict(larger, facts).total >= predict(one, facts).total


@given(candidates())
def test_each_slot_gets_at_least_its_context_and_a_block_more_at_most(one: Candidate) -> None:
    share = slot_cells(one) if not one.kv_unified else slot_cells(one) // one.parallel_slots

    assert share >= one.context_per_slot
    assert slot_cells(one) * streams(one) - one.context_total < 256 * streams(one)
    assert context_flag(one) >= one.context_total
    assert 1 <= physical_batch(one) <= one.ubatch_size


def test_what_fits_says_nothing() -> None:
    assert fits(MemoryEstimate(10 * GIB, 5 * GIB, GIB, GIB), 24 * GIB).ok
    assert fits(MemoryEstimate(10 * GIB, 5 * GIB, GIB, GIB), 24 * GIB).reason == ""


@pytest.mark.parametrize(
    ("estimate", "cure"),
    [
        (MemoryEstimate(23 * GIB, GIB, 100 * MIB, 256 * MIB), "only a smaller quantization or a larger GPU helps"),
        (MemoryEstimate(15 * GIB, 9 * GIB, GIB, 256 * MIB), "fewer slots, a shorter context or a quantized KV cache"),
        (MemoryEstimate(15 * GIB, GIB, 8 * GIB, 256 * MIB), "a smaller ubatch takes less"),
    ],
)
def test_what_does_not_fit_says_why_and_what_would(estimate: MemoryEstimate, cure: str) -> None:
    verdict = fits(estimate, 24 * GIB)

    assert not verdict.ok
    assert cure in verdict.reason


def test_the_reason_has_every_number() -> None:
    assert fits(MemoryEstimate(15 * GIB, 9 * GIB, 512 * MIB, 256 * MIB), 24 * GIB).reason == (
        "needs 24.75 GiB (weights 15.00 GiB, KV cache 9.00 GiB, compute 512 MiB, overhead 256 MiB), "
        "there is 22.80 GiB (95 % of 24.00 GiB); fewer slots, a shorter context or a quantized KV cache take less"
    )


def test_pages_that_the_kernel_can_drop_are_not_needed() -> None:
    estimate = MemoryEstimate(weights=20 * GIB, kv=GIB, compute=0, overhead=0, reclaimable=9 * GIB)

    assert fits(estimate, 16 * GIB).ok
    assert not fits(replace(estimate, reclaimable=0), 16 * GIB).ok


@pytest.mark.parametrize(
    ("variant_bytes", "kv_type", "slots"),
    [(16.06e9, "f16", 4), (16.06e9, "q8_0", 8), (8.54e9, "f16", 11), (8.54e9, "q8_0", 21), (4.92e9, "f16", 14)],
)
def test_as_many_slots_of_8192_fit_24_gb_as_the_worked_example_says(
    variant_bytes: float, kv_type: str, slots: int
) -> None:
    facts = replace(LLAMA_8B, weights_bytes=int(variant_bytes), host_weights_bytes=0)

    def fit(count: int) -> bool:
        one = candidate(
            parallel_slots=count, context_per_slot=8192, cache_type_k=kv_type, cache_type_v=kv_type, kv_unified=False
        )
        return fits(predict(one, facts, overhead_bytes=GIB), 24 * 10**9).ok

    assert fit(slots)
    assert not fit(slots + 4)
