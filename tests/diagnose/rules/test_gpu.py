"""A server on the wrong device serves on; a server that was never meant for a GPU is healthy."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity
from slotune.diagnose.rules.gpu import RULES
from slotune.diagnose.symptoms import GPUFacts, NodeFacts, PodFacts, Symptoms
from slotune.llama.log_lines import parse_log
from slotune.llama.log_story import Line, LogStory, Seen, Topic
from slotune.llama.log_stream import LogReader
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.nvidia_smi import DeviceSnapshot
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, log, of, pod, server

MIB = 2**20
LOGS = Path(__file__).parents[2] / "llama" / "logs"

ON_GPU = {"model_buffers": {"CUDA0": 4403 * MIB, "CPU_Mapped": 281 * MIB}, "kv_buffers": {"CUDA0": 1024 * MIB}}
ALL = ON_GPU | {"layers_offloaded": 33, "layers": 33}
ON_CPU = {"model_buffers": {"CPU_Mapped": 4684 * MIB}, "kv_buffers": {"CPU": 1024 * MIB}}

CUDA_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-cuda-b11434"
CPU_IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b11434"


def snapshot(used_mib: int, **more: Any) -> DeviceSnapshot:
    return DeviceSnapshot("NVIDIA L4", 1, memory_used_bytes=used_mib * MIB, **more)


def story(name: str) -> LogStory:
    facts = parse_log((LOGS / f"{name}.log").read_text(encoding="utf-8"))
    return LogStory(name, facts, starts=1, verbosity=4)


def read(text: str) -> LogStory:
    """As a file with this text is read."""
    reader = LogReader("server.log")
    reader.feed(text.encode())
    (story,) = reader.finish()
    return story


def kept(name: str) -> LogStory:
    return read((LOGS / f"{name}.log").read_text(encoding="utf-8"))


# SLT001


def test_a_log_that_begins_within_the_list_of_weights_says_by_the_kv_cache_that_a_gpu_is_used() -> None:
    whole = (LOGS / "cuda_kernel_fallback.log").read_text(encoding="utf-8")
    rest = whole[whole.index("load_tensors:   CPU_Mapped model buffer") :]
    assert not isinstance(ask(RULES, "SLT001", of(log=read(rest))), Finding)


def test_weights_on_the_gpu_are_where_they_should_be() -> None:
    assert is_clear(RULES, "SLT001", of(log=log(facts=ALL), pod=pod(gpus=1)))


def test_a_pod_that_holds_a_gpu_and_computes_on_the_cpu_is_critical() -> None:
    story = log(facts=ON_CPU, fact_lines={"model_buffers": Line(12, "CPU_Mapped model buffer size = 4684.00 MiB")})
    got = found(RULES, "SLT001", of(log=story, pod=pod(gpus=1)), Severity.CRITICAL)
    assert got.confidence is Confidence.CERTAIN
    assert got.evidence[0] == Evidence(Source.LOG, "CPU_Mapped model buffer size = 4684.00 MiB", 12)
    assert "4,684 MiB" in got.sentence


UNUSED = ("cuda_unused", "cuda_unused_new_build", "vulkan_unused")


@pytest.mark.parametrize("name", UNUSED)
def test_a_gpu_that_the_log_names_and_that_got_no_layer_is_not_called_absent(name: str) -> None:
    got = found(RULES, "SLT001", of(log=kept(name)))
    assert got.confidence is Confidence.LIKELY, "nobody showed the arguments: it may have been told to"
    assert "none on a GPU, though there is a GPU: " in got.sentence
    assert [one.text for one in got.evidence if "layers to GPU" in one.text]
    assert "-ngl all" in (got.first or "")


@pytest.mark.parametrize("name", UNUSED)
def test_a_gpu_that_the_log_names_and_that_no_argument_forbids_is_missed_for_certain(name: str) -> None:
    got = found(RULES, "SLT001", of(log=kept(name), flags=("-m", "x.gguf", "-c", "4096")), Severity.CRITICAL)
    assert got.confidence is Confidence.CERTAIN
    assert is_clear(RULES, "SLT001", of(log=kept(name), flags=("-m", "x.gguf", "-ngl", "0")))


@pytest.mark.parametrize(
    "line",
    [
        "ggml_cuda_init: found 1 CUDA devices:",
        "  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes",
        "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA L4) - 22000 MiB free",
        "llama_context:      CUDA0 compute buffer size =  1480.00 MiB",
        "ggml_cuda_init: found 1 ROCm devices:",
        "ggml_vulkan: Found 1 Vulkan devices:",
        "ggml_metal_init: found device: Apple M1",
    ],
)
def test_any_one_line_of_a_device_is_enough(line: str) -> None:
    text = f"""build: 4967 (1af25fa1) with cc for x86_64-linux-gnu
