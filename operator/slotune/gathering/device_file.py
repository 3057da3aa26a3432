"""The output of ``nvidia-smi``, from a file that somebody brought from the machine with the GPU."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.load.nvidia_smi import DeviceSnapshot, ForeignOutputError, parse_nvidia_smi
from slotune.tuning.errors import InvalidInputError

__all__ = ["FLAG", "LARGEST_BYTES", "read_device_file", "text_of"]

FLAG: Final = "--nvidia-smi"
LARGEST_BYTES: Final = 16 * 2**20
"""Bytes that are read: ``-q`` of eight GPUs takes 60 kB, so this holds hours of looks."""


def read_device_file(path: Path) -> tuple[DeviceSnapshot, tuple[Evidence, ...]]:
    """What the devices did, and the lines that show it.

    Of a file that is larger than :data:`LARGEST_BYTES` the beginning counts.

    Raises:
        InvalidInputError: the file can't be read, or is no output of nvidia-smi.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES)
    except OSError as error:
        raise InvalidInputError(FLAG, path, f"can't be read ({error.strerror}): check the path") from error
    try:
        snapshot = parse_nvidia_smi(text_of(content))
    except ForeignOutputError as error:
        raise InvalidInputError(FLAG, path, str(error)) from error
    return snapshot, tuple(Evidence(Source.DEVICE, line[:LONGEST]) for line in snapshot.lines)


def text_of(content: bytes) -> str:
    """UTF-8, or the UTF-16 that PowerShell's ``>`` writes; what can't be decoded is replaced."""
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8", errors="replace")
