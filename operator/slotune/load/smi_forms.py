"""The two forms that ``nvidia-smi`` prints for people, each read into looks: a device per block or row.

``-q`` is an outline by indentation with a block per device. The table has two or three lines per device and the
processes below. What was asked for by columns is in :mod:`slotune.load.smi_csv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from slotune.load.device_facts import SLICED, Reading
from slotune.load.smi_values import LOST, broken, celsius, memory, mib, number

__all__ = ["SmiDevice", "SmiProcess", "active_reasons", "full_looks", "table_looks"]

MIB: Final = 2**20
LEAST_DESKTOP_BYTES: Final = 256 * MIB
"""A program of a desktop (``C+G``) that holds less than a CUDA context takes computes nothing worth counting."""

_REASONS: Final = MappingProxyType(
    {
        "idle": "GpuIdle",
        "applications clocks setting": "ApplicationsClocksSetting",
        "sw power cap": "SwPowerCap",
        "hw slowdown": "HwSlowdown",
        "sync boost": "SyncBoost",
        "sw thermal slowdown": "SwThermalSlowdown",
        "hw thermal slowdown": "HwThermalSlowdown",
        "hw power brake slowdown": "HwPowerBrakeSlowdown",
        "display clock setting": "DisplayClockSetting",
    }
)
"""As ``-q`` writes them, to NVML's names."""


@dataclass(frozen=True, slots=True)
class SmiProcess:
    """One process on a device."""

    kind: str
    """``C``, ``G``, ``C+G`` or ``M+C``."""
    name: str
    held_bytes: int | None
    instance: str = "N/A"
    """GPU instance of MIG: processes of different ones share no multiprocessors."""

    @property
    def computes(self) -> bool:
        """Whether it takes time of the multiprocessors, and not only of the screen."""
        return self.kind in ("C", "M+C") or (self.kind == "C+G" and (self.held_bytes or 0) >= LEAST_DESKTOP_BYTES)


@dataclass(frozen=True, slots=True)
class SmiDevice:
    """One device at one look."""

    reading: Reading
    used_bytes: int | None = None
    total_bytes: int | None = None
    reasons: frozenset[str] | None = None
    """NVML's names; None: not said."""
    processes: tuple[SmiProcess, ...] = ()
    key: str = ""
    """What tells it from the others."""
    label: str = ""
    """What people tell it from the others by: its index, else its address on the bus, else its UUID."""
    broken: str | None = None
    """What is said instead of its values: ``GPU is lost``, ``ERR!``."""
    is_cut: bool = False
    """Whether the report ends within it."""


# nvidia-smi -q: an outline by indentation, a block per device.

_DEVICE_HEAD: Final = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)\s*$")
_KEY: Final = re.compile(r"^( *)([^:]+?) *(?:: ?(.*))?$")


def full_looks(text: str) -> list[list[SmiDevice]]:
    """Of ``nvidia-smi -q``; a look may be empty."""
    looks: list[list[SmiDevice]] = [[]]
    block: list[tuple[tuple[str, ...], str]] | None = None
    above: list[tuple[int, str]] = []
    key = ""

    def close() -> None:
        if block:
            looks[-1].append(_full_device(block, key))

    for line in text.splitlines():
        if "NVSMI LOG" in line:
            close()
            block = None
            looks.append([])
        elif head := _DEVICE_HEAD.match(line):
            close()
            block, above, key = [], [], head[1]
        elif block is not None and (match := _KEY.match(line.rstrip())):
            indent = len(match[1])
            above = [one for one in above if one[0] < indent]
            above.append((indent, match[2]))
            if match[3] is not None:
                block.append((tuple(name for _, name in above), match[3].strip()))
    close()
    attached = re.findall(r"^Attached GPUs\s*:\s*(\d+)", text, re.MULTILINE)
    if looks[-1] and attached and len(looks[-1]) < int(attached[-1]):
        looks[-1][-1] = replace(looks[-1][-1], is_cut=True)
    return looks


