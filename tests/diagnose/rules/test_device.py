"""A GPU that protects itself is a fault, one at its power limit is at work, and a neighbour matters when it costs."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.device import RULES
from slotune.diagnose.symptoms import GPUFacts
from slotune.llama.log_story import Topic
from slotune.llama.server_answers import ModelMeta
from slotune.load.device_facts import DeviceFacts, Spread
from slotune.load.nvidia_smi import DeviceSnapshot, parse_nvidia_smi
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, pod, probe, server

MIB = 2**20


def watched(*reasons: tuple[str, int], **more: Any) -> DeviceFacts:
    return DeviceFacts("NVIDIA L4", 60, Spread(855, 1980, 2040), clock_reasons=reasons, **more)


def read(**more: Any) -> DeviceSnapshot:
    return DeviceSnapshot("NVIDIA L4", 1, **more)


# SLT085


@pytest.mark.parametrize("reason", ["HwThermalSlowdown", "SwThermalSlowdown", "HwPowerBrakeSlowdown"])
def test_a_gpu_that_is_slowed_down_is_found_with_its_cure(reason: str) -> None:
    got = found(RULES, "SLT085", of(device=watched((reason, 12), temperature_c=Spread(60, 70, 91))))
    assert reason in got.sentence
    assert "91 °C" in got.sentence
    assert got.first is not None
    assert got.first.endswith(".")
    assert got.evidence == (Evidence(Source.DEVICE, f"{reason} at 12 of 60 looks"),)


def test_a_gpu_at_its_power_limit_is_at_work() -> None:
    assert is_clear(RULES, "SLT085", of(device=watched(("SwPowerCap", 60))))
    assert is_clear(RULES, "SLT085", of(device=read(knows_clock_reasons=True)))


def test_one_look_at_a_hardware_slowdown_may_be_a_change_of_clocks() -> None:
    once = read(knows_clock_reasons=True, clock_reasons=(("HwSlowdown", 1),))
    assert found(RULES, "SLT085", of(device=once), Severity.INFO).confidence is Confidence.POSSIBLE


def test_a_table_without_clocks_proves_nothing() -> None:
    assert is_undecided(RULES, "SLT085", of(device=read()))
    assert is_undecided(RULES, "SLT085", NOTHING)
    assert is_undecided(RULES, "SLT085", of(pod=pod(gpus=1)))


def test_without_a_gpu_there_is_none_to_throttle() -> None:
    cpu = of(log=log(facts={"model_buffers": {"CPU_Mapped": 92 * MIB}}))
    assert is_clear(RULES, "SLT085", cpu)
    assert is_clear(RULES, "SLT086", cpu)
    assert is_clear(RULES, "SLT086", of(pod=pod()))


# SLT086


def test_a_neighbour_that_costs_nothing_visible_is_worth_knowing() -> None:
    got = found(RULES, "SLT086", of(device=watched(others=1, others_memory_bytes=1310 * MIB)), Severity.INFO)
    assert got.sentence == "another process computes on NVIDIA L4 and holds 1,310 MiB"
    assert got.confidence is Confidence.POSSIBLE


def test_a_neighbour_whose_memory_is_missing_for_layers_costs() -> None:
    facts = {"model_buffers": {"CUDA0": 4400 * MIB}, "layers": 33, "layers_offloaded": 20}
    crowd = watched(others=2, others_memory_bytes=9000 * MIB)
    got = found(RULES, "SLT086", of(device=crowd, log=log(facts=facts)))
    assert "2 other processes compute on NVIDIA L4 and hold 9,000 MiB" in got.sentence
    assert got.confidence is Confidence.LIKELY
    found(RULES, "SLT086", of(device=crowd, log=log({Topic.OUT_OF_MEMORY: 1})))


def test_a_neighbour_beside_a_slow_token_costs() -> None:
    slow = of(
        device=watched(others=1),
        log=log(facts={"experts": 0}),
        probe=probe(decode_step_s=0.2),
        server=server(model=ModelMeta("m", size_bytes=5 * 10**9)),
        gpu=GPUFacts("NVIDIA L4", bandwidth_bytes_per_s=300e9),
    )
    assert "longer than the GPU needs" in found(RULES, "SLT086", slow).sentence


def test_a_gpu_of_ones_own_is_clear_and_an_unknown_crowd_undecided() -> None:
    assert is_clear(RULES, "SLT086", of(device=watched(others=0)))
    assert is_undecided(RULES, "SLT086", of(device=watched(others=None)))
    assert is_undecided(RULES, "SLT086", NOTHING)


def test_of_several_gpus_the_slowed_one_is_named() -> None:
    reasons = (("HwThermalSlowdown", 3),)
    one = DeviceFacts("GPU 1 of 2 x NVIDIA L4", 3, temperature_c=Spread(91, 91, 91), clock_reasons=reasons)
    both = DeviceSnapshot("2 x NVIDIA L4", 3, clock_reasons=reasons, knows_clock_reasons=True, slowed=one)
    got = found(RULES, "SLT085", of(device=both))
    assert got.sentence == "the device GPU 1 of 2 x NVIDIA L4 is slowed by HwThermalSlowdown at up to 91 °C"


# SLT087


def test_a_gpu_that_does_not_answer_is_found_with_what_to_do() -> None:
    device = read(knows_clock_reasons=True, broken=(("NVIDIA L4", "ERR!"),), lines=("NVIDIA L4: does not answer",))
    said = found(RULES, "SLT087", of(device=device), Severity.CRITICAL)
    assert said.sentence == "a GPU does not answer the driver: 'ERR!' stands for the values of NVIDIA L4"
    assert said.evidence[0].text == "NVIDIA L4: ERR!"
    assert is_clear(RULES, "SLT085", of(device=device)), "it is told once"


def test_of_several_gpus_with_a_server_on_them_a_lost_one_may_be_anothers() -> None:
    lines = ("GPU 0, NVIDIA L4: 900 MiB used", "GPU 1, NVIDIA L4: does not answer its driver (GPU is lost)")
    device = read(broken=(("GPU 1, NVIDIA L4", "GPU is lost"),), lines=lines, shows_server=True)
    assert found(RULES, "SLT087", of(device=device)).confidence is Confidence.POSSIBLE


@pytest.mark.parametrize(
    ("text", "says", "cure"),
    [
        ("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.", "fallen off the bus (Xid 79)", "Reboot"),
        ("NVRM: Xid (PCI:0000:65:00): 48, DBE (double bit error)", "can't be corrected (Xid 48)", "Drain it"),
        ("NVRM: Xid (PCI:0000:65:00): 119, Timeout after 6s of waiting for RPC", "not answer (Xid 119)", "Drain it"),
    ],
    ids=["off the bus", "memory", "firmware"],
)
def test_what_the_kernel_says_of_a_failed_card_is_found_with_its_cure(text: str, says: str, cure: str) -> None:
    said = found(RULES, "SLT087", of(device=parse_nvidia_smi(f"[17.2] {text}\n")), Severity.CRITICAL)
    assert says in said.sentence
    assert said.first is not None
    assert said.first.startswith(cure)
    assert said.evidence[0].text == text


def test_a_card_that_failed_may_be_well_again_or_another_where_a_server_is_seen_on_gpus_that_answer() -> None:
    xids = parse_nvidia_smi("NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.\n").xids
    said = found(RULES, "SLT087", of(device=read(xids=xids, shows_server=True)))
    assert said.confidence is Confidence.POSSIBLE
    assert "reset since, or is another GPU" in said.sentence
    assert found(RULES, "SLT087", of(device=read(xids=xids)), Severity.CRITICAL).confidence is Confidence.CERTAIN
    lost = read(xids=xids, shows_server=True, broken=(("NVIDIA L4", "ERR!"),))
    assert found(RULES, "SLT087", of(device=lost), Severity.CRITICAL).confidence is Confidence.CERTAIN


def test_a_program_that_the_driver_stopped_is_no_lost_card() -> None:
    device = parse_nvidia_smi("NVRM: Xid (PCI:0000:65:00): 31, pid=7, Ch 00000010, MMU Fault\n")
    assert "mostly a program's fault" in found(RULES, "SLT087", of(device=device), Severity.INFO).sentence


def test_a_gpu_that_answers_is_not_lost_and_unseen_ones_are_not_known() -> None:
    assert is_clear(RULES, "SLT087", of(device=read()))
    assert is_clear(RULES, "SLT087", of(device=watched()))
    assert is_clear(RULES, "SLT087", of(pod=pod()))
    assert is_undecided(RULES, "SLT087", NOTHING)
    assert is_undecided(RULES, "SLT087", of(pod=pod(gpus=1)))
