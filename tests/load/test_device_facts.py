"""A device that protects itself spoils a block; one at its power limit, or idle, does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load.device_facts import (
    CLOCK_REASONS,
    DeviceFacts,
    Reading,
    Spread,
    device_fault,
    device_warning,
    facts_of,
)

IDLE, APPLICATION, POWER_CAP, HW, SYNC, SW_HEAT, HW_HEAT, BRAKE, DISPLAY = CLOCK_REASONS


def reading(reasons: int = 0, **more: object) -> Reading:
    stated: dict[str, object] = {
        "name": "NVIDIA L4",
        "sm_clock_mhz": 2040.0,
        "memory_clock_mhz": 6251.0,
        "power_w": 71.5,
        "temperature_c": 62.0,
    }
    return Reading(**(stated | more), clock_reasons=reasons)  # type: ignore[arg-type]  # a test's shorthand


def facts(*reasons: int) -> DeviceFacts:
    made = facts_of([[reading(bits)] for bits in reasons])
    assert made is not None
    return made


def test_looks_add_up_to_least_median_and_most_of_each_quantity() -> None:
    made = facts_of([[reading(sm_clock_mhz=clock, power_w=None)] for clock in (600.0, 2040.0, 1800.0)])
    assert made is not None
    assert made.name == "NVIDIA L4"
    assert made.samples == 3
    assert made.sm_clock_mhz == Spread(600.0, 1800.0, 2040.0)
    assert made.temperature_c == Spread(62.0, 62.0, 62.0)
    assert made.power_w is None


def test_without_a_look_there_is_nothing_to_say() -> None:
    assert facts_of([]) is None
    assert facts_of([(), ()]) is None
    assert device_fault(None) is None
    assert device_warning(None) is None


def test_several_devices_are_one_server_and_each_look_counts_a_reason_once() -> None:
    made = facts_of([[reading(HW_HEAT), reading(HW_HEAT)], [reading(), reading(POWER_CAP)]])
    assert made is not None
    assert made.name == "2 x NVIDIA L4"
    assert made.clock_reasons == (("SwPowerCap", 1), ("HwThermalSlowdown", 1))


@pytest.mark.parametrize("bits", [IDLE, APPLICATION, POWER_CAP, SYNC, DISPLAY, IDLE | POWER_CAP, 0, 0x4000])
def test_what_does_not_protect_the_device_faults_no_run(bits: int) -> None:
    assert device_fault(facts(bits, bits, bits)) is None


@pytest.mark.parametrize(
    ("bits", "reason", "cure"),
    [
        (HW_HEAT | HW, "HwThermalSlowdown", "cool it"),
        (SW_HEAT | POWER_CAP, "SwThermalSlowdown", "cool it"),
        (BRAKE | HW, "HwPowerBrakeSlowdown", "power supply"),
    ],
)
def test_a_device_that_protects_itself_even_once_spoils_the_run_and_says_the_cure(
    bits: int, reason: str, cure: str
) -> None:
    fault = device_fault(facts(0, bits, 0, 0))
    assert fault is not None
    code, sentence = fault
    assert code == "DeviceThrottled"
    assert sentence.startswith(
        f"device throttled: NVIDIA L4 was slowed by {reason} at 1 of 4 looks (up to 62 °C, SM clock"
    )
    assert cure in sentence


def test_a_hardware_slowdown_that_nothing_explains_must_be_seen_twice_as_one_may_be_a_change_of_clocks() -> None:
    assert device_fault(facts(0, HW, 0)) is None
    assert device_fault(facts(0, HW, HW)) is not None


def test_another_process_on_the_device_is_a_warning_with_its_memory() -> None:
    made = facts_of([[reading(others=0)], [reading(others=1, others_memory_bytes=3 * 2**30)], [reading(others=None)]])
    warning = device_warning(made)
    assert warning is not None
    assert warning.startswith("another process used NVIDIA L4 meanwhile and held 3,072 MiB of its memory")
    assert device_fault(made) is None


def test_processes_that_cannot_be_told_apart_are_no_warning() -> None:
    made = facts_of([[reading(others=None)]])
    assert made is not None
    assert made.others is None
    assert device_warning(made) is None


@given(st.lists(st.integers(0, 0x1FF), min_size=1, max_size=30), st.randoms())
def test_neither_order_nor_more_looks_ever_excuse_a_slowed_device(bits: list[int], chance) -> None:
    shuffled = list(bits)
    chance.shuffle(shuffled)
    assert (device_fault(facts(*bits)) is None) == (device_fault(facts(*shuffled)) is None)
    if device_fault(facts(*bits)) is not None:
        assert device_fault(facts(*bits, 0, 0, 0)) is not None
