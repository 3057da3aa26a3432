"""What to say of a text that is none of the forms of ``nvidia-smi`` that can be read: what it is, and what to bring.

People have a dozen monitors of GPUs, and nvidia-smi itself a dozen forms, so "is no output of nvidia-smi" alone does
not help them. Pure.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.load.smi_csv import names_columns

__all__ = ["LONGEST", "LOST_LINE", "foreign_word", "line_around"]

LONGEST: Final = 120
"""Characters of a foreign text that an error repeats."""
_STRANGE: Final = 0.1
"""Share of signs that no text has, from which on it is none."""
LOST_LINE: Final = re.compile(r"GPU is lost|Unable to determine the device handle|GPU requires reset")

_FULL: Final = "give the output of nvidia-smi -q"
_COLUMNS: Final = "give that of nvidia-smi -q, or of nvidia-smi --query-gpu=… --format=csv with its header"
_OF_OTHERS: Final = (
    "only nvidia-smi's can be read: leave --nvidia-smi out, and state the device's memory bandwidth with --bandwidth, "
    "or its name with --gpu-class"
)
_FORMS: Final = (
    (r"^# *gpu\b[^\n]*\n# *Idx\b", "is of nvidia-smi dmon or pmon, which do not say what holds the clocks"),
    (r"^GPU \d+: [^\n]*\(UUID: ", "only lists the devices (-L)"),
    (r"\bCPU Affinity\b|^\s*Legend:\s*\n\s*\n?\s*X +=", "only shows how the devices are connected (topo)"),
    (r"^NVIDIA System Management Interface -- ", "is the help of nvidia-smi"),
    (r"^\[\d+\] [^\n|]+\| *\d+.?C, *\d+ *%", "is of gpustat, which does not say what holds the clocks"),
    (r"^ *Device \d+ +\[[^\]\n]+\] +(?:PCIe|Integrated)", "is of nvtop, which does not say what holds the clocks"),
)
_OTHERS: Final = (
    (r"ROCm System Management Interface|End of ROCm SMI Log", "rocm-smi"),
    (r"\bAMD-SMI \d|^GPU: \d+ *\n +[A-Z_]+:", "amd-smi"),
    (r"^intel-gpu-top:|^ *ENGINES +BUSY", "intel_gpu_top"),
    (r"\bGPU Utilization \(%\)|^\| *Device ID +\| *\d", "xpu-smi"),
    (r"\bGR3D_FREQ \d", "tegrastats"),
    (r"^\*+ GPU usage \*+|GPU HW active frequency", "powermetrics"),
)
"""Monitors of devices that are not NVIDIA's, or that nvidia-smi hardly knows."""
_LOST_CURE: Final = (
    "the GPU does not answer its driver; look for Xid in dmesg, reboot the machine, and check the card's seat and "
    "power if it comes back"
)
_SAYS: Final = (
    (LOST_LINE.pattern, _LOST_CURE),
    (
        r"Driver/library version mismatch",
        "the driver was updated under the running system: reboot the machine, or load its kernel modules again",
    ),
    (
        r"NVIDIA-SMI has failed|No devices were found|Failed to initialize NVML",
        "run it where the GPU is, with its driver",
    ),
    (
        r"nvidia-smi\b[^\n]*(?:not found|not recognized|No such file)|executable file not found",
        "nvidia-smi comes with the driver, so run it on the GPU's machine",
    ),
    (r"is not a valid field to query", f"{_FULL}, which needs no names of columns"),
)
"""What is written in place of a report, and what to do about it."""


def foreign_word(text: str) -> str:
    """What it is and the cure, in words that fit behind the file's name."""
    for pattern, cure in _SAYS:
        if (said := re.search(pattern, text)) is not None:
            return f"says {line_around(text, said)!r}: {cure}"
    for pattern, words in _FORMS:
        if re.search(pattern, text, re.MULTILINE):
            return f"{words}: {_FULL}"
    for pattern, program in _OTHERS:
        if re.search(pattern, text, re.MULTILINE):
            return f"is of {program}, and {_OF_OTHERS}"
    return _unknown(text) if text.strip() else "is empty: write it with nvidia-smi -q > FILE"


def line_around(text: str, found: re.Match[str]) -> str:
    """The line that ``found`` is in, cut."""
    return text[text.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()[:LONGEST]


def _unknown(text: str) -> str:
    first, *more = (line.strip() for line in text.splitlines() if line.strip())
    quoted = repr(first[:LONGEST])
    if columns := names_columns(text):
        why = "has no column that tells what a device did" if more else "has no row below its header"
        why = "has processes and no device" if "pid" in columns else why
        return f"{why} ({quoted}): {_COLUMNS}"
    if sum(not sign.isprintable() or sign == "\ufffd" for sign in first) > _STRANGE * len(first):
        return "is no output of nvidia-smi, nor any text (is it packed?): write it with nvidia-smi -q > FILE"
    if re.match(r"\d+ *, *[^,\n]+,", first):
        return f"has columns of which nobody says what they are ({quoted}): {_COLUMNS}, so without noheader"
    return f"is no output of nvidia-smi (it begins with {quoted}): {_COLUMNS}"
