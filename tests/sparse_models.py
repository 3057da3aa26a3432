"""GGUF files of real models' shapes that take no room: whole headers, and weights that are holes in the file."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["BYTES", "Tensor", "write_sparse_model"]

Tensor = tuple[str, tuple[int, ...], str]
"""Name, shape with the row's length first, type."""

_TYPES: Final = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "MXFP4": 39}
BYTES: Final = {
    "F32": 4,
    "F16": 2,
    "Q4_0": 18 / 32,
    "Q8_0": 34 / 32,
    "Q4_K": 144 / 256,
    "Q6_K": 210 / 256,
    "MXFP4": 17 / 32,
}
"""Of an element: a block over its elements."""
_ALIGNMENT: Final = 32


def write_sparse_model(path: Path, architecture: str, keys: Mapping[str, int], tensors: Sequence[Tensor]) -> Path:
    """Write it; ``keys`` are below the architecture's prefix."""
    metadata = b"".join(_text(f"{architecture}.{key}") + struct.pack("<II", 4, value) for key, value in keys.items())
    name = _text("general.architecture") + struct.pack("<I", 8) + _text(architecture)
    infos, offset = b"", 0
    for tensor, shape, kind in tensors:
        infos += _text(tensor) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, _TYPES[kind], offset)
        size = BYTES[kind]
        for width in shape:
            size *= width
        offset += -(-round(size) // _ALIGNMENT) * _ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys) + 1) + name + metadata + infos
    with path.open("wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // _ALIGNMENT) * _ALIGNMENT + offset)
    return path


def _text(words: str) -> bytes:
    return struct.pack("<Q", len(words)) + words.encode()
