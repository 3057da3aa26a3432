"""The header of a GGUF file, read without its vocabulary and without its weights.

``gguf.GGUFReader`` makes an object of every word of the vocabulary: 2 s and 160 MB for a 98 MB model of which one
kilobyte is wanted here, and a damaged file shows as whatever numpy raises first. So the header is walked once over a
memory map: scalars and short arrays are decoded, long arrays are remembered by place, and whatever does not fit the
file says so in words. Constants and block sizes come from the ``gguf`` package.

Format: GGUF as ggml specifies it, versions 2 and 3, little endian.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["ArrayPlace", "Header", "TensorInfo", "UnreadableModelError", "read_array", "read_header"]

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
ALIGNMENT: Final = 32
"""Bytes; what ``general.alignment`` says where it is missing."""
SHORT_ARRAY: Final = 1024
"""Elements up to which an array of numbers is decoded at once: llama.cpp has at most 512 layers."""
SMALLEST_ENTRY: Final = 13
"""Bytes of the shortest key-value pair: an empty name's length, a type and one byte."""

_STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final[Mapping[int, str]] = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip


class UnreadableModelError(Exception):
    """A model file that nothing can be done with: which, what is wrong, and what to do."""

    def __init__(self, path: str | Path, what: str, cure: str) -> None:
        super().__init__(f"{path}: {what}; {cure}")
        self.path = str(path)
        self.what = what
        self.cure = cure


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Where a long array lies in the file."""

    item_type: int
    """GGUF value type of each element."""
    count: int
    start: int
    """Offset in bytes of the first element."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor's entry in the header."""

    name: str
    shape: tuple[int, ...]
    """Innermost dimension first, as the file has it: a matrix of R rows and C columns is (C, R)."""
    type_number: int
    """``gguf.GGMLQuantizationType``, or a number that the installed ``gguf`` does not know."""
    start: int
    """Offset in bytes from the beginning of the file."""
    size: int
    """Bytes."""

    @property
    def elements(self) -> int:
        """How many weights it holds."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata and tensor list of one file."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    """Values by key: bool, int, float, str, tuple, or :class:`ArrayPlace` for arrays that were not decoded."""
    types: Mapping[str, tuple[int, int | None]]
    """Value type of each key and, for an array, the type of its elements."""
    tensors: tuple[TensorInfo, ...]
    data_start: int
    file_bytes: int
    digest: bytes
    """SHA-256 of everything before the weights."""


def read_header(path: str | Path) -> Header:
    """Read the header of ``path`` and check that the file holds every tensor it lists.

    Raises:
        UnreadableModelError: there is no such file, or it is no GGUF file, of an unsupported version, damaged or
            truncated.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            try:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise UnreadableModelError(path, "the file is empty", "download it again") from None
            with view:
                return _Walk(path, view).header()
    except FileNotFoundError:
        raise UnreadableModelError(path, "there is no such file", "check the path and what is mounted there") from None
    except IsADirectoryError:
        raise UnreadableModelError(path, "this is a directory", "name the .gguf file in it") from None
    except OSError as error:
        raise UnreadableModelError(path, f"cannot be read ({error.strerror})", "check its permissions") from error


