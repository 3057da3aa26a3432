"""A missing kernel is a matter of GPUs: the same line on a CPU means nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Confidence, Finding, Severity
from slotune.diagnose.rules import decode, kernels
from slotune.diagnose.symptoms import GPUFacts, PodFacts, Symptoms
from slotune.llama.log_story import Line, Seen, Topic
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import ModelMeta
from tests.diagnose.rules.building import (
    NOTHING,
    ask,
    found,
    is_clear,
    is_undecided,
    log,
    of,
    pod,
    probe,
    server,
    timings,
)

RULES = (*kernels.RULES, *decode.RULES)

MIB = 2**20
GB = 10**9
CUDA = {"model_buffers": {"CUDA0": 4400 * MIB, "CPU_Mapped": 280 * MIB}, "layers": 33, "layers_offloaded": 33}
CPU = {"model_buffers": {"CPU_Mapped": 92 * MIB}}
VULKAN = {"model_buffers": {"Vulkan0": 4400 * MIB}}
IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda-b{}"


def with_types(
    k: str, v: str, build: int | None = 11434, device: dict[str, Any] | None = None, **more: Any
) -> Symptoms:
    facts = (device or CUDA) | {"cache_type_k": k, "cache_type_v": v}
    return of(log=log(facts=facts, build=build, requests=timings()), **more)


# SLT010


def test_the_servers_own_warning_is_quoted() -> None:
    line = Line(
        40, "no FlashAttention vector kernel compiled for K/V types q8_0-q5_1, converting K and V to f16 instead"
    )
    symptoms = of(log=log({Topic.KERNEL_FALLBACK: Seen(1, line, line)}, facts=CUDA | {"kernel_fallback": "q8_0-q5_1"}))
    got = found(RULES, "SLT010", symptoms)
    assert "q8_0-q5_1" in got.sentence
    assert got.evidence == (Evidence(Source.LOG, line.text, 40),)


@pytest.mark.parametrize("types", ["f16", "bf16", "q8_0", "q4_0"])
def test_equal_types_with_a_kernel_are_fast_on_every_build(types: str) -> None:
    for build in (10791, 11434, None):
        assert is_clear(RULES, "SLT010", with_types(types, types, build))


def test_an_early_build_of_llama_cpps_own_image_computes_attention_on_the_cpu_and_does_not_say_so() -> None:
    got = found(RULES, "SLT010", with_types("q5_1", "q5_1", 10791, pod=pod(gpus=1, image=IMAGE.format(10791))))
    assert got.confidence is Confidence.LIKELY
    assert "b10791" in got.sentence


def test_a_build_of_ones_own_may_have_the_kernels() -> None:
    assert is_undecided(RULES, "SLT010", with_types("q5_1", "q5_1", 10791))
    assert is_undecided(RULES, "SLT010", with_types("q5_1", "q5_1", 10791, pod=pod(gpus=1, image="own/cuda:b10791")))


def test_a_later_build_that_does_not_warn_has_the_kernel() -> None:
    assert is_clear(RULES, "SLT010", with_types("q5_1", "q5_1", 11434))


def test_a_build_between_the_two_is_a_question() -> None:
    assert is_undecided(RULES, "SLT010", with_types("q5_1", "q5_1", 11000, pod=pod(gpus=1, image=IMAGE.format(11000))))
    assert is_undecided(RULES, "SLT010", with_types("q5_1", "q5_1", None))


def test_a_type_that_no_gpu_kernel_reads_is_named() -> None:
    said = found(RULES, "SLT010", with_types("iq4_nl", "iq4_nl", 11434))
    assert "iq4_nl" in said.sentence
    assert said.confidence is Confidence.LIKELY


@pytest.mark.parametrize("types", ["q5_1", "iq4_nl", "q4_1"])
def test_a_cpu_has_a_kernel_for_every_type(types: str) -> None:
    assert is_clear(RULES, "SLT010", with_types(types, types, 10791, CPU))


def test_types_are_read_from_arguments_where_the_log_is_silent() -> None:
    own = pod("-ctk", "q5_0", "-ctv", "q5_0", gpus=1, image=IMAGE.format(10791))
    got = found(RULES, "SLT010", of(pod=own))
    assert got.evidence[0] == Evidence(Source.FLAGS, "-ctk q5_0 -ctv q5_0")
    assert is_clear(RULES, "SLT010", of(pod=pod(gpus=1, image=IMAGE.format(10791)))), "f16 where nothing is stated"


def test_types_that_nobody_states_are_undecided() -> None:
    assert is_undecided(RULES, "SLT010", NOTHING)
    assert is_undecided(RULES, "SLT010", of(log=log(facts={}, starts=0)))


def test_on_vulkan_what_left_no_device_is_fast_enough() -> None:
    assert is_clear(RULES, "SLT010", with_types("q5_1", "q5_1", 10791, VULKAN))


# SLT011

FALLBACK = "layer 3 is assigned to device CUDA0 but Flash Attention is assigned to device CPU (usually due to missing)"


def test_attention_that_left_its_device_is_found() -> None:
    got = found(RULES, "SLT011", of(log=log(facts=CUDA | {"flash_attention_fallback": FALLBACK})))
    assert got.evidence == (Evidence(Source.LOG, FALLBACK),)


def test_attention_that_a_layer_on_the_cpu_keeps_off_misses_no_kernel() -> None:
    line = "layer 20 is assigned to device CPU but Flash Attention is assigned to device CUDA0 (usually due to missing)"
    symptoms = of(log=log(facts=CUDA | {"flash_attention_fallback": line}))
    assert "lie on the CPU" in found(RULES, "SLT011", symptoms, Severity.INFO).sentence


@pytest.mark.parametrize("facts", [{"flash_attention_fallback": FALLBACK}, {"flash_attention": False}])
def test_on_a_cpu_no_line_about_flash_attention_is_an_alarm(facts: dict[str, Any]) -> None:
    assert is_clear(RULES, "SLT011", of(log=log(facts=CPU | facts)))


def test_flash_attention_in_effect_is_clear() -> None:
    assert is_clear(RULES, "SLT011", of(log=log(facts=CUDA | {"flash_attention": True})))


def test_who_turned_it_off_may_have_measured_it() -> None:
    off = of(log=log(facts=CUDA | {"flash_attention": False}), flags=("-m", "x", "-fa", "off"))
    assert found(RULES, "SLT011", off, Severity.INFO).evidence[-1] == Evidence(Source.FLAGS, "-fa off")
    found(RULES, "SLT011", of(log=log(facts=CUDA | {"flash_attention": False})), Severity.INFO)


@pytest.mark.parametrize(
    "stated",
    [
        pod("-ctk", "q8_0", "-ctv", "q8_0", "-fa", "off", image=IMAGE.format(11434), gpus=1),
        pod("--cache-type-v", "q4_0", "--flash-attn", "0", image="ghcr.io/ggml-org/llama.cpp:server-b11434"),
        pod(env={"LLAMA_ARG_CACHE_TYPE_V": "iq4_nl", "LLAMA_ARG_FLASH_ATTN": "disabled"}),
        pod("-ctv", "q8_0", image=IMAGE.format(5500), gpus=1),
    ],
    ids=["on a GPU", "on a CPU", "by variables", "on a build that has it off by default"],
)
def test_a_quantized_v_cache_without_flash_attention_cannot_be_loaded(stated: PodFacts) -> None:
    got = found(RULES, "SLT011", of(pod=stated), Severity.CRITICAL)
    assert got.confidence is Confidence.LIKELY
    assert "the model can't be loaded" in got.sentence
    assert (got.first or "").startswith("Set -fa on, or -ctv f16")
    assert len(got.evidence) == 2


@pytest.mark.parametrize(
    "stated",
    [
        pod("-ctv", "q8_0", "-fa", "on", image=IMAGE.format(11434), gpus=1),
        pod("-ctv", "q8_0", image=IMAGE.format(11434), gpus=1),
        pod("-ctv", "q8_0", gpus=1),
        pod("-ctv", "q8_0", "-fa", image=IMAGE.format(5500), gpus=1),
        pod("-ctk", "q8_0", "-fa", "off", image=IMAGE.format(11434), gpus=1),
        pod("-ctv", "q8_0", "-fa", "off", image=IMAGE.format(11434), gpus=1, ready=True),
    ],
    ids=["on", "by itself", "of any build", "a switch", "only K", "that came up all the same"],
)
def test_a_server_that_can_load_its_v_cache_is_not_accused(stated: PodFacts) -> None:
    said = ask(RULES, "SLT011", of(pod=stated))
    assert not isinstance(said, Finding) or said.severity is Severity.INFO


def test_llama_cpp_turns_it_off_only_where_it_has_no_kernel() -> None:
    symptoms = of(log=log(facts=CUDA | {"flash_attention": False}), flags=("-m", "x"))
    said = found(RULES, "SLT011", symptoms)
    assert "by llama.cpp itself" in said.sentence
    assert said.confidence is Confidence.LIKELY


def test_on_vulkan_off_may_be_the_faster_one() -> None:
    assert is_clear(RULES, "SLT011", of(log=log(facts=VULKAN | {"flash_attention": False})))


def test_flash_attention_is_undecided_where_the_log_does_not_say() -> None:
    assert is_undecided(RULES, "SLT011", NOTHING)
    assert is_undecided(RULES, "SLT011", of(log=log(facts=CUDA)))


# SLT012

EIGHT_B = ModelMeta("m", size_bytes=5 * GB, parameters=8 * GB)
L4 = GPUFacts("NVIDIA L4", bandwidth_bytes_per_s=300 * GB)
H200 = GPUFacts("NVIDIA H200", bandwidth_bytes_per_s=4800 * GB)


def asked_alone(step_s: float, gpu: GPUFacts = L4, **more: Any) -> Symptoms:
    dense = log(facts={"experts": 0})
    return of(log=dense, server=server(model=EIGHT_B), probe=probe(decode_step_s=step_s, **more), gpu=gpu)


def test_experts_that_may_sit_idle_would_only_make_a_slow_token_slower() -> None:
    """Ten times as long as all weights take is no less beside some of them; near that nobody can tell."""
    silent = of(server=server(model=EIGHT_B), probe=probe(decode_step_s=0.17), gpu=L4)
    assert found(RULES, "SLT012", silent).confidence is Confidence.POSSIBLE
    assert is_undecided(RULES, "SLT012", replace(silent, probe=probe(decode_step_s=0.03)))
    mixture = log(facts={"experts": 64, "experts_used": 8})
    assert is_undecided(RULES, "SLT012", of(log=mixture, **{k: getattr(silent, k) for k in ("server", "probe", "gpu")}))


def test_a_token_that_takes_ten_times_as_long_as_reading_the_weights_is_found() -> None:
    got = found(RULES, "SLT012", asked_alone(0.17))
    assert "17 ms" in got.sentence
    assert got.cost.speed_share is not None
    assert 0.5 < got.cost.speed_share < 0.9


@pytest.mark.parametrize(
    ("step_s", "gpu"),
    [(0.022, L4), (0.033, L4), (0.007, H200)],
    ids=["near the bound", "half of the bandwidth", "launching kernels takes longer than reading"],
)
def test_the_speed_that_real_servers_have_is_no_finding(step_s: float, gpu: GPUFacts) -> None:
    assert is_clear(RULES, "SLT012", asked_alone(step_s, gpu))


def test_a_server_on_a_cpu_is_not_bound_by_a_gpu() -> None:
    assert is_clear(RULES, "SLT012", of(log=log(facts=CPU), probe=probe(decode_step_s=0.5), gpu=L4))


def test_a_speed_with_others_in_the_batch_decides_nothing() -> None:
    assert is_undecided(RULES, "SLT012", asked_alone(0.17, was_idle=False))
    assert is_undecided(RULES, "SLT012", of(server=server(model=EIGHT_B), gpu=L4))
    assert is_undecided(RULES, "SLT012", of(server=server(model=EIGHT_B), probe=probe(decode_step_s=0.17)))
    assert is_undecided(RULES, "SLT012", NOTHING)


def test_a_layer_whose_attention_is_left_to_another_device_names_the_device_by_itself() -> None:
    at = "0.04.097.014 W resolve_fused_ops: layer 17 is assigned to device {} but Flash Attention is assigned to device"
    reader = LogReader("server.log")
    reader.feed(f"{at.format('Vulkan0')} CPU (usually due to missing support)\n{UP}".encode())
    (story,) = reader.finish()
    got = found(RULES, "SLT011", of(log=story))
    assert "kernel for Vulkan" in got.sentence
    reader = LogReader("server.log")
    reader.feed(f"{at.format('CPU')} CUDA0 (usually due to missing support)\n{UP}".encode())
    (story,) = reader.finish()
    assert is_clear(RULES, "SLT011", of(log=story))


UP = """\
0.04.097.022 W resolve_fused_ops: Flash Attention not supported, set to disabled
0.05.000.000 I srv          init: model loaded
"""