main: loading model
{line}
load_tensors: offloaded 0/29 layers to GPU
load_tensors:   CPU_Mapped model buffer size =  4460.45 MiB
main: model loaded
"""
    got = found(RULES, "SLT001", of(log=read(text)))
    assert any(one.text == line.strip() for one in got.evidence)


def test_a_log_without_its_beginning_does_not_say_that_there_is_no_gpu() -> None:
    text = """load_tensors:   CPU_Mapped model buffer size =  4460.45 MiB
llama_context: constructing llama_context
srv          init: initializing slots, n_slots = 1
"""
    assert is_undecided(RULES, "SLT001", of(log=read(text)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("CUDA: system has unsupported display driver / cuda driver combination", "the driver is older"),
        ("MUSA: system has unsupported display driver / musa driver combination", "the driver is older"),
        ("ROCm: no ROCm-capable device is detected", "its driver found none"),
    ],
)
def test_every_back_ends_driver_is_heard_when_it_fails(line: str, words: str) -> None:
    text = f"""ggml_cuda_init: failed to initialize {line}
build: 6397 (cd08fc3e) with cc for x86_64-linux-gnu
main: loading model
main: model loaded
"""
    got = ask(RULES, "SLT001", of(log=read(text)))
    assert isinstance(got, Finding)
    assert words in got.sentence


def test_layers_that_are_said_to_be_offloaded_prove_nothing_without_a_buffer_there() -> None:
    facts = ON_CPU | {"layers_offloaded": 33, "layers": 33}
    found(RULES, "SLT001", of(log=log(facts=facts), pod=pod(gpus=1)), Severity.CRITICAL)


def test_a_name_that_somebody_gave_is_no_proof_that_a_gpu_is_there() -> None:
    facts = ON_CPU | {"layers_offloaded": 33, "layers": 33}
    said = found(RULES, "SLT001", of(log=log(facts=facts), gpu=GPUFacts("NVIDIA RTX 4090")), Severity.WARNING)
    assert said.confidence is Confidence.LIKELY


def test_the_log_of_a_gpu_build_that_found_none_is_worth_knowing_where_nobody_has_one() -> None:
    said = found(RULES, "SLT001", of(log=story("gpu_build_without_gpu")), Severity.INFO)
    assert said.confidence is Confidence.POSSIBLE


def test_a_class_of_hardware_that_is_no_known_gpu_is_no_promise_of_one() -> None:
    assert is_clear(RULES, "SLT001", of(log=story("all_defaults"), gpu=GPUFacts("laptop", price_per_hour=0.05)))


@pytest.mark.parametrize("name", ["all_defaults", "split_quantized", "flash_attention_off", "unified_pool"])
def test_a_cpu_server_whom_nobody_gave_a_gpu_is_healthy(name: str) -> None:
    symptoms = of(log=story(name))
    assert is_clear(RULES, "SLT001", symptoms)
    assert is_clear(RULES, "SLT002", symptoms)


def test_a_driver_that_is_too_old_is_named_with_its_cure() -> None:
    line = Line(3, "ggml_cuda_init: failed to initialize CUDA: CUDA driver version is insufficient for CUDA runtime")
    symptoms = of(log=log({Topic.NO_USABLE_GPU: Seen(1, line, line)}))
    got = found(RULES, "SLT001", symptoms, Severity.CRITICAL)
    assert "driver is older" in got.sentence
    assert "driver" in (got.first or "")


def test_a_build_for_gpus_whose_driver_found_none_may_be_on_the_wrong_machine() -> None:
    line = Line(3, "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected")
    found(RULES, "SLT001", of(log=log({Topic.NO_USABLE_GPU: Seen(1, line, line)})))


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"pod": pod(gpus=1)}, Severity.CRITICAL),
        ({"gpu": GPUFacts("NVIDIA L4")}, Severity.WARNING),
        ({"flags": ("-m", "x.gguf", "-ngl", "99")}, Severity.WARNING),
        ({}, Severity.INFO),
    ],
    ids=["the pod holds one", "one was declared", "layers were asked for", "nobody wants one"],
)
def test_no_usable_gpu_matters_as_much_as_somebody_wanted_one(more: dict[str, Any], severity: Severity) -> None:
    found(RULES, "SLT001", of(log=log({Topic.NO_USABLE_GPU: 1}, facts={"no_usable_gpu": True}), **more), severity)


def test_layers_that_a_pod_without_a_gpu_asks_for_are_a_default_and_no_wish() -> None:
    symptoms = of(
        log=log({Topic.NO_USABLE_GPU: 1}, facts={"no_usable_gpu": True, **ON_CPU}),
        pod=pod("-ngl", "all", image=CPU_IMAGE),
    )
    assert is_clear(RULES, "SLT001", symptoms)


@pytest.mark.parametrize("args", [("-ngl", "0"), ("--n-gpu-layers", "0"), ("--device", "none")])
def test_a_server_that_was_told_to_use_the_cpu_does_what_it_was_told(args: tuple[str, ...]) -> None:
    assert is_clear(RULES, "SLT001", of(log=log(facts=ON_CPU | {"no_usable_gpu": True}), flags=("-m", "x", *args)))


def test_a_gpu_that_is_held_and_forbidden_is_wasted() -> None:
    got = found(RULES, "SLT001", of(pod=pod("-ngl", "0", gpus=2)))
    assert "2 GPUs" in got.sentence
    assert [one.text for one in got.evidence] == ["asks for 2 GPUs", "-ngl 0"]


def test_an_image_for_cpus_cannot_use_the_gpu_of_its_pod() -> None:
    found(RULES, "SLT001", of(pod=pod(gpus=1, image=CPU_IMAGE)), Severity.CRITICAL)
    found(RULES, "SLT001", of(pod=pod(gpus=1, image="mirror.example/ggml-org/llama.cpp:full")), Severity.CRITICAL)


def test_an_image_for_cuda_in_a_pod_without_a_gpu_is_likely_a_mistake() -> None:
    node = NodeFacts("gpu-node", labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    got = found(RULES, "SLT001", of(pod=pod(image=CUDA_IMAGE), node=node))
    assert got.confidence is Confidence.LIKELY
    assert got.evidence[-1].text == "gpu-node has GPUs"


@pytest.mark.parametrize(
    "image",
    [CPU_IMAGE, "example.org/team/server:1.2", "ghcr.io/ggml-org/llama.cpp@sha256:0123", None],
)
def test_a_pod_without_a_gpu_and_without_an_image_for_one_is_healthy(image: str | None) -> None:
    node = NodeFacts("gpu-node", labels={"nvidia.com/gpu.product": "NVIDIA-L4"})
    assert is_clear(RULES, "SLT001", of(pod=pod(image=image), node=node))


def test_an_empty_gpu_does_not_hold_the_model() -> None:
    model = snapshot(4)
    got = found(RULES, "SLT001", of(device=model, server=server()), Severity.CRITICAL)
    assert "only 4 MiB of NVIDIA L4" in got.sentence
    assert got.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "device",
    [snapshot(4, shows_server=True), snapshot(19_000), DeviceSnapshot("NVIDIA L4", 1)],
    ids=["the server is on it", "it is full", "it does not say"],
)
def test_a_gpu_that_may_hold_the_model_is_not_called_empty(device: DeviceSnapshot) -> None:
    assert is_undecided(RULES, "SLT001", of(device=device, server=server()))


def test_without_a_start_in_the_log_nobody_knows_where_the_weights_lie() -> None:
    assert is_undecided(RULES, "SLT001", NOTHING)
    assert is_undecided(RULES, "SLT001", of(log=log(starts=0, verbosity=3), pod=pod(gpus=1)))


# SLT002 and SLT003


def test_layers_that_were_left_on_the_cpu_are_counted() -> None:
    line = Line(9, "load_tensors: offloaded 20/33 layers to GPU")
    facts = ALL | {"layers_offloaded": 20}
    symptoms = of(
        log=log(facts=facts, fact_lines=MappingProxyType({"layers_offloaded": line})), pod=pod("-ngl", "20", gpus=1)
    )
    got = found(RULES, "SLT002", symptoms)
    assert got.sentence == "13 of 33 layers run on the CPU"
    assert got.evidence == (Evidence(Source.LOG, line.text, 9),)
    assert got.first == "Set -ngl all in place of 20, with a context and slots that fit."
    assert is_clear(RULES, "SLT003", symptoms), "it was stated"


def test_a_kv_cache_in_host_memory_is_a_cause_of_its_own() -> None:
    facts = ALL | {"kv_buffers": {"CPU": 1024 * MIB}}
    got = found(RULES, "SLT002", of(log=log(facts=facts), flags=("-m", "x", "--no-kv-offload")))
    assert "1,024 of 1,024 MiB of the KV cache" in got.sentence
    assert "--no-kv-offload" in (got.first or "")


LEVEL_THREE = """build: 11434 (1af25fa1) with cc for x86_64-linux-gnu
srv  load_model: loading model '/models/m.gguf'
srv  load_model: initializing, n_slots = 4, n_ctx_slot = 4096, kv_unified = 'true'
srv  llama_server: model loaded
"""


@pytest.mark.parametrize(
    "stated",
    [
        pod("-nkvo", image=CUDA_IMAGE, gpus=1),
        pod("--no-kv-offload", image=CUDA_IMAGE, gpus=1),
        pod(image=CUDA_IMAGE, gpus=1, env={"LLAMA_ARG_NO_KV_OFFLOAD": "1"}),
        pod(image=CUDA_IMAGE, gpus=1, env={"LLAMA_ARG_KV_OFFLOAD": "off"}),
    ],
)
@pytest.mark.parametrize("text", [None, LEVEL_THREE], ids=["no log", "a log at -lv 3"])
def test_an_argument_that_keeps_the_kv_cache_off_the_gpu_is_enough(stated: PodFacts, text: str | None) -> None:
    got = found(RULES, "SLT002", of(pod=stated, log=None if text is None else read(text)))
    assert got.confidence is Confidence.LIKELY
    assert "KV cache stays in host memory" in got.sentence
    assert got.first == "Take --no-kv-offload out: the KV cache then lies where attention is computed."


@pytest.mark.parametrize(
    "stated",
    [
        pod("-nkvo", image=CPU_IMAGE),
        pod("-nkvo", image=CPU_IMAGE, gpus=1),
        pod("-nkvo", "-ngl", "0", image=CUDA_IMAGE, gpus=1),
        pod("-nkvo", "--device", "none", image=CUDA_IMAGE, gpus=1),
        pod("-nkvo", "-kvo", image=CUDA_IMAGE, gpus=1),
        pod("--swa-full", "-sm", "row", "--no-warmup", "--no-op-offload", image=CUDA_IMAGE, gpus=1),
    ],
)
def test_arguments_that_decide_nothing_are_no_finding(stated: PodFacts) -> None:
    assert not isinstance(ask(RULES, "SLT002", of(pod=stated)), Finding)


def test_fewer_layers_than_the_model_has_are_told_from_the_arguments() -> None:
    layers = tuple(LayerCache(1024, 1024) for _ in range(32))
    model = ModelFacts("m.gguf", 1, "id", "any", "F16", 8192, 32_000, 4096, 32, layers, 10**9, 10**9, 16.0)
    few = of(pod=pod("-ngl", "20", image=CUDA_IMAGE, gpus=1), model=model)
    assert found(RULES, "SLT002", few).sentence == "12 of 32 layers run on the CPU"
    for value in ("99", "32", "all", "auto", "-1"):
        assert is_undecided(RULES, "SLT002", of(pod=pod("-ngl", value, image=CUDA_IMAGE, gpus=1), model=model))
    assert is_undecided(RULES, "SLT002", of(pod=pod("-ngl", "20", image=CUDA_IMAGE, gpus=1)))


def test_all_layers_on_the_gpu_with_the_input_table_on_the_host_is_as_it_should_be() -> None:
    assert is_clear(RULES, "SLT002", of(log=log(facts=ALL)))


def test_experts_that_an_argument_keeps_on_the_host_are_named() -> None:
    facts = ALL | {"model_buffers": {"CUDA0": 4000 * MIB, "CPU_Mapped": 12_000 * MIB}}
    got = found(RULES, "SLT002", of(log=log(facts=facts), flags=("-m", "x", "--cpu-moe")))
    assert got.evidence[0] == Evidence(Source.FLAGS, "--cpu-moe")


def test_layers_are_undecided_without_the_lines_of_level_four() -> None:
    assert is_undecided(RULES, "SLT002", of(log=log(facts={}, verbosity=3), pod=pod(gpus=1)))
    assert is_undecided(RULES, "SLT003", of(log=log(facts={}, verbosity=3), pod=pod(gpus=1)))


def test_layers_that_nobody_stated_were_moved_by_fit() -> None:
    facts = ALL | {"layers_offloaded": 20}
    symptoms = of(log=log(facts=facts), pod=pod("-c", "32768", gpus=1))
    assert "-fit chose that 13 of 33 layers" in found(RULES, "SLT003", symptoms).sentence
    assert is_clear(RULES, "SLT002", symptoms), "one cause, one finding"


def test_who_chose_the_layers_is_not_guessed_where_the_arguments_are_unknown() -> None:
    symptoms = of(log=log(facts=ALL | {"layers_offloaded": 20}))
    assert is_clear(RULES, "SLT003", symptoms)
    found(RULES, "SLT002", symptoms)


def test_a_margin_that_fit_could_not_leave_costs_nothing_while_all_layers_are_on_the_gpu() -> None:
    change = "failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort"
    found(RULES, "SLT003", of(log=log(facts=ALL | {"fit_changes": (change,)})), Severity.INFO)


def test_fit_that_is_off_moved_nothing() -> None:
    assert is_clear(RULES, "SLT003", of(flags=("-m", "x", "-fit", "off")))
    assert is_clear(RULES, "SLT003", of(log=log(facts=ALL)))


@pytest.mark.parametrize("identifier", ["SLT001", "SLT002", "SLT003"])
def test_every_finding_has_its_line_and_no_prompt(identifier: str) -> None:
    secret = "draft a letter to my doctor"  # what a user may write
    story = log(facts=ON_CPU | {"layers_offloaded": 3, "layers": 33}, failure_line=Line(4, secret))
    said = ask(RULES, identifier, of(log=story, pod=PodFacts("p", gpus=1)))
    if isinstance(said, Finding):
        assert all(secret not in one.text for one in said.evidence)


# What is left on the host, as logs say it

SPLIT = """\
0.00.221.040 I srv          init: build_info: b11434-7e4c0a9
0.00.226.771 I srv    load_model: loading model '/models/model.gguf'
0.00.300.002 I print_info: n_expert              = {experts}
{more}0.01.000.000 I load_tensors: offloaded {layers} layers to GPU
0.01.000.001 I load_tensors:   {host} model buffer size = {kept}.00 MiB
0.01.000.002 I load_tensors:        CUDA0 model buffer size = {there}.00 MiB
{caches}0.02.301.500 I srv          init: model loaded
"""
KEPT = "tensor blk.3.ffn_gate_exps.weight (1190 MiB q4_K) buffer type overridden to CPU\n"
IK_KEPT = "Tensor blk.60.ffn_up_exps.weight buffer type overriden to CPU\n"
CACHES = """\
0.02.010.000 I llama_kv_cache:        CPU KV buffer size =     4.00 MiB
0.02.010.001 I llama_kv_cache:      CUDA0 KV buffer size =    68.00 MiB
"""


def split(
    kept: int, there: int, *, experts: int = 0, host: str = "CPU_Mapped", layers: str = "41/41", **more: str
) -> Symptoms:
    parts = {"more": "", "caches": ""} | more
    return of(log=read(SPLIT.format(kept=kept, there=there, experts=experts, host=host, layers=layers, **parts)))


@pytest.mark.parametrize("line", [KEPT, IK_KEPT])
def test_experts_that_a_line_says_were_kept_on_the_host_are_certain(line: str) -> None:
    symptoms = split(392428, 17744, experts=256, more=line)
    said = found(RULES, "SLT002", symptoms)
    assert said.confidence is Confidence.CERTAIN
    assert said.sentence == "an argument keeps 392,428 of 410,172 MiB of weights in host memory"
    assert said.evidence[0].text == line.strip()
    where = ask(RULES, "SLT001", symptoms)
    assert isinstance(where, Clear)
    assert where.sentence == "the GPU is in use: 17,744 of 410,172 MiB of the weights lie on it"


def test_half_of_a_mixture_of_experts_on_the_host_is_likely_moved_whoever_did_it() -> None:
    said = found(RULES, "SLT002", split(9966, 11313, experts=128, host="SYCL_Host"))
    assert said.confidence is Confidence.LIKELY
    assert said.sentence == "an argument or -fit keeps 9,966 of 21,279 MiB of weights in host memory"


@pytest.mark.parametrize(("kept", "there"), [(281, 4403), (2600, 2600), (4700, 9000)])
def test_tables_of_inputs_lie_on_the_host_and_alarm_nobody(kept: int, there: int) -> None:
    assert is_clear(RULES, "SLT002", split(kept, there))


def test_fewer_layers_than_there_are_want_more_of_them_before_room_is_made() -> None:
    said = found(RULES, "SLT002", split(337, 1740, layers="35/37", caches=CACHES))
    assert [one.text for one in said.evidence][1] == "llama_kv_cache:        CPU KV buffer size =     4.00 MiB"
    assert (said.first or "").startswith("Set -ngl all: 35 of 37 layers are on the GPU")
    room = found(RULES, "SLT002", split(337, 1740, layers="37/37", caches=CACHES))
    assert (room.first or "").startswith("Make 4 MiB of room")


def test_fit_that_is_not_implemented_missed_no_margin() -> None:
    words = "llama_params_fit is not implemented for SPLIT_MODE_TENSOR"
    line = f"0.00.039.524 W common_fit_params: failed to fit params to free device memory: {words}, abort\n"
    said = found(RULES, "SLT003", split(281, 4403, more=line), Severity.INFO)
    assert said.sentence.startswith(f"-fit did nothing: {words}")
    missed = "n_gpu_layers already set by user to 33"
    line = line.replace(words, missed)
    assert "could not leave its margin" in found(RULES, "SLT003", split(281, 4403, more=line), Severity.INFO).sentence
