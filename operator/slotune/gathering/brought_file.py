"""A text file that somebody brought from where a server runs, named by a flag; of a large one the beginning counts."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

from slotune.tuning.errors import InvalidInputError

__all__ = ["text_of_file"]

LARGEST_BYTES: Final = 16 * 2**20
"""Bytes that are read. nvidia-smi -q of eight GPUs takes 60 kB, so this holds hours of looks; a server of 80 GB maps a
thousand areas, which take 1 MB a look at /proc."""


def text_of_file(path: Path, flag: str) -> str:
    """UTF-8, or the UTF-16 that PowerShell's ``>`` writes; what can't be decoded is replaced.

    Raises:
        InvalidInputError: the file can't be read. It names ``flag``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES)
    except OSError as error:
        raise InvalidInputError(flag, path, f"can't be read ({error.strerror}): check the path") from error
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if wide else "utf-8", errors="replace")
