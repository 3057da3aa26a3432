"""What can't be of one server is not judged as one, and what can be is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slotune.diagnose.contradictions import without_contradictions
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_shape import ModelShape
from slotune.llama.model_facts import ModelFacts
from slotune.llama.server_answers import ModelMeta, Props
from slotune.load.nvidia_smi import DeviceSnapshot
from tests.diagnose.rules.building import log, of, pod, server

GIB = 2**30
SIZE = 4 * GIB


def story(path: str | None = "/models/chat.gguf", size: int | None = SIZE, **facts: Any) -> Any:
    shape = ModelShape(embedding=4096, weights_bytes=size)
    usual = {"slots": 4, "context_per_slot": 4096, "model_path": path, "shape": shape}
    return log(facts={**usual, **facts}, build=11549)


def running(path: str = "/models/chat.gguf", size: int | None = SIZE, **props: Any) -> Any:
    usual = Props(4, 4096, path, "chat", "b11549-0a1b2c3", True, True)
    return server(props=replace(usual, **props), model=ModelMeta("chat", size_bytes=size, embedding=4096))


def weights(path: str = "/models/chat.gguf", size: int = SIZE, embedding: int = 4096) -> ModelFacts:
    return ModelFacts(path, size, "", "llama", "Q4_K_M", 8192, 32000, embedding, 32, (), size, size, 4.5)


def gpu(held: int | None, name: str = "NVIDIA L4") -> DeviceSnapshot:
    return DeviceSnapshot(name, 1, shows_server=held is not None, server_bytes=held)


def kept(symptoms: Symptoms) -> None:
    assert without_contradictions(symptoms) == (symptoms, ())


# A log beside its server


def test_a_log_and_its_server_go_together() -> None:
    kept(of(log=story(), server=running(), model=weights()))


@pytest.mark.parametrize(
    ("other", "values"),
    [
        pytest.param(story(slots=8), ["8 slots by the log", "4 by /props"], id="slots"),
        pytest.param(story(context_per_slot=32768), ["32,768 tokens", "4,096"], id="context"),
        pytest.param(story(size=2 * GIB), ["2,048 MiB", "4,096 MiB"], id="size"),
        pytest.param(replace(story(), build=10429), ["build 10429", "11549"], id="build"),
        pytest.param(story("/m/other.gguf", None), ["other.gguf", "chat.gguf"], id="another file of unknown size"),
        pytest.param(story("/m/other.gguf", slots=8), ["other.gguf", "chat.gguf", "8 slots"], id="file and slots"),
        pytest.param(story(shape=ModelShape(embedding=576)), ["576 elements", "4,096"], id="width"),
    ],
)
def test_a_log_of_another_server_is_left_out_and_both_values_are_said(other: Any, values: list[str]) -> None:
    left, notes = without_contradictions(of(log=other, server=running()))

    assert left.log is None
    assert left.server is not None
    (note,) = notes
    assert "the log was left out" in note
    assert [value for value in values if value not in note] == []


@pytest.mark.parametrize(
    "same",
    [
        pytest.param(of(log=story(slots=None, context_per_slot=None), server=running()), id="nothing said"),
        pytest.param(
            of(log=replace(story("x.gguf", None, slots=8), facts=log().facts), server=running()), id="cut off"
        ),
        pytest.param(of(log=story(context_per_slot=4000), server=running()), id="a padded context"),
        pytest.param(of(log=story(context_per_slot=16384), server=running()), id="a pool told whole"),
        pytest.param(of(log=story(context_per_slot=9999, context_trained_cap=4096), server=running()), id="capped"),
        pytest.param(of(log=story("/a/chat.gguf"), server=running("/b/chat.gguf")), id="another folder"),
        pytest.param(of(log=story(size=SIZE - 2**20), server=running()), id="a rounded size"),
        pytest.param(of(log=story(), server=running(build="b0-unknown")), id="a build without a number"),
        pytest.param(of(log=story(), server=running("none")), id="a router"),
        pytest.param(of(log=story(slots=8), server=running(), pod=pod()), id="a pod, whose parts belong together"),
        pytest.param(of(log=story(slots=8), server=server(props=None, refused={"/props": "silent"})), id="silent"),
    ],
)
def test_what_can_be_one_server_stays_one(same: Symptoms) -> None:
    kept(same)


def test_a_file_that_was_renamed_is_no_other_server() -> None:
    left, (note,) = without_contradictions(of(log=story("/models/old-name.gguf"), server=running()))

    assert left.log is not None
    assert "old-name.gguf" in note
    assert "both were used" in note


# The weights file


@pytest.mark.parametrize("source", [{"log": story()}, {"server": running()}, {"log": story(), "server": running()}])
@pytest.mark.parametrize("other", [weights(size=GIB), weights("/m/other.gguf", GIB), weights(embedding=576)])
def test_a_file_of_another_model_is_left_out(source: dict[str, Any], other: ModelFacts) -> None:
    left, (note,) = without_contradictions(of(model=other, **source))

    assert left.model is None
    assert "left out" in note
    assert "4,096" in note


@pytest.mark.parametrize(
    "path",
    [
        "/elsewhere/chat.gguf",
        "/moved/renamed.gguf",
        "/cache/ggml-org_chat-GGUF_chat.gguf",
        f"/models/blobs/sha256-{'ab' * 32}",
        f"/hub/blobs/{'0f' * 32}",
    ],
)
def test_a_file_that_was_moved_renamed_or_cached_is_the_same_model(path: str) -> None:
    kept(of(model=weights(path), log=story()))


def test_another_name_alone_is_only_said() -> None:
    """At -lv 3 a log does not say how large its weights are."""
    left, (note,) = without_contradictions(of(model=weights("/m/other.gguf"), log=story(shape=ModelShape())))

    assert left.model is not None
    assert "other.gguf" in note
    assert "chat.gguf" in note


def test_a_digest_for_a_name_says_nothing() -> None:
    kept(of(model=weights(f"/hub/blobs/{'0f' * 32}"), log=story(shape=ModelShape())))


def test_a_file_is_not_held_against_a_log_that_was_left_out() -> None:
    left, notes = without_contradictions(of(log=story(size=GIB), server=running(), model=weights()))

    assert (left.log, left.model is None, len(notes)) == (None, False, 1)


# nvidia-smi

HOST = {"model_buffers": {"CPU_Mapped": SIZE}}


@pytest.mark.parametrize(
    ("facts", "held"),
    [
        pytest.param({"no_usable_gpu": True}, GIB, id="no GPU was found"),
        pytest.param(HOST, 6 * GIB, id="weights in host memory"),
        pytest.param({**HOST, "devices": ("NVIDIA L4",)}, 6 * GIB, id="a GPU that it does not use"),
    ],
)
def test_a_llama_server_on_the_gpu_is_not_the_one_that_computes_on_the_cpu(facts: dict[str, Any], held: int) -> None:
    shown = (Evidence(Source.DEVICE, "NVIDIA L4"),)
    left, (note,) = without_contradictions(of(log=story(**facts), device=gpu(held), device_evidence=shown))

    assert (left.device, left.device_evidence) == (None, ())
    assert left.log is not None
    assert f"{held // 2**20:,} MiB" in note


@pytest.mark.parametrize(
    ("facts", "held"),
    [
        pytest.param({"model_buffers": {"CUDA0": SIZE}}, 6 * GIB, id="on the GPU"),
        pytest.param(HOST, GIB // 2, id="scratch space alone"),
        pytest.param(HOST, None, id="a container, which shows no processes"),
        pytest.param({"no_usable_gpu": True, "devices": ("NVIDIA L4",)}, GIB, id="another back end found one"),
        pytest.param({}, 6 * GIB, id="a log that does not say where"),
    ],
)
def test_a_gpu_that_may_be_the_servers_own_is_kept(facts: dict[str, Any], held: int | None) -> None:
    kept(of(log=story(**facts), device=gpu(held)))


@pytest.mark.parametrize(
    ("logged", "seen"),
    [
        ("NVIDIA GeForce RTX 3060", "NVIDIA L4"),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3060", "2 x NVIDIA L4 and NVIDIA T4"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3080 ..."),
    ],
)
def test_the_output_of_another_machine_is_left_out(logged: str, seen: str) -> None:
    left, (note,) = without_contradictions(of(log=story(devices=(logged,)), device=gpu(None, seen)))
    assert left.device is None
    assert f"its log names {logged}, and it names" in note


@pytest.mark.parametrize(
    ("logged", "seen"),
    [
        ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "NVIDIA GeForce RTX 3080 ..."),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB (MIG)"),
        ("Orin", "Orin (nvgpu)"),
        ("L4", "NVIDIA L4"),
        ("Microsoft Direct3D12 (NVIDIA GeForce RTX 4090)", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA T4", "2 x NVIDIA L4 and NVIDIA T4"),
        ("2 CUDA devices", "NVIDIA L4"),
        ("NVIDIA L4", "GPU 00000000:01:00.0"),
    ],
)
def test_names_of_one_device_are_taken_for_one(logged: str, seen: str) -> None:
    kept(of(log=story(devices=(logged,)), device=gpu(None, seen)))
