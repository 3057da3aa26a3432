"""Weights that load and answer, but whose KV cache cannot be quantized: what a bad flag looks like from outside.

SmolLM2's heads have 64 numbers. The same tensors read as heads of 48 still fit together, and 48 is no multiple of the
32 that a block of a quantized cache holds. The answers are nonsense; where quality is off, nobody looks.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from e2e.models import WEIGHTS

__all__ = ["ODD", "make_odd_model"]

ODD = "SmolLM2-135M-Instruct.odd-heads.gguf"
_UINT32 = 4
"""GGUF's number of that type."""
_CHANGED = {
    "llama.attention.head_count": (9, 12),
    "llama.attention.head_count_kv": (3, 4),
    "llama.rope.dimension_count": (64, 48),
}
"""Fields of the header, each as it is and as it becomes."""
_HEADER = 1 << 16
"""Bytes at the start of the file that hold them."""


def make_odd_model(folder: Path) -> Path:
    """A copy of Q4_0 beside it, made when it is missing."""
    made = folder / ODD
    if made.is_file():
        return made
    part = made.with_suffix(".part")
    shutil.copyfile(folder / WEIGHTS["Q4_0"], part)
    with part.open("r+b") as file:
        header = bytearray(file.read(_HEADER))
        for field, (before, after) in _CHANGED.items():
            key = struct.pack("<Q", len(field)) + field.encode() + struct.pack("<I", _UINT32)
            place = header.index(key) + len(key)
            assert struct.unpack_from("<I", header, place) == (before,), f"{field} is not {before} in {part}"
            struct.pack_into("<I", header, place, after)
        file.seek(0)
        file.write(header)
    return part.rename(made)
