"""What the kernel says of an NVIDIA GPU that failed: Xid lines of ``dmesg``, wherever somebody put them.

    [81733.201] NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', GPU has fallen off the bus.

The number tells whether the card is gone, or a program did what it must not. Source: NVIDIA's Xid catalog.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

__all__ = ["XidEvent", "xid_events"]

_LINE: Final = re.compile(
    r"(NVRM: Xid \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[0-9.]*\): (\d{1,3})\b[^\n]*)"
)
_RECOVERED: Final = re.compile(r" to 0x0 \(None\)")
"""Of Xid 154: nothing has to be done to the card any more."""
_LONGEST: Final = 160
_RECOVERY: Final = 154
_RESET: Final = "drain it, then reset the GPU (nvidia-smi --gpu-reset) or reboot"
_CARD: Final = MappingProxyType(
    {
        46: ("it stopped processing", _RESET),
        48: ("its memory has an error that can't be corrected", f"{_RESET}; replace the card if it comes back"),
        62: ("its own controller halted", f"{_RESET}; replace the card if it comes back"),
        64: ("a bad row of its memory can't be replaced", "replace the card"),
        74: ("its NVLink failed", f"{_RESET}, and check the bridge"),
        79: (
            "it has fallen off the bus",
            "reboot the machine, and check the card's seat, power and heat if it comes back",
        ),
        95: ("its memory has an error that spread to others", f"{_RESET}; replace the card if it comes back"),
        119: ("its firmware does not answer", f"{_RESET}; update the driver if it comes back"),
        120: ("its firmware failed", f"{_RESET}; update the driver if it comes back"),
        _RECOVERY: ("it asks to be recovered", _RESET),
    }
)
"""Number to what happened and what helps, of those after which the GPU computes for nobody."""


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One line."""

    device: str
    """Its place on the bus: ``0000:65:00``."""
    number: int
    line: str

    @property
    def what(self) -> str | None:
        """What happened to the card; None where it may have been a program's fault."""
        return _CARD[self.number][0] if self.number in _CARD else None

    @property
    def cure(self) -> str | None:
        """What helps then."""
        return _CARD[self.number][1] if self.number in _CARD else None


def xid_events(text: str) -> tuple[XidEvent, ...]:
    """All of them, in the order in which each was said last, once for each device; none from before it recovered."""
    found: dict[tuple[str, int], XidEvent] = {}
    for line, device, number in _LINE.findall(text):
        found.pop((device, int(number)), None)
        if int(number) == _RECOVERY and _RECOVERED.search(line):
            found = {key: event for key, event in found.items() if event.device != device}
        else:
            found[device, int(number)] = XidEvent(device, int(number), line.strip()[:_LONGEST])
    return tuple(found.values())
