"""Who gives all that a checkup can look at gets an answer to every question."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import Rule, check_up
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import GPUFacts, NodeFacts, PodFacts, ServerLook, Symptoms
from slotune.llama.server_answers import Metrics, ModelMeta, Props, Slot
from slotune.llama.template_facts import template_facts
from slotune.load.nvidia_smi import DeviceSnapshot
from slotune.load.process_cpu import CPULook
from slotune.load.process_memory import MemoryLook
from slotune.verdict.promise import Promise
from tests.diagnose.rules.building import probe
from tests.diagnose.server_logs import Asked, log_of

MIB = 2**20
PLAIN = {"repeat_penalty": 1.0, "cache_prompt": True}
ARGS = ("-m", "/models/m.gguf", "--parallel", "4", "--cache-ram", "2048", "-t", "8")
PICKED = "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, f_sim_best = 0.750 (> 0.100 thold)\n"


def counted(at_s: float) -> Metrics:
    return Metrics(
        {
            "requests_processing": 2.0,
            "requests_deferred": 0.0,
            "n_decode_total": 10_000.0 + 100 * at_s,
            "n_busy_slots_per_decode": 2.0,
            "prompt_tokens_total": 80_000.0,
            "prompt_seconds_total": 16.0,
            "prompt_tokens_cached_total": 60_000.0,
            "tokens_predicted_total": 20_000.0,
            "tokens_predicted_seconds_total": 160.0,
        }
    )


def memory_at(seconds: float) -> MemoryLook:
    return MemoryLook(
        "llama-server",
        at_s=seconds,
        resident_bytes=2048 * MIB,
        anonymous_bytes=1024 * MIB,
        swapped_bytes=0,
        mapped_weights_bytes=300 * MIB,
        resident_weights_bytes=300 * MIB,
        major_faults=40,
        read_bytes=10**9,
        cpu_s=seconds,
        limit_bytes=32 * 1024 * MIB,
        used_bytes=3000 * MIB,
        refault_bytes=0,
        stalled_percent=0.0,
        machine_bytes=64 * 1024 * MIB,
        cpu=CPULook(cpus=8, machine_cpus=8, busy_s=2 * seconds, own_s=seconds, threads={1: (seconds, 0.0)}),
    )


EVERYTHING = Symptoms(
    "a server in good health",
    log=log_of(
        more="sched_reserve: Flash Attention was auto, set to enabled\n" + PICKED * 40,
        asked=[Asked(prompt=500, answer=200, tokens_per_s=125, cached=1500, at_once=2, count=40)],
    ),
    server=ServerLook(
        "http://127.0.0.1:8080",
        props=Props(4, 131072, "m.gguf", "m", "b11434", True, True, PLAIN, template_facts("{{ messages }}")),
        model=ModelMeta("m", vocabulary=128_256, size_bytes=4_700_000_000),
        slots=tuple(
            Slot(number, 131072, number < 2, False, number + 40, 500, 20, 2000, 1500, PLAIN) for number in range(4)
        ),
        slots_still_s=0.0,
        metrics=counted(0),
        metrics_later=counted(10),
        between_s=10.0,
        looks_at_metrics=10,
        processing=(2,) * 10,
        deferred=(0,) * 10,
        health_s=0.001,
        slots_s=0.002,
        metrics_s=0.002,
        sampling=PLAIN,
        sampling_source=Evidence(Source.SLOTS, "slot 0 works on a request: as the defaults are"),
        request_params_seen=True,
    ),
    probe=probe(
        prompt_tokens=2000,
        prefill_tokens_per_s=5000.0,
        decode_step_s=0.0075,
        cached_tokens_again=1990,
        tokenize_s=0.004,
        stream_s=0.4,
        stream_made_s=0.4,
    ),
    pod=PodFacts(
        "llama-0",
        image="ghcr.io/ggml-org/llama.cpp:server-cuda-b11434",
        args=("-ngl", "all", *ARGS, "-c", "524288"),
        cpu_limit=8.0,
        memory_limit_bytes=32 * 1024 * MIB,
        gpus=1,
        ready=True,
        volumes={"/models": "emptyDir"},
    ),
    node=NodeFacts("node-1", cores=16.0, labels={"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090"}),
    device=DeviceSnapshot(
        "NVIDIA GeForce RTX 4090",
        1,
        others=0,
        memory_used_bytes=21_000 * MIB,
        knows_clock_reasons=True,
        shows_server=True,
    ),
    device_evidence=(Evidence(Source.DEVICE, "NVIDIA GeForce RTX 4090: 21,000 MiB used"),),
    host=HostFacts(memory_at(100.0), memory_at(105.0)),
    gpu=GPUFacts("NVIDIA GeForce RTX 4090", 1_008e9, 165e12, 0.5),
    promise=Promise(2.0, 50.0),
)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_a_question_is_answered_where_everything_is_given(rule: Rule) -> None:
    said = rule.check(EVERYTHING)
    assert not isinstance(said, Undecided), said.needs


def test_what_everything_says_of_a_healthy_server_is_that_it_is() -> None:
    assert check_up(EVERYTHING, ALL_RULES).is_healthy is True


ON_CPU = replace(
    EVERYTHING,
    log=log_of(
        devices=(),
        model="load_tensors:   CPU_Mapped model buffer size =  4685.30 MiB\n",
        caches="llama_kv_cache:        CPU KV buffer size =  2048.00 MiB\n",
        context=16384,
        more=PICKED * 40,
        asked=[
            Asked(prompt=500, answer=200, tokens_per_s=10, prompt_tokens_per_s=60, cached=1500, at_once=2, count=40)
        ],
    ),
    pod=PodFacts(
        "llama-0",
        image="ghcr.io/ggml-org/llama.cpp:server-b11434",
        args=(*ARGS, "-c", "16384"),
        cpu_limit=8.0,
        memory_limit_bytes=32 * 1024 * MIB,
        ready=True,
        volumes={"/models": "emptyDir"},
    ),
    probe=probe(
        prompt_tokens=500,
        prefill_tokens_per_s=60.0,
        decode_step_s=0.09,
        cached_tokens_again=490,
        tokenize_s=0.004,
        stream_s=2.0,
        stream_made_s=2.0,
    ),
    device=None,
    device_evidence=(),
    gpu=None,
    promise=Promise(20.0, 5.0),
)


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_a_question_about_a_server_on_cpus_is_answered_where_everything_is_given(rule: Rule) -> None:
    said = rule.check(ON_CPU)
    assert not isinstance(said, Undecided), said.needs
