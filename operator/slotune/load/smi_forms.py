"""The three forms in which ``nvidia-smi`` prints, each read into looks: a device per row, block or line.

``-q`` is an outline by indentation with a block per device. The table has two or three lines per device and the
processes below. CSV has the columns that somebody asked for, in the order of their question.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from slotune.load.device_facts import CLOCK_REASONS, SLICED, Reading
from slotune.load.smi_values import LOST, broken, celsius, memory, mib, number

__all__ = ["SmiDevice", "SmiProcess", "csv_looks", "full_looks", "table_looks"]

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
_COLUMN_REASONS: Final = {"gpu_idle": "idle", "display_clocks_setting": "display clock setting"}
"""Columns whose names are not those of ``-q`` with underscores."""


@dataclass(frozen=True, slots=True)
class SmiProcess:
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
    return SmiDevice(
        Reading(
            name + SLICED if said.get(("MIG Mode", "Current")) == "Enabled" else name,
            sm_clock_mhz=number(clock),
            memory_clock_mhz=number(said.get(("Clocks", "Memory"))),
            power_w=next((power for power in powers if power is not None), None),
            temperature_c=celsius(heat),
        ),
        *memory(used, total),
        _active(reasons),
        tuple(_full_processes(block)),
        key,
        key,
        broken(said.values(), (heat, clock, drawn, used)),
        # A whole block ends with its processes; one of chosen sections (-d) has no name.
        ("Product Name", "Product Name") in said and all(path[0] != "Processes" for path, _ in block),
    )


def _active(said: Mapping[str, str]) -> frozenset[str] | None:
    """Names of the reasons that are active; None when no reason is said to be or not to be."""
    known = {name: value for name, value in said.items() if value in ("Active", "Not Active") and name in _REASONS}
    return frozenset(_REASONS[name] for name, value in known.items() if value == "Active") if known else None


def _full_processes(block: Sequence[tuple[tuple[str, ...], str]]) -> Iterable[SmiProcess]:
    instance, entry = "N/A", dict[str, str]()
    for path, value in [*block, (("Processes", "Process ID"), "")]:
        if path[0] != "Processes":
            continue
        if path[-1].lower() == "gpu instance id":
            # Stands before its process, and behind the one before.
            if "Type" in entry:
                yield SmiProcess(entry["Type"], entry.get("Name", ""), mib(entry.get("Used GPU Memory")), instance)
            instance, entry = value, {}
        elif path[-1] == "Process ID":
            if "Type" in entry:
                yield SmiProcess(entry["Type"], entry.get("Name", ""), mib(entry.get("Used GPU Memory")), instance)
            entry = {"Process ID": value}
        else:
            entry[path[-1]] = value


# nvidia-smi: two or three lines per device, then the processes.

_ROW: Final = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*\|\s*"
    r"[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f]\s"
)
_STATE: Final = re.compile(
    r"^\|\s*\S+\s+(?P<temperature>\S+)\s+(?P<perf>\S+)\s+(?P<power>\S+)\s+/\s+\S+\s*\|"
    r"\s*(?P<used>\S+)\s+/\s+(?P<total>\S+)\s*\|"
)
_MIG: Final = re.compile(r"^\|\s*\|\s*\|\s*Enabled\*?\s*\|\s*$")
"""The third line of a device in MIG mode."""
_PROCESS: Final = re.compile(
    r"^\|\s*(?P<index>\d+)\s+(?:(?P<gi>N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d+)\s+(?P<kind>C\+G|M\+C|C|G)\s+"
    r"(?P<name>.*?)\s+(?P<held>\d+MiB|\[?N/A\]?)\s*\|\s*$"
)


def table_looks(text: str) -> list[list[SmiDevice]]:
    """Of ``nvidia-smi``; a look may be empty."""
    looks: list[list[SmiDevice]] = [[]]
    for line in text.splitlines():
        look = looks[-1]
        if re.match(r"^\|\s+NVIDIA-SMI\s", line):
            looks.append([])
        elif row := _ROW.match(line):
            look.append(SmiDevice(Reading(row["name"]), key=row["index"], label=row["index"]))
        elif (state := _STATE.match(line)) and look and look[-1].total_bytes is None and not look[-1].processes:
            reading = replace(
                look[-1].reading, temperature_c=celsius(state["temperature"]), power_w=number(state["power"])
            )
            used, total = memory(state["used"], state["total"])
            fault = broken((), (state["temperature"], state["perf"], state["used"])) or look[-1].broken
            look[-1] = replace(look[-1], reading=reading, used_bytes=used, total_bytes=total, broken=fault)
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


# nvidia-smi --query-gpu=… --format=csv, and --query-compute-apps beside it.

_NAMES: Final = MappingProxyType({"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"})
_SM: Final = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr")
_MEMORY: Final = ("clocks.current.memory", "clocks.mem")
_POWER: Final = ("power.draw", "power.draw.average", "power.draw.instant")
_USED: Final = ("used_gpu_memory", "used_memory")
_TELLING: Final = frozenset(
    {"temperature.gpu", "memory.used", "utilization.gpu", "process_name", *_SM, *_MEMORY, *_POWER, *_USED}
)
"""Columns one of which every table worth reading has."""


def csv_looks(text: str) -> list[list[SmiDevice]]:
    """Of ``--query-gpu=… --format=csv``, with ``--query-compute-apps`` below it or not; a look may be empty."""
    looks: list[list[SmiDevice]] = [[]]
    columns: list[str] = []
    processes: list[tuple[str, SmiProcess]] = []
    for cells in _cells(text):
        header = [_column(cell) for cell in cells]
        if _is_header(header):
            columns = header
        elif columns and len(cells) >= len(columns):
            row = {name: cell.strip() for name, cell in zip(columns, cells, strict=False)}
            if "pid" in row:
                held = next((mib(row[name]) for name in _USED if name in row), None)
                processes.append((_key(row), SmiProcess("C", row.get("process_name", ""), held)))
                continue
            device = _csv_device(row)
            if any(one.key == device.key for one in looks[-1]):
                looks.append([])
            looks[-1].append(device)
    return [[_with_processes(device, look, processes) for device in look] for look in looks]


def _cells(text: str) -> list[list[str]]:
    try:
        return list(csv.reader(text.splitlines(), skipinitialspace=True, quoting=csv.QUOTE_NONE))
    except csv.Error:
        return []  # a line without end, or bytes that are no text


def _column(cell: str) -> str:
    name = cell.strip().partition(" [")[0].lower()
    return _NAMES.get(name, name)


def _is_header(header: Sequence[str]) -> bool:
    return any(name in _TELLING or name.startswith(("clocks_event_reasons", "clocks_throttle")) for name in header)


def _key(row: Mapping[str, str]) -> str:
    return next((row[name] for name in ("uuid", "pci.bus_id", "index", "name") if name in row), "")


def _csv_device(row: Mapping[str, str]) -> SmiDevice:
    def first(names: Iterable[str]) -> float | None:
        return next((value for name in names if (value := number(row.get(name))) is not None), None)

    name = row.get("name") or f"GPU {_key(row)}".strip()
    reading = Reading(
        name + SLICED if row.get("mig.mode.current") == "Enabled" else name,
        sm_clock_mhz=first(_SM),
        memory_clock_mhz=first(_MEMORY),
        power_w=first(_POWER),
        temperature_c=celsius(row.get("temperature.gpu")),
    )
    core = [row.get(column) for column in ("temperature.gpu", "memory.used", *_SM, *_POWER, "utilization.gpu")]
    return SmiDevice(
        reading,
        *memory(row.get("memory.used"), row.get("memory.total")),
        _csv_reasons(row),
        key=_key(row),
        label=next((row[column] for column in ("index", "pci.bus_id", "uuid") if column in row), ""),
        broken=broken(row.values(), core),
    )


def _csv_reasons(row: Mapping[str, str]) -> frozenset[str] | None:
    named: dict[str, str] = {}
    for column, value in row.items():
        section, _, leaf = column.partition(".")
        if section not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            continue
        if leaf == "active" and re.fullmatch(r"0x[0-9A-Fa-f]+", value):
            return frozenset(name for bit, name in CLOCK_REASONS.items() if int(value, 16) & bit)
        named[_COLUMN_REASONS.get(leaf, leaf.replace("_", " "))] = value
    return _active(named)


def _with_processes(
    device: SmiDevice, look: Sequence[SmiDevice], processes: Sequence[tuple[str, SmiProcess]]
) -> SmiDevice:
    """A list of processes without a device is that of the only one there is."""
    own = tuple(one for key, one in processes if key == device.key or len(look) == 1)
    return replace(device, processes=own)
