"""Speeds that people published are normal: none is called slow, none is above its bound, and far less is noticed.

Each row is a measurement of llama-bench, with its model's weights as llama.cpp places them. Sources: the README of
XiongjieDai/GPU-Benchmarks-on-LLM-Inference (LLaMA 2 and 3, 512 tokens), issues 21, 43 and 46 of
geerlingguy/ai-benchmarks, ggml-org/llama.cpp#4766, #5835, #13324, #16095, #26284, intel/ipex-llm#12991,
lhl/strix-halo-testing#33, brand-o/normiebench#3 and #40.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import check_up
from slotune.diagnose.finding import Finding, Severity
from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.rules import decode
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.gguf_facts import read_facts
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import ask, is_clear
from tests.diagnose.test_roofline_table import MODELS as SHAPES
from tests.sparse_models import write_sparse_model

MODELS = {
    # parameters, MiB on the GPU and of the input table, layers and output, widths, KiB of cache a token, experts
    "7B Q4_0": ("6.74 B", 3577.61, 70.31, 33, 4096, 32000, 512, 0, 0),
    "7B Q3_K_S": ("6.74 B", 2762.3, 53.71, 33, 4096, 32000, 512, 0, 0),
    "8B Q4_K_M": ("8.03 B", 4403.49, 281.81, 33, 4096, 128256, 128, 0, 0),
    "8B F16": ("8.03 B", 14315.02, 1002.0, 33, 4096, 128256, 128, 0, 0),
    "3B Q4_K_M": ("3.21 B", 1918.35, 308.23, 29, 3072, 128256, 112, 0, 0),
    "qwen2 7B Q4_K_M": ("7.62 B", 4168.09, 292.36, 29, 3584, 152064, 56, 0, 0),
    "70B Q4_K_M": ("70.55 B", 39979.48, 563.62, 81, 8192, 128256, 320, 0, 0),
    "1B Q4_K_M": ("1.10 B", 601.02, 35.16, 23, 2048, 32000, 22, 0, 0),
    "gpt-oss 20B": ("20.91 B", 10949.33, 586.82, 25, 2880, 201088, 48, 32, 4),
    "gpt-oss 120B": ("116.83 B", 59851.68, 586.82, 37, 2880, 201088, 72, 128, 4),
    "qwen3next 80B": ("79.67 B", 46000.0, 166.92, 49, 2048, 151936, 24, 512, 10),
}
PUBLISHED = """\
CUDA|NVIDIA GeForce RTX 3070|8191|1|8B Q4_K_M|72.79|2402.51
CUDA|NVIDIA GeForce RTX 3080|10001|1|8B Q4_K_M|109.57|3728.86
CUDA|NVIDIA GeForce RTX 3080 Ti|12037|1|8B Q4_K_M|110.60|3690.30
CUDA|NVIDIA GeForce RTX 4070 Ti|11994|1|8B Q4_K_M|83.50|3936.29
CUDA|NVIDIA GeForce RTX 4080|16076|1|8B Q4_K_M|108.15|5389.74
CUDA|NVIDIA GeForce RTX 4080|16076|1|8B F16|40.58|7246.97
CUDA|NVIDIA GeForce RTX 3090|24124|1|8B Q4_K_M|115.42|4030.40
CUDA|NVIDIA GeForce RTX 3090|24124|1|8B F16|47.40|4444.65
CUDA|NVIDIA GeForce RTX 4090|24080|1|8B Q4_K_M|130.58|7138.99
CUDA|NVIDIA GeForce RTX 4090|24080|1|8B F16|54.84|9382.00
CUDA|NVIDIA GeForce RTX 3090|24124|2|70B Q4_K_M|16.57|357.32
CUDA|NVIDIA GeForce RTX 4090|24080|2|70B Q4_K_M|19.22|839.43
CUDA|NVIDIA GeForce RTX 3090|24124|4|8B Q4_K_M|108.66|3742.66
CUDA|NVIDIA GeForce RTX 4090|24080|8|8B Q4_K_M|118.09|6172.06
CUDA|NVIDIA RTX A6000|48541|1|7B Q4_0|111.57|2979.12
CUDA|NVIDIA RTX 6000 Ada Generation|48508|1|7B Q4_0|127.45|3911.18
CUDA|NVIDIA RTX 4000 Ada Generation|20040|1|7B Q4_0|64.53|1819.86
CUDA|NVIDIA RTX 5000 Ada Generation|32760|1|7B Q4_0|99.19|3525.7
CUDA|NVIDIA A100 80GB PCIe|81050|1|7B Q4_0|136.24|3443.98
CUDA|NVIDIA A100 80GB PCIe|81050|1|70B Q4_K_M|25.68|612.41
CUDA|NVIDIA H100 PCIe|81000|1|7B Q4_0|133.77|4868.59
CUDA|NVIDIA H100 PCIe|81000|1|70B Q4_K_M|25.88|855.73
CUDA|NVIDIA RTX PRO 6000 Blackwell Workstation Edition|97250|1|7B Q4_0|278.95|16634.04
CUDA|Tesla P40|24438|1|7B Q4_0|56.79|912.41
CUDA|Tesla P40|24438|1|7B Q3_K_S|30.93|583.04
CUDA|NVIDIA GB10|122504|1|gpt-oss 20B|90.06|3713.75
Vulkan|NVIDIA GeForce RTX 4090|24080|1|3B Q4_K_M|334.67|20323.29
Vulkan|NVIDIA GeForce RTX 4090|24080|1|1B Q4_K_M|762.37|18709.17
Vulkan|NVIDIA GeForce RTX 2080 Ti|11264|1|1B Q4_K_M|424.32|5393.59
Vulkan|Radeon 8060S Graphics (RADV GFX1151)|98304|1|gpt-oss 20B|45.01|564.23
Vulkan|Radeon 8060S Graphics (AMD open-source driver)|98304|1|qwen3next 80B|28.40|290.28
Vulkan|AMD Radeon RX 5700 XT (RADV NAVI10)|8176|1|7B Q4_0|65.19|468.06
Vulkan|AMD Radeon RX 6700 XT (RADV NAVI22)|12272|1|7B Q4_0|41.81|425.07
ROCm|AMD Radeon RX 6700 XT|12272|1|7B Q4_0|58.97|1017.28
ROCm|AMD Radeon RX 7900 XTX|24560|1|8B Q4_K_M|105.75|3189.36
ROCm|Radeon 8060S Graphics|131072|1|gpt-oss 120B|47.41|998.24
ROCm|Radeon 8060S Graphics|98304|1|3B Q4_K_M|74.98|573.52
SYCL|Intel(R) Arc(TM) B580 Graphics|12216|1|qwen2 7B Q4_K_M|66.48|2335.96
MTL|Apple M1|5461|1|8B Q4_K_M|10.20|94.48
MTL|Apple M1 Max|49152|1|8B Q4_K_M|35.73|408.23
MTL|Apple M1 Max|49152|1|8B F16|18.75|517.34
MTL|Apple M1 Max|49152|1|70B Q4_K_M|4.34|34.96
MTL|Apple M1 Max|49152|1|8B Q4_K_M|46.2|499.58
MTL|Apple M2 Ultra|147456|1|8B Q4_K_M|78.81|994.04
MTL|Apple M2 Ultra|147456|1|70B Q4_K_M|12.48|118.79
MTL|Apple M3 Max|49152|1|8B Q4_K_M|50.74|678.04
MTL|Apple M3 Max|36864|1|7B Q4_0|63.11|740.97
MTL|Apple M3 Max|49152|1|70B Q4_K_M|7.65|70.19
MTL|Apple M4|10922|1|8B Q4_K_M|20.87|224.81
"""


GPT_OSS_20B = """\
Vulkan|NVIDIA GeForce RTX 4090|24080|279.65
Vulkan|NVIDIA GeForce RTX 4070 Ti|12282|163.14
Vulkan|NVIDIA RTX A4000|16376|93.55
Vulkan|NVIDIA GeForce RTX 3060|12288|83.96
Vulkan|AMD Radeon AI PRO R9700|32624|163.26
CUDA|NVIDIA GB10|122504|87.97
MTL|Apple M3 Ultra|475136|115.29
MTL|Apple M1 Ultra|98304|100.43
"""
"""Tokens/s written, by the README of geerlingguy/ai-benchmarks."""


@dataclass(frozen=True)
class Measured:
    backend: str
    device: str
    mib: int
    count: int
    model: str
    written: float
    """Tokens/s."""
    read: float


def measured() -> list[Measured]:
    rows = [line.split("|") for line in PUBLISHED.splitlines()]
    return [Measured(row[0], row[1], int(row[2]), int(row[3]), row[4], float(row[5]), float(row[6])) for row in rows]


DENSE = [one for one in measured() if MODELS[one.model][-1] == 0]
LARGE = [one for one in DENSE if MODELS[one.model][1] > 3000]
"""Whose tokens take long for their bytes, and not for the launches of their kernels."""


def said(one: Measured) -> str:
    return f"{one.count} x {one.device}, {one.model}, {one.written:g}"


def symptoms_of(one: Measured, slower: float = 1.0, offloaded: float = 1.0) -> Symptoms:
    """By a log that the server would have written, ``slower`` as many times."""
    reader = LogReader("server.log")
    reader.feed(log(one, slower, offloaded).encode())
    (story,) = reader.finish()
    return Symptoms("server.log", log=story)


def log(one: Measured, slower: float, offloaded: float) -> str:
    parameters, on_gpu, table, layers, width, words, cache, experts, used = MODELS[one.model]
    context, names = 8192, [f"{one.backend}{index}" for index in range(one.count)]
    buffer = "_Mapped" if one.backend == "MTL" else ""
    part = round(layers * offloaded)
    kept = on_gpu * part / layers
    size = cache * context / 1024
    kinds = f"K (f16): {size / 2:.2f} MiB, V (f16): {size / 2:.2f} MiB"
    lines = [
        "srv          init: build_info: b11434-7e4c0a9",
        "cmn  common_param: device_info:",
        *(f"cmn  common_param:   - {name}   : {one.device} ({one.mib} MiB, {one.mib} MiB free)" for name in names),
        "srv    load_model: loading model '/models/model.gguf'",
        f"print_info: n_embd                = {width}",
        f"print_info: n_swa                 = {128 if 'oss' in one.model else 0}",
        f"print_info: n_expert              = {experts}",
        f"print_info: n_expert_used         = {used}",
        f"print_info: model params          = {parameters}",
        f"print_info: n_vocab               = {words}",
        f"load_tensors: offloaded {part}/{layers} layers to GPU",
        f"load_tensors:   CPU_Mapped model buffer size = {table + on_gpu - kept:.2f} MiB",
        *(f"load_tensors: {name}{buffer} model buffer size = {kept / one.count:.2f} MiB" for name in names),
        "llama_context: constructing llama_context",
        f"llama_context: n_ctx                 = {context}",
        "llama_context: flash_attn            = enabled",
        *(f"llama_kv_cache: {name} KV buffer size = {size / one.count:.2f} MiB" for name in names),
        f"llama_kv_cache: size = {size:.2f} MiB ({context:6} cells,  {layers - 1} layers,  1/1 seqs), {kinds}",
        f"srv    load_model: initializing, n_slots = 1, n_ctx_slot = {context}, kv_unified = 'false'",
        "srv          init: model loaded",
    ]
    prompt_ms, ms = 1e3 * slower * 512 / one.read, 1e3 * slower * 127 / one.written
    for task in range(0, 16, 2):
        slot = f"id  0 | task {task} |"
        speed = "(    0.20 ms per token,  5000.00 tokens per second)"
        lines += [
            f"slot launch_slot_: {slot} processing task, is_child = 0",
            f"slot print_timing: {slot} prompt eval time = {prompt_ms:10.2f} ms /   512 tokens {speed}",
            f"slot print_timing: {slot}        eval time = {ms:10.2f} ms /   128 tokens {speed}",
            f"slot print_timing: {slot}       total time = {prompt_ms + ms:10.2f} ms /   640 tokens",
            f"slot      release: {slot} stop processing: n_tokens = 639, truncated = 0",
        ]
    return "".join(f"0.{number // 600:02}.{number % 600:03}.000 I {line}\n" for number, line in enumerate(lines))


@pytest.mark.parametrize("one", measured(), ids=said)
def test_a_published_speed_is_nothing_to_be_alarmed_by(one: Measured) -> None:
    symptoms = symptoms_of(one)
    assert not [one for one in check_up(symptoms, ALL_RULES).findings if one.severity is not Severity.INFO]
    roofline = roofline_of(symptoms)
    assert isinstance(roofline, Roofline)
    assert roofline.devices.count == one.count
    share = roofline.decode.share
    assert share is not None
    assert share <= 1
    # Of experts at least those that a token asks are counted, so their bound is high.
    assert share >= (0.25 if one in DENSE else 0.1)
    assert roofline.prefill.share is None or 0.01 < roofline.prefill.share < 0.5
    assert roofline.devices.doubt is None


@pytest.mark.parametrize("one", LARGE, ids=said)
def test_a_quarter_of_a_published_speed_is_noticed(one: Measured) -> None:
    found = ask(decode.RULES, "SLT012", symptoms_of(one, slower=4))
    assert isinstance(found, Finding)
    assert found.cost.speed_share is not None
    assert found.cost.speed_share > 0.1


@pytest.mark.parametrize("line", GPT_OSS_20B.splitlines())
def test_of_a_mixture_of_experts_the_file_tells_how_near_it_is(line: str, tmp_path: Path) -> None:
    backend, device, mib, written = line.split("|")
    architecture, stated, tensors, _ = SHAPES["gpt-oss 20B"]
    path = write_sparse_model(tmp_path / "model.gguf", architecture, stated, tensors())
    one = Measured(backend, device, int(mib), 1, "gpt-oss 20B", float(written), 20 * float(written))
    symptoms = replace(symptoms_of(one), model=read_facts(path, hashed=False))
    assert is_clear(decode.RULES, "SLT012", symptoms)
    roofline = roofline_of(symptoms)
    assert isinstance(roofline, Roofline)
    assert roofline.decode.share is not None
    assert 0.3 < roofline.decode.share < 0.9
    assert isinstance(ask(decode.RULES, "SLT012", replace(symptoms, log=symptoms_of(one, slower=5).log)), Finding)


@pytest.mark.parametrize("one", [one for one in LARGE if one.count == 1], ids=said)
def test_what_is_slow_for_layers_on_the_cpu_is_told_as_that_alone(one: Measured) -> None:
    """The cause with all that it costs, and neither of the two findings that would only ask for it."""
    symptoms = symptoms_of(one, slower=5, offloaded=0.7)
    first, *more = check_up(symptoms, ALL_RULES).findings
    assert first.id == "SLT002"
    assert first.cost.speed_share is not None
    assert first.cost.speed_share > 0.1
    assert not {"SLT012", "SLT013"} & {finding.id for finding in more}
    roofline = roofline_of(symptoms)
    assert isinstance(roofline, Roofline)
    assert any("lies in host memory, which is slower" in sentence for sentence in roofline.sentences)
