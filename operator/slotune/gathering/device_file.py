"""The output of ``nvidia-smi``, from a file that somebody brought from the machine with the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.gathering.brought_file import text_of_file
from slotune.load.nvidia_smi import DeviceSnapshot, ForeignOutputError, parse_nvidia_smi
from slotune.tuning.errors import InvalidInputError

__all__ = ["read_device_file"]

FLAG: Final = "--nvidia-smi"


def read_device_file(path: Path) -> tuple[DeviceSnapshot, tuple[Evidence, ...]]:
    """What the devices did, and the lines that show it.

    Raises:
        InvalidInputError: the file can't be read, or is no output of nvidia-smi.
    """
    text = text_of_file(path, FLAG)
    try:
        snapshot = parse_nvidia_smi(text)
    except ForeignOutputError as error:
        raise InvalidInputError(FLAG, path, str(error)) from error
    return snapshot, tuple(Evidence(Source.DEVICE, line[:LONGEST]) for line in snapshot.lines)