def _full_device(block: Sequence[tuple[tuple[str, ...], str]], key: str) -> SmiDevice:
    said: dict[tuple[str, str], str] = {}
    for path, value in block:
        said.setdefault((path[0], path[-1]), value)
    reasons = {
        leaf.lower(): value
        for (section, leaf), value in said.items()
        if section in ("Clocks Event Reasons", "Clocks Throttle Reasons")
    }
    powers = [
        number(said.get((section, leaf)))
        for section in ("GPU Power Readings", "Power Readings")
        for leaf in ("Power Draw", "Average Power Draw", "Instantaneous Power Draw")
    ]
    name = said.get(("Product Name", "Product Name"), f"GPU {key}")
    used, total = (said.get(("FB Memory Usage", leaf)) for leaf in ("Used", "Total"))
    heat, clock = said.get(("Temperature", "GPU Current Temp")), said.get(("Clocks", "SM"))
    drawn = next(
        (value for (section, leaf), value in said.items() if section.endswith("Power Readings") and "Draw" in leaf),
        None,
    )
    used_bytes, total_bytes = memory(used, total)
    return SmiDevice(
        Reading(
            name + SLICED if said.get(("MIG Mode", "Current")) == "Enabled" else name,
            sm_clock_mhz=number(clock),
            memory_clock_mhz=number(said.get(("Clocks", "Memory"))),
            power_w=next((power for power in powers if power is not None), None),
            temperature_c=celsius(heat),
        ),
        used_bytes=used_bytes,
        total_bytes=total_bytes,
        reasons=active_reasons(reasons),
        processes=tuple(_full_processes(block)),
        key=key,
        label=key,
        broken=broken(said.values(), (heat, clock, drawn, used)),
        # A whole block ends with its processes; one of chosen sections (-d) has no name.
        is_cut=("Product Name", "Product Name") in said and all(path[0] != "Processes" for path, _ in block),
    )


def active_reasons(said: Mapping[str, str]) -> frozenset[str] | None:
    """Names of the reasons that are active; None when no reason is said to be or not to be."""
    known = {name: value for name, value in said.items() if value in ("Active", "Not Active") and name in _REASONS}
    return frozenset(_REASONS[name] for name, value in known.items() if value == "Active") if known else None


def _full_processes(block: Sequence[tuple[tuple[str, ...], str]]) -> Iterable[SmiProcess]:
    instance, entry = "N/A", dict[str, str]()
    for path, value in [*block, (("Processes", "Process ID"), "")]:
        if path[0] != "Processes":
            continue
        is_instance = path[-1].lower() == "gpu instance id"  # stands before its process, and behind the one before
        if not is_instance and path[-1] != "Process ID":
            entry[path[-1]] = value
            continue
        if "Type" in entry:
            yield SmiProcess(entry["Type"], entry.get("Name", ""), mib(entry.get("Used GPU Memory")), instance)
        instance, entry = value if is_instance else instance, {}


# nvidia-smi: two or three lines per device, then the processes.

_ROW: Final = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*\|\s*"
    r"[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f]\s"
)
_STATE: Final = re.compile(
    r"^\|\s*\S+\s+(?P<temperature>\S+)\s+(?P<perf>\S+)\s+(?P<power>\S+)\s+/\s+\S+\s*\|"
    r"\s*(?:(?P<used>\S+)\s+/\s+(?P<total>\S+)|Not Supported)\s*\|"
)
"""A device whose memory is the host's has no size of its own."""
_MIG: Final = re.compile(r"^\|\s*\|\s*\|\s*Enabled\*?\s*\|\s*$")
"""The third line of a device in MIG mode."""
_PROCESS: Final = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?:(?P<gi>N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<kind>C\+G|M\+C|C|G)\s+"
    r"(?P<name>.*?)\s+(?P<held>\d+MiB|\[?N/A\]?)\s*\|\s*$"
)


def table_looks(text: str) -> list[list[SmiDevice]]:
    """Of ``nvidia-smi``; a look may be empty."""
    looks: list[list[SmiDevice]] = [[]]
    awaited = False  # the line behind the one with a device's name
    for line in text.splitlines():
        look = looks[-1]
        if re.match(r"^\|\s+NVIDIA-SMI\s", line):
            looks.append([])
            awaited = False
        elif row := _ROW.match(line):
            look.append(SmiDevice(Reading(row["name"]), key=row["index"], label=row["index"], is_cut=True))
            awaited = True
        elif awaited and (state := _STATE.match(line)):
            awaited = False
            reading = replace(
                look[-1].reading, temperature_c=celsius(state["temperature"]), power_w=number(state["power"])
            )
            used, total = memory(state["used"], state["total"])
            fault = broken((), (state["temperature"], state["perf"], state["used"])) or look[-1].broken
            look[-1] = replace(
                look[-1], reading=reading, used_bytes=used, total_bytes=total, broken=fault, is_cut=False
            )
        elif look and not look[-1].processes and (lost := LOST.search(line)):
            look[-1] = replace(look[-1], broken=lost[0])
        elif _MIG.match(line) and look and not look[-1].reading.name.endswith(SLICED):
            named = replace(look[-1].reading, name=look[-1].reading.name + SLICED)
            look[-1] = replace(look[-1], reading=named)
        elif found := _PROCESS.match(line):
            process = SmiProcess(found["kind"], found["name"], mib(found["held"]), found["gi"] or "N/A")
            for place, device in enumerate(look):
                if device.key == found["index"]:
                    look[place] = replace(device, processes=(*device.processes, process))
    return looks
