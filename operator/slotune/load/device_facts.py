"""What the accelerator did while requests were measured, and whether that spoils the numbers.

A GPU that protects itself (heat, its power supply) runs at half its clocks or less, and for as long as its surroundings
want: a block that was measured then says nothing about the candidate, so it is Invalid. A GPU at its power limit is
another thing: NVIDIA calls that state the optimum within the limit, many cards are in it whenever they work, and
production will be too; it is kept in the record and faults nobody.

Sources: NVML API reference, NvmlClocksEventReasons (the values and what each means; HwSlowdown "may be also reported
during PState or clock change").
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["CLOCK_REASONS", "SLICED", "DeviceFacts", "Reading", "Spread", "device_fault", "device_warning", "facts_of"]

CLOCK_REASONS: Final = MappingProxyType(
    {
        0x001: "GpuIdle",
        0x002: "ApplicationsClocksSetting",
        0x004: "SwPowerCap",
        0x008: "HwSlowdown",
        0x010: "SyncBoost",
        0x020: "SwThermalSlowdown",
        0x040: "HwThermalSlowdown",
        0x080: "HwPowerBrakeSlowdown",
        0x100: "DisplayClockSetting",
    }
)
"""Bit to name, as NVML has them."""

SLICED: Final = " (MIG)"
"""Behind the name of a device in MIG mode: whatever computes on it does so on a slice."""

_HEAT: Final = "cool it (fans, airflow, its neighbours), or lower its power limit until it stays cool (nvidia-smi -pl)"
_POWER: Final = "check its power supply and cables, or lower its power limit (nvidia-smi -pl)"
_CURES: Final = MappingProxyType(
    {
        "HwThermalSlowdown": _HEAT,
        "SwThermalSlowdown": _HEAT,
        "HwPowerBrakeSlowdown": _POWER,
        "HwSlowdown": "see what holds it back (nvidia-smi -q -d PERFORMANCE); a lower power limit often helps",
    }
)
"""What slows a device for its own protection, the most telling first, and what helps."""
_OFTEN: Final = 2
"""Moments in which HwSlowdown must be seen where nothing says why: in a single one it may be a clock change."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One device at one moment; None is what its driver does not say."""

    name: str
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_reasons: int = 0
    """Bits of :data:`CLOCK_REASONS`."""
    others: int | None = None
    """Processes on it beside the server; None when the server cannot be told from them."""
    others_memory_bytes: int = 0
    uuid: str = ""
    """Empty where the driver does not say."""
    of_server: bool = True
    """Whether the server computes on it. False where nobody can tell: then it may be a neighbour's."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far one quantity moved."""

    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the devices of one server did over a time, by a look a second."""

    name: str
    """Of the device, with their number where there are several: ``2 x NVIDIA L4``."""
    samples: int
    """Looks."""
    sm_clock_mhz: Spread | None = None
    memory_clock_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    clock_reasons: tuple[tuple[str, int], ...] = ()
    """(what set the clocks, looks at which it did), by NVML's names."""
    others: int | None = None
    """Most processes on them beside the server; None when they could not be told apart."""
    others_memory_bytes: int = 0
    """Most memory that these held."""
    uuids: tuple[str, ...] = ()
    """Of the devices, sorted, as far as they are known."""
    of_server: bool = True
    """Whether the server computes on all of them. Where nobody can tell, they are on record and fault nobody."""


def facts_of(looks: Sequence[Sequence[Reading]]) -> DeviceFacts | None:
    """What ``looks`` (each with a reading per device) add up to; None without any."""
    looks = [look for look in looks if look]
    if not looks:
        return None
    readings = [reading for look in looks for reading in look]
    names = [reading.name for reading in max(looks, key=len)]
    others = [reading.others for reading in readings if reading.others is not None]
    reasons = [
        (name, sum(any(reading.clock_reasons & bit for reading in look) for look in looks))
        for bit, name in CLOCK_REASONS.items()
    ]
    return DeviceFacts(
        name=names[0] if len(names) == 1 else f"{len(names)} x {' and '.join(dict.fromkeys(names))}",
        samples=len(looks),
        sm_clock_mhz=_spread(reading.sm_clock_mhz for reading in readings),
        memory_clock_mhz=_spread(reading.memory_clock_mhz for reading in readings),
        power_w=_spread(reading.power_w for reading in readings),
        temperature_c=_spread(reading.temperature_c for reading in readings),
        clock_reasons=tuple((name, count) for name, count in reasons if count),
        others=max(others, default=None),
        others_memory_bytes=max(reading.others_memory_bytes for reading in readings),
        uuids=tuple(sorted({reading.uuid for reading in readings} - {""})),
        of_server=all(reading.of_server for reading in readings),
    )


def device_fault(facts: DeviceFacts | None) -> tuple[str, str] | None:
    """(code, sentence with the cure) of a device that was slowed for its own protection; None for one that was not.

    None as well for devices of which nobody knows that the server computes on them: a hot neighbour is nobody's fault.
    """
    if facts is None or not facts.of_server:
        return None
    seen = dict(facts.clock_reasons)
    for reason, cure in _CURES.items():
        count = seen.get(reason, 0)
        if count >= (_OFTEN if reason == "HwSlowdown" else 1):
            return "DeviceThrottled", (
                f"device throttled: {facts.name} was slowed by {reason} at {count} of {facts.samples} looks"
                f"{_state(facts)}: {cure}"
            )
    return None


def device_warning(facts: DeviceFacts | None) -> str | None:
    """One sentence when somebody else used the device meanwhile."""
    if facts is None or not facts.others:
        return None
    who = "another process" if facts.others == 1 else f"{facts.others} other processes"
    held = f" and held {facts.others_memory_bytes / 2**20:,.0f} MiB of its memory" if facts.others_memory_bytes else ""
    return f"{who} used {facts.name} meanwhile{held}, so numbers may be its doing: measure where nobody else computes"


def _state(facts: DeviceFacts) -> str:
    parts = []
    if facts.temperature_c is not None:
        parts.append(f"up to {facts.temperature_c.most:.0f} °C")
    if facts.sm_clock_mhz is not None:
        parts.append(f"SM clock down to {facts.sm_clock_mhz.least:.0f} MHz")
    return f" ({', '.join(parts)})" if parts else ""


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(min(known), statistics.median(known), max(known)) if known else None
