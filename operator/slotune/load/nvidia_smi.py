"""Reads what ``nvidia-smi`` printed, for a machine on which slotune itself cannot look at the devices.

Three forms, each of which knows something else: the table (no clocks), ``-q`` (all), and ``--query-gpu=… --format=csv``
(what was asked for). So a snapshot also says what it knows: no word on what holds the clocks is not "nothing does".
With ``-l`` each form repeats, and every repetition is a look. The output is not made for programs: it changed with
drivers (throttle reasons became event reasons, power has two readings), and both names are read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from slotune.load.device_facts import CLOCK_REASONS, DeviceFacts, Reading, facts_of
from slotune.load.smi_csv import csv_looks
from slotune.load.smi_foreign import LOST_LINE, foreign_word, line_around
from slotune.load.smi_forms import SmiDevice, full_looks, table_looks
from slotune.load.xid_events import XidEvent, xid_events

__all__ = ["DeviceSnapshot", "ForeignOutputError", "parse_nvidia_smi"]

MIB: Final = 2**20

_BITS: Final = {name: bit for bit, name in CLOCK_REASONS.items()}

_MARGIN_LINES: Final = 40
"""Where one of so many lines begins at the margin, there is none before the others."""
_PASTED: Final = 1 << 20
"""Characters: what is longer went through no mail."""
_HEAD: Final = 1 << 16
"""Characters by which a foreign text is told."""
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_UNNAMED: Final = "unknown"
_PROTECTS: Final = re.compile(r"Slowdown$")
_SERVER: Final = re.compile(r"llama-server|(?:^|[/\\])llama(?:\.exe)?$")


class ForeignOutputError(ValueError):
    """The text is none of the three forms, or nvidia-smi itself had nothing to say; the message has the cure."""


@dataclass(frozen=True, slots=True)
class DeviceSnapshot(DeviceFacts):
    """What one output says: like a watch of some looks, and whether it knows."""

    memory_used_bytes: int | None = None
    """Most that was held on all devices together, by whomever; None when it does not say."""
    memory_sizes: tuple[int, ...] = ()
    """Bytes that each device has in all, each size once."""
    knows_clock_reasons: bool = False
    """Whether it says what holds the clocks; False: no ``clock_reasons`` mean nothing."""
    shows_server: bool = False
    """Whether a llama-server is among the processes. In a container nvidia-smi shows none, so False proves nothing."""
    server_bytes: int | None = None
    """Most memory that one llama-server held on one device; None when it does not say."""
    lines: tuple[str, ...] = ()
    """A sentence per device of the last look, to show what was read, and one on a report that was cut off."""
    slowed: DeviceFacts | None = None
    """Of several devices those alone that anything slowed for their protection; None of one, and where none was."""
    broken: tuple[tuple[str, str], ...] = ()
    """(which device, what is said instead of its values) of those that did not answer at the last look."""
    xids: tuple[XidEvent, ...] = ()
    """What the kernel said of devices that failed, where somebody brought that too."""


def parse_nvidia_smi(text: str) -> DeviceSnapshot:
    """What the output says. Raises ForeignOutputError for anything else than one of the three forms."""
    text = _without_margin(_ANSI.sub("", text.lstrip("\ufeff")).replace("\r\n", "\n"))
    if "<nvidia_smi_log>" in text:
        raise ForeignOutputError("is XML: give the output of nvidia-smi -q, without -x")
    if re.search(r"^=+NVSMI LOG=+|^Attached GPUs\s*:|^GPU [0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:", text, re.MULTILINE):
        looks = full_looks(text)
    elif re.search(r"^\|\s+NVIDIA-SMI\s", text, re.MULTILINE):
        looks = table_looks(text)
    else:
        looks = csv_looks(text)
    looks = [look for look in looks if look]
    facts, xids = facts_of([[_told(device) for device in look] for look in looks]), xid_events(text)
    if facts is None:
        return _of_the_lost(text, xids)
    last = looks[-1]
    broken = [(_name(device, len(last) > 1), device.broken) for device in last if device.broken is not None]
    if not broken and (line := _lost_line(text)) is not None:
        broken.append(("nvidia-smi", line))
    running = [one for look in looks for device in look for one in device.processes if _SERVER.search(one.name)]
    used = [sum(one.used_bytes for one in look if one.used_bytes is not None) for look in looks if _all_used(look)]
    return DeviceSnapshot(
        **{field.name: getattr(facts, field.name) for field in fields(DeviceFacts)},
        memory_used_bytes=max(used, default=None),
        memory_sizes=tuple(dict.fromkeys(one.total_bytes for look in looks for one in look if one.total_bytes)),
        knows_clock_reasons=any(device.reasons is not None for look in looks for device in look),
        shows_server=bool(running),
        server_bytes=max((one.held_bytes for one in running if one.held_bytes is not None), default=None),
        lines=(*(_line(device, len(last) > 1) for device in last), *_cut(last)),
        slowed=_slowed(looks, facts),
        broken=tuple(broken),
        xids=xids,
    )


def _of_the_lost(text: str, xids: tuple[XidEvent, ...]) -> DeviceSnapshot:
    """Of a text that has no device, but says of one that it is gone."""
    line = _lost_line(text)
    if line is None and not xids:
        raise ForeignOutputError(foreign_word(text[:_HEAD]))
    broken = () if line is None else (("nvidia-smi", line),)
    lines = (*(said for _, said in broken), *(event.line for event in xids))
    return DeviceSnapshot(_UNNAMED, 0, lines=lines, broken=broken, xids=xids)


def _without_margin(text: str) -> str:
    """Without what a mail, a ticket or a document put before every line: blanks, or signs of a quotation."""
    lines = text.split("\n", _MARGIN_LINES)
    if len(text) > _PASTED or not all(line[:1] in ("", ">", " ", "\t") for line in lines[:_MARGIN_LINES]):
        return text
    lines = text.split("\n")
    if all(line.startswith(">") or not line.strip() for line in lines):
        lines = [line.removeprefix(">") for line in lines]
    return textwrap.dedent("\n".join(lines))


def _slowed(looks: Sequence[Sequence[SmiDevice]], facts: DeviceFacts) -> DeviceFacts | None:
    """By what they are called: ``GPU 1 of 2 x NVIDIA L4``."""
    if max(map(len, looks)) < 2:
        return None
    devices = [device for look in looks for device in look if any(map(_PROTECTS.search, device.reasons or ()))]
    keys = {device.key for device in devices}
    found = facts_of([[_told(device) for device in look if device.key in keys] for look in looks])
    labels = list(dict.fromkeys(f"GPU {device.label}" for device in devices if device.label))
    if found is None or not labels:
        return None
    return replace(found, name=f"{' and '.join(labels)} of {facts.name}")


def _cut(last: Sequence[SmiDevice]) -> tuple[str, ...]:
    """A word on a report that ends within a device, or before the last one."""
    if not last or not last[-1].is_cut:
        return ()
    return (
        f"the report is cut off in or behind {_name(last[-1], several=True)}: write it again, nvidia-smi -q > FILE",
    )


def _name(device: SmiDevice, several: bool) -> str:
    name = device.reading.name
    return f"GPU {device.label}, {name}" if several and device.label and not name.startswith("GPU ") else name


def _all_used(look: Sequence[SmiDevice]) -> bool:
    return all(device.used_bytes is not None for device in look)


def _told(device: SmiDevice) -> Reading:
    """The reading with its reasons as bits, and the processes beside the server where one of them is the server."""
    bits = sum(_BITS[name] for name in device.reasons or ())
    servers = [one for one in device.processes if _SERVER.search(one.name) and one.computes]
    if not servers:
        return replace(device.reading, clock_reasons=bits)
    own = max(servers, key=lambda one: one.held_bytes or 0)
    others = [one for one in device.processes if one is not own and one.computes and one.instance == own.instance]
    held = sum(one.held_bytes or 0 for one in others)
    return replace(device.reading, clock_reasons=bits, others=len(others), others_memory_bytes=held)


def _line(device: SmiDevice, several: bool) -> str:
    reading = device.reading
    parts = []
    if device.used_bytes is not None:
        total = "" if device.total_bytes is None else f" of {device.total_bytes / MIB:,.0f}"
        parts.append(f"{device.used_bytes / MIB:,.0f}{total} MiB used")
    if reading.temperature_c is not None:
        parts.append(f"{reading.temperature_c:.0f} °C")
    if reading.power_w is not None:
        parts.append(f"{reading.power_w:.0f} W")
    if reading.sm_clock_mhz is not None:
        parts.append(f"SM clock {reading.sm_clock_mhz:,.0f} MHz")
    if device.reasons is not None:
        parts.append("clocks held by " + (", ".join(sorted(device.reasons)) or "nothing"))
    if device.broken is not None:
        parts.append(f"does not answer its driver ({device.broken})")
    return f"{_name(device, several)}: {', '.join(parts)}" if parts else _name(device, several)


def _lost_line(text: str) -> str | None:
    """What stands in place of a device of which nvidia-smi has nothing else."""
    lost = LOST_LINE.search(text)
    return None if lost is None else line_around(text, lost)