def read_array(path: Path, place: ArrayPlace) -> list[Any]:
    """The elements at ``place`` in the file ``path``; texts as they are there, in bytes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        walk = _Walk(path, view, place.start)
        if place.item_type == _STRING:
            return [walk.raw_string() for _ in range(place.count)]
        return list(walk.items(place.item_type, place.count))


class _Walk:
    """A position in the file that only moves forward and knows where the file ends."""

    def __init__(self, path: Path, view: mmap.mmap, at: int = 0) -> None:
        self.path = path
        self.view = view
        self.at = at
        self.end = len(view)

    def header(self) -> Header:
        version, tensor_count, pair_count = self._preamble()
        metadata: dict[str, Any] = {}
        types: dict[str, tuple[int, int | None]] = {}
        for _ in range(pair_count):
            key = self.string()
            if key in metadata:
                raise self.damaged(f"the key {key!r} appears twice")
            types[key], metadata[key] = self._pair()
        entries = [self._tensor_entry() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise self.damaged(f"general.alignment is {alignment!r}")
        data_start = -(-self.at // alignment) * alignment
        return Header(
            path=self.path,
            version=version,
            metadata=metadata,
            types=types,
            tensors=self._tensors(entries, data_start),
            data_start=data_start,
            file_bytes=self.end,
            digest=hashlib.sha256(self.view[: self.at]).digest(),
        )

    def _preamble(self) -> tuple[int, int, int]:
        if self.end < 24 or self.view[:4] != MAGIC:
            what = "a Git LFS pointer, not the file" if self.view[:8] == b"version " else "no GGUF file"
            cure = "run `git lfs pull`" if "LFS" in what else "convert the model with llama.cpp's convert_hf_to_gguf.py"
            raise UnreadableModelError(self.path, f"this is {what}", cure)
        self.at = 4
        version = self.scalar(4)
        if version not in VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big") in VERSIONS
            what = "the file is big endian" if swapped else f"the file has GGUF version {version}, not 2 or 3"
            raise UnreadableModelError(self.path, what, "convert the model again with a current llama.cpp")
        tensors, pairs = self.scalar(10), self.scalar(10)
        if max(tensors, pairs) * SMALLEST_ENTRY > self.end:
            raise self.damaged(f"it claims {pairs} keys and {tensors} tensors in {self.end:,} bytes")
        return version, tensors, pairs

    def _pair(self) -> tuple[tuple[int, int | None], Any]:
        kind = self.scalar(4)
        if kind != _ARRAY:
            return (kind, None), self.value(kind)
        item_type, count = self.scalar(4), self.scalar(10)
        start = self.at
        if item_type in _SCALARS:
            self.skip(count * struct.calcsize(_SCALARS[item_type]))
            if count <= SHORT_ARRAY:
                self.at = start
                return (kind, item_type), tuple(self.items(item_type, count))
        elif item_type == _STRING:
            for _ in range(count):
                self.skip(self.scalar(10))
        else:
            raise self.damaged(f"an array of value type {item_type}")
        return (kind, item_type), ArrayPlace(item_type, count, start)

    def _tensor_entry(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string()
        dimensions = self.scalar(4)
        if not 0 < dimensions <= 8:
            raise self.damaged(f"tensor {name!r} has {dimensions} dimensions")
        shape = tuple(self.scalar(10) for _ in range(dimensions))
        return name, shape, self.scalar(4), self.scalar(10)

    def _tensors(self, entries: list[tuple[str, tuple[int, ...], int, int]], data_start: int) -> tuple[TensorInfo, ...]:
        starts = sorted({offset for *_, offset in entries})
        following = dict(itertools.pairwise([*starts, self.end - data_start]))
        tensors = []
        for name, shape, type_number, offset in entries:
            size = _size(shape, type_number)
            if size is None:  # a type newer than the gguf package: all up to the next tensor
                size = following[offset] - offset
            missing = data_start + offset + size - self.end
            if missing > 0 or size < 0:
                what = f"the file is cut off: tensor {name!r} needs {missing:,} bytes more"
                raise UnreadableModelError(self.path, what, "download it again and compare its size")
            tensors.append(TensorInfo(name, shape, type_number, data_start + offset, size))
        return tuple(tensors)

    def items(self, item_type: int, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield self.value(item_type)

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind not in _SCALARS:
            raise self.damaged(f"value type {kind}")
        return self.scalar(kind)

    def scalar(self, kind: int) -> Any:
        code = _SCALARS[kind]
        size = struct.calcsize(code)
        if self.at + size > self.end:
            raise self.cut_off()
        (value,) = struct.unpack_from(code, self.view, self.at)
        self.at += size
        return value

    def string(self) -> str:
        # Surrogates keep bytes that are no UTF-8, so that a copy of the file has them unchanged.
        return self.raw_string().decode("utf-8", errors="surrogateescape")

    def raw_string(self) -> bytes:
        length = self.scalar(10)
        start = self.at
        self.skip(length)
        return self.view[start : self.at]

    def skip(self, size: int) -> None:
        if self.at + size > self.end:
            raise self.cut_off()
        self.at += size

    def cut_off(self) -> UnreadableModelError:
        what = f"the file is cut off: its header does not end within its {self.end:,} bytes"
        return UnreadableModelError(self.path, what, "download it again and compare its size")

    def damaged(self, found: str) -> UnreadableModelError:
        return UnreadableModelError(self.path, f"the header is damaged: {found}", "download it again")


def _size(shape: tuple[int, ...], type_number: int) -> int | None:
    """Bytes of a tensor, or None when the type is not known."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType  # noqa: PLC0415  (a third of a second)

    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(type_number)]
    except (ValueError, KeyError):
        return None
    elements = 1
    for extent in shape:
        elements *= extent
    return elements // block * int(block_bytes)
