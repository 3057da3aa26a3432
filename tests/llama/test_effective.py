"""What came up must be what was asked for: a silent fallback fails the candidate, else the measurement is void."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.candidate import Candidate
from slotune.llama.effective import Mismatch, check_effective, check_log, effective_values, with_log
from slotune.llama.log_lines import LogFacts, parse_log
from slotune.llama.server_answers import Props, Slot

LOGS = Path(__file__).parent / "logs"

ASKED = Candidate(
    variant="q4",
    gpu_class="l4",
    parallel_slots=4,
    context_per_slot=1000,
    batch_size=512,
    ubatch_size=256,
    cache_type_k="q8_0",
    cache_type_v="q8_0",
    cache_ram_mib=64,
    threads=2,
)

PROPS = Props(4, 1024, "m.gguf", "alias", "b11434", metrics_enabled=True, slots_enabled=True)
SLOTS = tuple(Slot(id, 1024, processing=False, speculative=False) for id in range(4))  # noqa: A001 - the field's name
LOG = LogFacts(
    build="b11434-abc1234",
    slots=4,
    context_per_slot=1024,
    context_total=4096,
    kv_unified=False,
    batch_size=512,
    ubatch_size=256,
    threads=2,
    threads_batch=2,
    cache_type_k="q8_0",
    cache_type_v="q8_0",
    flash_attention=True,
    layers_offloaded=33,
    layers=33,
    model_buffers={"CUDA0": 1, "CPU_Mapped": 1},
    cache_ram_mib=64,
    cache_idle_slots=False,
    speculation=False,
    ready=True,
)


def check(
    asked: Candidate = ASKED,
    props: Props = PROPS,
    slots: tuple[Slot, ...] = SLOTS,
    log: LogFacts = LOG,
    gpu: bool = True,
) -> list[Mismatch]:
    return check_effective(asked, props, slots, log, gpu_expected=gpu)


def test_a_server_that_is_as_asked_has_no_mismatch() -> None:
    assert check() == []


def test_what_a_build_does_not_say_is_not_held_against_it() -> None:
    assert check(log=LogFacts(), slots=()) == []


@pytest.mark.parametrize(
    ("changes", "field", "told", "fallback"),
    [
        pytest.param({"kv_unified": True}, "kvUnified", "true", False, id="slots were left to auto"),
        pytest.param({"batch_size": 256}, "batchSize", "256", False, id="another batch"),
        pytest.param({"ubatch_size": 512}, "uBatchSize", "512", False, id="another physical batch"),
        pytest.param({"threads": 64}, "threads", "64", False, id="threads of the host, not of the limit"),
        pytest.param({"cache_type_v": "f16"}, "cacheTypeV", "f16", False, id="another cache type"),
        pytest.param({"flash_attention": False}, "flashAttention", "off", False, id="attention is off"),
        pytest.param(
            {"flash_attention_fallback": "layer 0 is assigned to device CUDA0 but Flash Attention to device CPU"},
            "flashAttention",
            "device CPU",
            True,
            id="attention runs on the CPU",
        ),
        pytest.param({"kernel_fallback": "q8_0-q8_0"}, "cacheTypeK", "converted to f16", True, id="no kernel"),
        pytest.param({"layers_offloaded": 20}, "gpuLayers", "20 of 33", True, id="some layers stayed on the CPU"),
        pytest.param({"layers_offloaded": 0}, "gpuLayers", "0 of 33", True, id="an old driver: all on the CPU"),
        pytest.param({"no_usable_gpu": True}, "gpuLayers", "no usable GPU", True, id="no GPU was found"),
        pytest.param(
            {"layers_offloaded": None, "layers": None, "model_buffers": {"CPU_Mapped": 1}},
            "gpuLayers",
            "host memory",
            True,
            id="a build without GPU support",
        ),
        pytest.param({"cache_ram_mib": 8192}, "cacheRAMMiB", "8192", False, id="the default host cache"),
        pytest.param({"cache_idle_slots": True}, "cacheIdleSlots", "true", False, id="idle slots are saved"),
        pytest.param({"fit_changes": ("context size reduced from 2 to 1",)}, "fit", "reduced", False, id="fit was on"),
        pytest.param({"config_files": ("/etc/x.ini",)}, "configFile", "/etc/x.ini", False, id="an INI file was read"),
    ],
)
def test_a_difference_in_the_log_is_reported(changes: dict[str, object], field: str, told: str, fallback: bool) -> None:
    [got] = check(log=replace(LOG, **changes))  # type: ignore[arg-type]  # each case names its own field

    assert (got.field, got.silent_fallback) == (field, fallback)
    assert told in got.effective
    assert got.asked in got.sentence


def test_a_gpu_build_that_claims_all_layers_without_a_gpu_is_found_out() -> None:
    log = parse_log((LOGS / "gpu_build_without_gpu.log").read_text(encoding="utf-8"))
    assert (log.layers_offloaded, log.layers) == (31, 31)

    asked = replace(ASKED, parallel_slots=2, context_per_slot=1024, kv_unified=True, batch_size=256, ubatch_size=128)
    props = replace(PROPS, total_slots=2, context_per_slot=2048)

    [got] = check(asked, props, (), log)
    assert (got.field, got.silent_fallback) == ("gpuLayers", True)
    assert check(asked, props, (), log, gpu=False) == []


def test_a_missing_slot_is_reported() -> None:
    assert [m.field for m in check(props=replace(PROPS, total_slots=3))] == ["parallelSlots"]
    assert [m.field for m in check(slots=SLOTS[:3])] == ["parallelSlots"]


def test_a_context_cut_to_the_models_training_is_reported_with_its_reason() -> None:
    props = replace(PROPS, context_per_slot=512)

    [got] = check(props=props, slots=(), log=replace(LOG, context_trained_cap=512))

    assert (got.field, got.effective) == ("contextSizePerSlot", "512 (the model was trained for 512)")


def test_a_context_rounded_up_is_as_asked_and_one_beyond_that_is_not() -> None:
    assert check(props=replace(PROPS, context_per_slot=1000), slots=()) == []
    assert [m.field for m in check(props=replace(PROPS, context_per_slot=1280), slots=())] == ["contextSizePerSlot"]


def test_each_slot_of_a_unified_pool_sees_the_whole_pool() -> None:
    unified = replace(ASKED, kv_unified=True)

    assert check(unified, replace(PROPS, context_per_slot=4096), (), replace(LOG, kv_unified=True)) == []


def test_a_batch_larger_than_the_pool_is_clamped_without_complaint() -> None:
    asked = replace(ASKED, batch_size=8192, ubatch_size=8192)

    assert check(asked, log=replace(LOG, batch_size=4096, ubatch_size=4096)) == []


def test_cache_reuse_that_a_model_cannot_do_matters_only_when_asked_for() -> None:
    log = replace(LOG, cache_reuse_unsupported=True)

    assert check(log=log) == []
    assert [m.field for m in check(replace(ASKED, cache_reuse=64), log=log)] == ["cacheReuse"]


@pytest.mark.parametrize("draft", [("-md", "/d.gguf"), ("--model-draft", "/d.gguf"), ("--hf_repo_draft", "a/b")])
def test_a_draft_model_that_is_passed_through_speculates_as_it_does_today(draft: tuple[str, ...]) -> None:
    speculating = replace(LOG, speculation=True)
    assert [one.field for one in check_log(ASKED, speculating, gpu_expected=True)] == ["speculation"]
    assert check_log(replace(ASKED, extra_args=draft), speculating, gpu_expected=True) == []


def test_speculation_that_could_not_start_is_reported() -> None:
    asked = replace(ASKED, speculation="ngram-mod")
    log = replace(LOG, speculation_error="speculative decoding not supported by this context")

    [failed] = check(asked, log=log)
    [absent] = check(asked)

    assert "not supported" in failed.effective
    assert (absent.field, absent.effective) == ("speculation", "none")


def test_without_a_gpu_nothing_is_a_fallback() -> None:
    log = replace(LOG, layers_offloaded=None, layers=None, model_buffers={"CPU_Mapped": 1}, no_usable_gpu=True)

    assert check(log=log, gpu=False) == []


@pytest.mark.parametrize(("layers", "offloaded"), [("20", 20), ("99", 33), ("auto", 12)])
def test_a_number_of_layers_is_met_as_llama_server_understands_it(layers: str, offloaded: int) -> None:
    assert check(replace(ASKED, gpu_layers=layers), log=replace(LOG, layers_offloaded=offloaded)) == []


def test_attention_on_auto_may_resolve_to_off() -> None:
    log = replace(LOG, flash_attention=False, flash_attention_fallback="Flash Attention not supported, set to disabled")
    asked = replace(ASKED, flash_attention="auto", cache_type_k="f16", cache_type_v="f16")

    assert check(asked, log=replace(log, cache_type_k="f16", cache_type_v="f16")) == []


def test_confirmed_values_are_listed_and_unknown_ones_are_not() -> None:
    assert dict(effective_values(PROPS, SLOTS, LOG)) == {
        "build": "b11434-abc1234",
        "parallelSlots": "4",
        "contextSizePerSlot": "1024",
        "contextSize": "4096",
        "kvUnified": "false",
        "batchSize": "512",
        "uBatchSize": "256",
        "cacheTypeK": "q8_0",
        "cacheTypeV": "q8_0",
        "flashAttention": "true",
        "cacheRAMMiB": "64",
        "cacheIdleSlots": "false",
        "layersOffloaded": "33/33",
        "threads": "2",
        "speculation": "false",
    }
    assert dict(effective_values(PROPS, (), LogFacts())) == {
        "build": "b11434",
        "parallelSlots": "4",
        "contextSizePerSlot": "1024",
    }


@given(slots=st.integers(1, 16), context=st.integers(1, 9000), unified=st.booleans())
def test_llama_servers_own_rounding_is_never_a_mismatch(slots: int, context: int, unified: bool) -> None:
    asked = replace(ASKED, parallel_slots=slots, context_per_slot=context, kv_unified=unified)
    total = -(-asked.context_total // 256) * 256
    seen = total if unified else -(-(asked.context_total // slots) // 256) * 256
    props = replace(PROPS, total_slots=slots, context_per_slot=seen)

    assert check(asked, props, (), LogFacts(kv_unified=unified)) == []


def test_a_real_server_is_recognised_from_its_log() -> None:
    log = parse_log((LOGS / "split_quantized.log").read_text(encoding="utf-8"))
    asked = replace(
        ASKED,
        parallel_slots=3,
        batch_size=256,
        ubatch_size=128,
        cache_idle_slots=True,
        threads=None,
        cache_reuse=32,
        speculation="ngram-mod",
    )
    slots = tuple(Slot(i, 1024, processing=False, speculative=True) for i in range(3))

    assert check(asked, replace(PROPS, total_slots=3), slots, log, gpu=False) == []


def test_the_log_alone_tells_what_needs_no_question_to_the_server() -> None:
    assert check_log(ASKED, LOG, gpu_expected=True) == []
    assert check_log(ASKED, LogFacts(), gpu_expected=True) == []
    on_cpu = replace(LOG, model_buffers={"CPU": 1}, slots=2, fit_changes=("context size reduced",))
    assert {m.field for m in check_log(ASKED, on_cpu, gpu_expected=True)} == {"parallelSlots", "fit", "gpuLayers"}


def test_what_the_server_said_stands_and_the_log_adds_the_rest() -> None:
    asked_alone = effective_values(PROPS, SLOTS, LogFacts())
    both = dict(with_log(asked_alone, LOG))
    assert both == dict(effective_values(PROPS, SLOTS, LOG))
    assert with_log(asked_alone, LogFacts()) == asked_alone
    assert dict(with_log((), LOG))["parallelSlots"] == "4"
    assert with_log((), LogFacts()) == ()
