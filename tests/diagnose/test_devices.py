"""A part of a device is never taken for the whole, whoever names it: the pod, the node, nvidia-smi or the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.devices import accelerator_of, devices_of
from slotune.diagnose.finding import Finding, Undecided
from slotune.diagnose.roofline import Roofline, roofline_of
from slotune.diagnose.rules import decode
from slotune.diagnose.symptoms import GPUFacts, NodeFacts, PodFacts, ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory
from slotune.llama.server_answers import ModelMeta
from slotune.load.device_facts import DeviceFacts
from slotune.load.nvidia_smi import parse_nvidia_smi
from tests.diagnose.rules.building import ask

SLICE = "nvidia.com/mig-1g.5gb"
A100 = "NVIDIA-A100-SXM4-40GB"
NODE = NodeFacts("gpu-1", labels={"nvidia.com/gpu.product": A100})
"""As it is labelled with slices of several sizes (mixed strategy)."""
WHOLE = PodFacts("chat-0", gpus=1)
SLICED = PodFacts("chat-0", gpus=1, gpu_parts=(SLICE,))
EIGHT_B = ModelMeta("chat", parameters=8_000_000_000, size_bytes=4_900_000_000)
SEVENTH = Symptoms(
    "chat",
    log=LogStory("log", LogFacts(experts=0)),
    server=ServerLook("http://127.0.0.1:8080", model=EIGHT_B),
    probe=ProbeFacts(4, 4000, 0.01, prefill_tokens_per_s=1000.0, decode_step_s=0.028),
    node=NODE,
)
"""Weights of 4.9 GB at the speed of a slice with an eighth of the memory, 194 GB/s: about as fast as it can be."""


def named(name: str) -> LogStory:
    return LogStory("log", LogFacts(devices=(name,)))


def test_a_slice_is_not_accused_of_being_slower_than_the_whole_gpu():
    assert isinstance(ask(decode.RULES, "SLT012", replace(SEVENTH, pod=WHOLE)), Finding)
    said = ask(decode.RULES, "SLT012", replace(SEVENTH, pod=SLICED))
    assert isinstance(said, Undecided)
    found = roofline_of(replace(SEVENTH, pod=SLICED))
    assert isinstance(found, Roofline)
    assert f"there are no figures for {SLICE} of {A100}" in "; ".join(found.sentences)


@pytest.mark.parametrize("part", [SLICE, "amd.com/cpx_nps4", "nvidia.com/gpucores"])
def test_what_a_pod_asks_for_counts_whoever_names_the_whole(part: str):
    pod = replace(SLICED, gpu_parts=(part,))
    for told in (
        {"node": NODE},
        {"device": DeviceFacts("NVIDIA A100-SXM4-40GB", samples=1)},
        {"log": named("AMD Instinct MI300X")},
        {"gpu": GPUFacts("NVIDIA L4")},
    ):
        found = devices_of(replace(Symptoms("chat", pod=pod), **told))  # type: ignore[arg-type]  # fields by name
        assert found.gpu is None or found.gpu.bandwidth_bytes_per_s is None
        assert found.unknown is not None
        assert found.unknown.startswith(part)
    assert devices_of(Symptoms("chat", pod=pod)).unknown == part


def test_what_was_declared_of_a_part_counts():
    declared = GPUFacts("slice", bandwidth_bytes_per_s=194e9)
    found = devices_of(Symptoms("chat", pod=SLICED, node=NODE, gpu=declared))
    assert found.gpu == declared
    assert found.declared


@pytest.mark.parametrize(
    ("label", "device", "logged"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
    ],
    ids=["the node's label says so", "the server's log says so"],
)
def test_one_word_of_a_part_outweighs_all_that_name_the_whole(label: str, device: str, logged: str | None):
    symptoms = Symptoms(
        "chat",
        pod=WHOLE,
        node=replace(NODE, labels={"nvidia.com/gpu.product": label}),
        device=DeviceFacts(device, samples=1),
        log=None if logged is None else named(logged),
    )
    assert accelerator_of(symptoms) is None
    assert "MIG" in (devices_of(symptoms).unknown or "")


def test_a_gpu_in_turns_with_others_keeps_its_bound():
    shared = replace(NODE, labels={"nvidia.com/gpu.product": "Tesla-T4-SHARED"})
    found = accelerator_of(Symptoms("chat", pod=WHOLE, node=shared))
    assert found is not None
    assert found.bandwidth_bytes_per_s == 320e9


RTX_3060 = "NVIDIA GeForce RTX 3060"
EIGHT, TWELVE = 8191 * 2**20, 12037 * 2**20


def sized(size: int) -> LogStory:
    return LogStory("log", LogFacts(devices=(RTX_3060,), device_sizes={RTX_3060: (size,)}))


def smi(*mib: int) -> dict[str, object]:
    rows = (f"{index}, {RTX_3060}, 40, 900 MiB, {size} MiB\n" for index, size in enumerate(mib))
    return {"device": parse_nvidia_smi("index, name, temperature.gpu, memory.used, memory.total\n" + "".join(rows))}


@pytest.mark.parametrize(
    ("told", "width", "slower"),
    [
        ({"log": sized(EIGHT)}, 240e9, 1.0),
        ({"log": sized(TWELVE)}, 360e9, 1.0),
        ({"log": LogStory("log", LogFacts(devices=(RTX_3060,), device_free={RTX_3060: 11909 * 2**20}))}, 360e9, 1.0),
        ({"log": named(RTX_3060)}, 360e9, 1.5),
        (smi(8192), 240e9, 1.0),
        (smi(8192, 12288), 360e9, 1.5),
        ({**smi(12288), "log": named(RTX_3060)}, 360e9, 1.0),
        ({"gpu": GPUFacts("RTX 3060"), "log": sized(EIGHT)}, 240e9, 1.0),
        ({"gpu": GPUFacts("RTX 3060")}, 360e9, 1.5),
        ({"gpu": GPUFacts("RTX 3060", bandwidth_bytes_per_s=300e9)}, 300e9, 1.0),
        (
            {"node": NodeFacts("n", labels={"nvidia.com/gpu.product": RTX_3060, "nvidia.com/gpu.memory": "8192"})},
            240e9,
            1.0,
        ),
    ],
)
def test_the_memory_that_anybody_saw_tells_which_of_a_name_it_is(told: dict, width: float, slower: float):
    found = devices_of(Symptoms("chat", **told))
    assert found.gpu is not None
    assert found.gpu.bandwidth_bytes_per_s == pytest.approx(width)
    assert found.slower_reading == pytest.approx(slower)
    assert (found.doubt is None) is (slower == 1)


def test_of_unequal_devices_the_slowest_is_what_has_to_be_reached():
    both = LogStory("log", LogFacts(devices=("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060 Ti")))
    found = devices_of(Symptoms("chat", log=both))
    assert found.gpu is not None
    assert found.gpu.name == "NVIDIA GeForce RTX 4090"
    assert found.slower_reading == pytest.approx(1008 / 448)
    table = "index, name, temperature.gpu\n0, NVIDIA GeForce RTX 3060 Ti, 40\n1, NVIDIA GeForce RTX 4090, 40\n"
    looked_at = devices_of(Symptoms("chat", device=parse_nvidia_smi(table)))
    assert looked_at.gpu is not None
    assert looked_at.gpu.bandwidth_bytes_per_s == 1008e9, "whichever comes first"


@pytest.mark.parametrize("name", ["GPU 00000000:01:00.0", "GPU 0", "NVIDIA GeForce ...", "NVIDIA GeForce RTX 3080 ..."])
def test_a_device_that_nvidia_smi_does_not_name_whole_is_named_by_others(name: str):
    cut = DeviceFacts(name, samples=1)
    found = devices_of(Symptoms("chat", device=cut, log=named("NVIDIA GeForce RTX 4090")))
    assert found.gpu is not None
    assert found.gpu.bandwidth_bytes_per_s == 1008e9
    assert devices_of(Symptoms("chat", device=cut)).unknown is None


def test_a_device_that_was_found_and_holds_nothing_is_not_asked_for_its_figures():
    """A processor's own GPU beside the card that the model lies on."""
    found = ("AMD Radeon RX 7900 XT (RADV NAVI31)", "AMD Radeon Graphics (RADV RAPHAEL_MENDOCINO)")
    assert devices_of(Symptoms("chat", log=LogStory("log", LogFacts(devices=found)))).unknown == found[1]
    used = devices_of(Symptoms("chat", log=LogStory("log", LogFacts(devices=found, devices_used=found[:1]))))
    assert used.gpu is not None
    assert used.gpu.bandwidth_bytes_per_s == 800e9
