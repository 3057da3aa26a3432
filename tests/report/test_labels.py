"""Candidates are named by what differs from what runs today."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from slotune.llama.candidate import Candidate
from slotune.report.labels import BASELINE_LABEL, candidate_label, change_phrases, settings_label

BASE = Candidate("BF16", "l4", 8, 4096, cache_prompt=False)
OTHER = Candidate(
    "Q8_0",
    "a100",
    16,
    8192,
    kv_unified=True,
    batch_size=512,
    ubatch_size=256,
    cache_type_k="q8_0",
    cache_type_v="q4_0",
    flash_attention="auto",
    cache_prompt=True,
    cache_ram_mib=4096,
    cache_idle_slots=True,
    cache_reuse=256,
    gpu_layers="20",
    threads=8,
    speculation="ngram-mod",
    extra_args=("--verbose",),
    speculation_tokens=32,
    speculation_match=12,
    draft="tiny",
    backend_sampling=True,
)


@pytest.mark.parametrize(
    ("candidate", "want"),
    [
        (BASE, "baseline (what runs today)"),
        (replace(BASE, parallel_slots=16, cache_prompt=True, variant="Q8_0"), "16 slots, prefix cache, Q8_0"),
        (replace(BASE, cache_type_k="q8_0", cache_type_v="q8_0"), "KV q8_0"),
        (replace(BASE, cache_type_v="q4_0"), "KV K f16 V q4_0"),
        (replace(BASE, parallel_slots=1), "1 slot"),
        (replace(BASE, cache_ram_mib=-1), "host cache without limit"),
        (replace(BASE, cache_ram_mib=1536), "host cache 1.5 GiB"),
        (replace(BASE, gpu_class="a100"), "on a100"),
    ],
)
def test_a_label_says_what_differs(candidate: Candidate, want: str) -> None:
    assert candidate_label(candidate, BASE) == want


def test_every_setting_has_a_phrase() -> None:
    for field in fields(Candidate):
        changed = replace(BASE, **{field.name: getattr(OTHER, field.name)})
        assert changed != BASE
        assert candidate_label(changed, BASE) not in {"", BASELINE_LABEL}, field.name
        assert change_phrases(changed, BASE), field.name


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"parallel_slots": 16}, "8 → 16 slots"),
        ({"context_per_slot": 2048}, "context 4,096 → 2,048"),
        ({"variant": "Q8_0"}, "BF16 → Q8_0"),
        ({"cache_prompt": True}, "prefix cache"),
        ({"cache_type_k": "q8_0", "cache_type_v": "q8_0"}, "KV f16 → q8_0"),
        ({"gpu_class": "a100"}, "on l4 → a100"),
        ({"speculation": "ngram-mod"}, "ngram-mod speculation"),
        ({"extra_args": ("--x",)}, "other flags of its own"),
    ],
)
def test_a_change_shows_old_and_new_once(changes: dict[str, object], want: str) -> None:
    assert change_phrases(replace(BASE, **changes), BASE) == (want,)


def test_the_gpu_class_is_not_said_twice() -> None:
    assert settings_label(replace(BASE, gpu_class="a100", parallel_slots=16), BASE) == "16 slots"
    assert settings_label(replace(BASE, gpu_class="a100"), BASE) == "what runs today"


def test_saying_aloud_what_the_server_chose_anyway_is_not_told():
    today = Candidate("F16", "l4", 8, 4096, flash_attention="auto", gpu_layers="auto")
    assert (
        candidate_label(replace(today, flash_attention="on", gpu_layers="all", parallel_slots=16), today) == "16 slots"
    )
    assert candidate_label(replace(today, flash_attention="on"), today) == "flash attention on"
