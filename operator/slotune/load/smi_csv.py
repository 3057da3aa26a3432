"""Columns of ``nvidia-smi``: ``--query-gpu=… --format=csv``, and ``--query-compute-apps`` beside it.

The header says which column is which; nothing else does. A spreadsheet that kept the file may have put its own
separator between columns, and its own decimal comma into numbers.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from slotune.load.device_facts import CLOCK_REASONS, SLICED, Reading
from slotune.load.smi_forms import SmiDevice, SmiProcess, active_reasons
from slotune.load.smi_values import broken, celsius, memory, mib, number

__all__ = ["csv_looks", "names_columns"]

BEFORE_HEADER: Final = 1000
"""Lines that may stand before the first header: a file without any is no table of columns."""
_COLUMN_REASONS: Final = {"gpu_idle": "idle", "display_clocks_setting": "display clock setting"}
"""Columns whose names are not those of ``-q`` with underscores."""

_NAMES: Final = MappingProxyType({"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"})
_SM: Final = ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr")
_MEMORY: Final = ("clocks.current.memory", "clocks.mem")
_POWER: Final = ("power.draw", "power.draw.average", "power.draw.instant")
_USED: Final = ("used_gpu_memory", "used_memory")
_TELLING: Final = frozenset(
    {
        *("temperature.gpu", "memory.used", "memory.total", "utilization.gpu", "process_name"),
        *(*_SM, *_MEMORY, *_POWER, *_USED),
    }
)
"""Columns one of which every table worth reading has."""
_COLUMNS: Final = frozenset({*_TELLING, "index", "name", "uuid", "pci.bus_id", "timestamp", "pid"})
_WHOLE: Final = re.compile(r"-?\d+")
_DECIMALS: Final = re.compile(r"\d{1,6}(?: *W)?")


def csv_looks(text: str) -> list[list[SmiDevice]]:
    """Of ``--query-gpu=… --format=csv``, with ``--query-compute-apps`` below it or not; a look may be empty."""
    looks: list[list[SmiDevice]] = [[]]
    columns: list[str] = []
    processes: list[tuple[str, SmiProcess]] = []
    for before, cells in enumerate(_cells(text)):
        if not columns and before > BEFORE_HEADER:
            break
        header = [_column(cell) for cell in cells]
        if _is_header(header):
            columns = header
        elif columns and len(cells) >= len(columns):
            row = dict(zip(columns, _with_decimals(cells, columns), strict=False))
            if "pid" in row:
                held = next((mib(row[name]) for name in _USED if name in row), None)
                processes.append((_key(row), SmiProcess("C", row.get("process_name", ""), held)))
                continue
            device = _csv_device(row)
            if any(one.key == device.key for one in looks[-1]):
                looks.append([])
            looks[-1].append(device)
    return [[_with_processes(device, look, processes) for device in look] for look in looks]


def names_columns(text: str) -> tuple[str, ...]:
    """Columns that ``text`` begins with and that nvidia-smi has, whether they tell anything or not."""
    first = next(_cells(text), [])
    names = tuple(_column(cell) for cell in first)
    return names if sum(name in _COLUMNS for name in names) > len(names) / 2 else ()


def _cells(text: str) -> Iterator[list[str]]:
    """Rows, up to where it is plain that none is a header, or that this is no text."""
    lines = (line for line in io.StringIO(text) if line.strip())
    first = next(lines, "")
    mark = ";" if ";" in first and "," not in first else ","
    quote = '"' if first.lstrip().startswith('"') else None  # nvidia-smi itself writes none
    rows = csv.reader(itertools.chain([first], lines), delimiter=mark, skipinitialspace=True, quotechar=quote)
    with contextlib.suppress(csv.Error):  # a line without end, or bytes that are no text
        yield from rows


def _with_decimals(cells: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Cells without blanks; a power that a decimal comma took apart (``71,42 W``) in one piece again, where exactly
    that explains how many there are. Nothing else has decimals."""
    bare = [cell.strip() for cell in cells]
    rest, joined = iter(range(len(bare))), list[str]()
    for name, at in zip(columns, rest, strict=False):
        cell = bare[at]
        is_apart = len(bare) > len(columns) and "power" in name and _WHOLE.fullmatch(cell)
        if is_apart and at + 1 < len(bare) and _DECIMALS.fullmatch(bare[at + 1]):
            cell = f"{cell}.{bare[next(rest)]}"
        joined.append(cell)
    return joined if len(joined) == len(columns) and next(rest, None) is None else bare


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
    return active_reasons(named)


def _with_processes(
    device: SmiDevice, look: Sequence[SmiDevice], processes: Sequence[tuple[str, SmiProcess]]
) -> SmiDevice:
    """A list of processes without a device is that of the only one there is."""
    own = tuple(one for key, one in processes if key == device.key or len(look) == 1)
    return replace(device, processes=own)
