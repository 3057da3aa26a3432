"""A build is slow for somebody: without the condition of its report it is a build like any other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.build import RULES
from slotune.diagnose.symptoms import NodeFacts, Symptoms
from tests.diagnose.rules.building import NOTHING, ask, found, is_clear, is_undecided, log, of, pod, server

MIB = 2**20
CPU = {"model_buffers": {"CPU_Mapped": 2048 * MIB}}
CUDA = {"model_buffers": {"CUDA0": 8000 * MIB, "CPU_Mapped": 300 * MIB}}


def built(build: int, facts: dict[str, Any] = CPU, **more: Any) -> Symptoms:
    return of(log=log(facts=facts, build=build), **more)


def test_a_cpu_server_on_the_build_that_moved_its_decodes_is_told_which_builds_are_free_of_it() -> None:
    got = found(RULES, "SLT090", built(10429))
    assert "ggml-org/llama.cpp#27126" in got.sentence
    assert got.first == "Update to b10472 or later, or go back to b10428."
    assert got.confidence is Confidence.LIKELY
    assert len(got.evidence) == 2


def test_a_server_on_a_gpu_does_not_notice_it() -> None:
    assert is_clear(RULES, "SLT090", built(10429, CUDA | {"cache_type_k": "f16", "cache_type_v": "f16"}))


def test_experts_on_the_cpu_beside_a_gpu_do() -> None:
    f16 = {"cache_type_k": "f16", "cache_type_v": "f16"}
    found(RULES, "SLT090", built(10430, CUDA | f16, flags=("-m", "x", "--cpu-moe")))


@pytest.mark.parametrize("build", [10428, 10472, 11434, 11549])
def test_builds_before_and_after_are_clear(build: int) -> None:
    assert is_clear(RULES, "SLT090", built(build))


def test_a_build_in_the_gap_is_a_question() -> None:
    assert is_undecided(RULES, "SLT090", built(10450))


def test_a_build_that_nobody_names_is_undecided() -> None:
    assert is_undecided(RULES, "SLT090", NOTHING)
    assert is_undecided(RULES, "SLT090", of(log=log(facts=CPU)))


def test_the_build_is_read_from_the_image_and_from_the_server() -> None:
    found(RULES, "SLT090", of(pod=pod(image="ghcr.io/ggml-org/llama.cpp:server-b10429")))
    on = server()
    assert on.props is not None
    asked = replace(on, props=replace(on.props, build="b10429-77918caf3"))
    found(RULES, "SLT090", of(server=asked, log=log(facts=CPU)))


def test_types_without_a_kernel_on_llama_cpps_own_image_are_slow_on_early_builds() -> None:
    types = {"cache_type_k": "q5_1", "cache_type_v": "q5_1"}
    own = pod(gpus=1, image="ghcr.io/ggml-org/llama.cpp:server-cuda-b10791")
    assert "#28455" in found(RULES, "SLT090", built(10791, CUDA | types, pod=own)).sentence
    assert is_undecided(RULES, "SLT090", built(10791, CUDA | types))
    assert is_clear(RULES, "SLT090", built(10791, CPU | types)), "on a CPU every type has a kernel"


def test_scrapes_that_wait_are_told_where_they_waited_and_matter_to_no_user() -> None:
    slow = of(log=log(facts=CPU, build=10400), server=server(slots_s=4.2))
    got = found(RULES, "SLT090", slow, Severity.INFO)
    assert "#24866" in got.sentence
    assert got.evidence[1].text == "/slots took 4.2 s"
    assert is_clear(RULES, "SLT090", of(log=log(facts=CPU, build=10400), server=server(slots_s=0.01)))


def test_flash_attention_on_a_neoverse_core_is_worth_a_try_without_it() -> None:
    facts = CPU | {"flash_attention": True}
    graviton = NodeFacts("arm", labels={"node.kubernetes.io/instance-type": "c8g.4xlarge"})
    found(RULES, "SLT090", built(11549, facts, node=graviton), Severity.INFO)
    assert is_clear(RULES, "SLT090", built(11549, CPU | {"flash_attention": False}, node=graviton))
    older = NodeFacts("arm", labels={"node.kubernetes.io/instance-type": "c6g.4xlarge"})
    assert is_clear(RULES, "SLT090", built(11549, facts, node=older))


def test_a_build_newer_than_the_table_says_so() -> None:
    said = ask(RULES, "SLT090", built(20_000))
    assert "were not looked at" in getattr(said, "sentence", "")
