"""Makes another quantization of a model from its file: the variants of a demonstration, without a download.

Each tensor is dequantized and quantized again with the ``gguf`` package, some rows at a time, so memory holds one
tensor of the result and never the model. Everything else is copied: tokenizer, chat template, every key. This is no
substitute for llama-quantize: no importance matrix, no K-quants, and a file made from a lossy one keeps that loss.

Importing this module imports ``gguf`` and numpy, a third of a second: import it where it is used.

The result appears under its name only when it is complete, equal inputs give equal bytes, and it carries the identity
of its source, so a second call with the same source returns at once. A file that slotune did not make is never
replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from slotune.llama.file_digest import cache_folder
from slotune.llama.gguf_facts import read_facts, read_parts
from slotune.llama.gguf_header import ArrayPlace, Header, TensorInfo, UnreadableModelError, read_array, read_header

__all__ = [
    "TARGET_TYPES",
    "DiskFullError",
    "ForeignFileError",
    "UnsupportedTensorError",
    "requantize",
    "variant_path",
]

TARGET_TYPES = ("F16", "Q8_0", "Q4_0")

SOURCE_KEY = "slotune.source.identity"
RECIPE_KEY = "slotune.recipe"
RECIPE = 1
"""Raised when the same source would give other bytes, so that older results are made again."""

CHUNK_ELEMENTS = 4 * 2**20
"""Elements that are f32 at a time: 16 MiB, and a few temporaries of that size."""

TABLES = ("token_embd.weight", "output.weight")
"""Kept at 8 bits or more in a 4-bit file, where they cost the most quality; llama-quantize spares them too."""

_KEEP = re.compile(
    r"(_norm|ffn_gate_inp\w*|position_embd|token_types|ssm_conv1d\w*|shortconv\.conv|time_mix_\w+|attn_rel_b)\.weight$"
)
"""Matrices that llama.cpp reads as floats only: norms of several heads, routers, convolutions, small tables."""

_TYPE_SUFFIX = re.compile(r"[.-](?:F32|F16|BF16|I?Q\d\w*|MXFP4\w*)$", re.IGNORECASE)
_PART_SUFFIX = re.compile(r"-\d{5}-of-\d{5}$")


class UnsupportedTensorError(Exception):
    """A tensor of the source is of a type that the ``gguf`` package cannot dequantize."""

    def __init__(self, path: Path, tensor: str, type_name: str) -> None:
        super().__init__(
            f"{path}: tensor {tensor!r} has type {type_name}, which cannot be dequantized here; "
            "start from a file in F16, BF16, Q8_0 or a K-quant"
        )
        self.tensor = tensor
        self.type_name = type_name


class DiskFullError(Exception):
    """There is no room for the result."""

    def __init__(self, folder: Path, needed: int, free: int) -> None:
        super().__init__(
            f"{folder}: the new file takes {needed / 2**20:,.0f} MiB, {free / 2**20:,.0f} MiB are free; "
            "free some space or choose another directory"
        )
        self.needed = needed
        self.free = free


class ForeignFileError(Exception):
    """Where the result belongs lies a file that slotune did not make."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path}: this file was not made by slotune and is left alone; move it or choose another directory"
        )
        self.path = path


def requantize(
    source: str | Path,
    target_type: str,
    out_dir: str | Path,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Write ``source`` as ``target_type`` into ``out_dir`` and return the file's path.

    A file that is there already, made from the same source in the same way, is left as it is. ``progress`` is called
    with the share that is done, from 0 to 1.

    Raises:
        ValueError: ``target_type`` is none of F16, Q8_0 and Q4_0.
        UnreadableModelError: of ``source``.
        UnsupportedTensorError: a tensor cannot be dequantized.
        DiskFullError: ``out_dir`` has no room for it.
        ForeignFileError: the result would replace a file that was not made here, the source among them.
    """
    if target_type not in TARGET_TYPES:
        raise ValueError(f"target type {target_type!r}: only {', '.join(TARGET_TYPES)} can be made")
    identity = read_facts(source, cache=cache_folder()).identity
    out_dir = Path(out_dir)
    target = variant_path(source, target_type, out_dir)
    if _is_current(target, identity):
        if progress is not None:
            progress(1.0)
        return target
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out_dir, prefix=f".{target.name}.", suffix=".part", delete=False) as made:
        unfinished = Path(made.name)
    try:
        _write(read_parts(source), target_type, identity, unfinished, progress)
        _keep(unfinished)
        unfinished.replace(target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()
    return target


def variant_path(source: str | Path, target_type: str, out_dir: str | Path) -> Path:
    """Where :func:`requantize` puts its result: the source's name with the other type in it."""
    stem = _PART_SUFFIX.sub("", Path(source).name.removesuffix(".gguf"))
    return Path(out_dir) / f"{_TYPE_SUFFIX.sub('', stem)}.{target_type}.gguf"


def _is_current(target: Path, identity: str) -> bool:
    """Whether ``target`` is what would be made. Raises ForeignFileError when it may not be replaced."""
    if not target.exists():
        return False
    try:
        metadata = read_header(target).metadata
    except UnreadableModelError:
        raise ForeignFileError(target) from None
    if SOURCE_KEY not in metadata:
        raise ForeignFileError(target)
    return metadata[SOURCE_KEY] == identity and metadata.get(RECIPE_KEY) == RECIPE


def _write(
    parts: Sequence[Header],
    target_type: str,
    identity: str,
    path: Path,
    progress: Callable[[float], None] | None,
) -> None:
    tensors = [(part.path, tensor) for part in parts for tensor in part.tensors]
    kinds = [_kind(part, tensor, target_type) for part, tensor in tensors]
    sizes = [_bytes(tensor, kind) for (_, tensor), kind in zip(tensors, kinds, strict=True)]
    free = shutil.disk_usage(path.parent).free
    needed = sum(sizes) + parts[0].data_start
    if needed > free:
        raise DiskFullError(path.parent, needed, free)

    writer = gguf.GGUFWriter(path, str(parts[0].metadata["general.architecture"]))
    try:
        _copy_metadata(writer, parts[0])
        writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{target_type}"])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        writer.add_string(SOURCE_KEY, identity)
        writer.add_uint32(RECIPE_KEY, RECIPE)
        for (_, tensor), kind, size in zip(tensors, kinds, sizes, strict=True):
            shape = tuple(reversed(tensor.shape))
            writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), size, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        done, total = 0, sum(tensor.elements for _, tensor in tensors)
        for (part, tensor), kind, size in zip(tensors, kinds, sizes, strict=True):
            converted = np.empty(size, dtype=np.uint8)
            filled = 0
            for piece, elements in _convert(part, tensor, kind):
                converted[filled : filled + piece.nbytes] = piece.reshape(-1).view(np.uint8)
                filled += piece.nbytes
                done += elements
                if progress is not None:
                    progress(done / total)
            writer.write_tensor_data(converted)
    finally:
        writer.close()


def _keep(path: Path) -> None:
    """Bring it to the disk, so that after a crash the name never stands for half a file, and let others read it."""
    path.chmod(0o644)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _convert(path: Path, tensor: TensorInfo, kind: gguf.GGMLQuantizationType) -> Iterator[tuple[NDArray[Any], int]]:
    """The tensor in pieces of whole rows, converted, with the number of elements in each."""
    row = tensor.shape[0]
    rows = tensor.elements // row
    raw: np.memmap[Any, np.dtype[np.uint8]] = np.memmap(
        path, dtype=np.uint8, mode="r", offset=tensor.start, shape=(rows, tensor.size // rows)
    )
    step = max(1, CHUNK_ELEMENTS // row)
    for first in range(0, rows, step):
        piece = np.asarray(raw[first : first + step])
        if kind != tensor.type_number:
            present = gguf.GGMLQuantizationType(tensor.type_number)
            try:
                weights = gguf.quants.dequantize(piece, present)
            except NotImplementedError:
                raise UnsupportedTensorError(path, tensor.name, present.name) from None
            piece = gguf.quants.quantize(weights, kind)
        yield piece, min(step, rows - first) * row


def _kind(path: Path, tensor: TensorInfo, target_type: str) -> gguf.GGMLQuantizationType:
    """The type that a tensor has in the result."""
    types = gguf.GGMLQuantizationType
    try:
        present: gguf.GGMLQuantizationType = types(tensor.type_number)
    except ValueError:
        raise UnsupportedTensorError(path, tensor.name, f"number {tensor.type_number}") from None
    if len(tensor.shape) == 1 or _KEEP.search(tensor.name) or not tensor.name.endswith(".weight"):
        return present
    wanted: gguf.GGMLQuantizationType = types[
        "Q8_0" if target_type == "Q4_0" and tensor.name in TABLES else target_type
    ]
    if tensor.shape[0] % gguf.GGML_QUANT_SIZES[wanted][0]:
        wanted = types.F16  # rows that are no whole number of blocks
    return wanted


def _bytes(tensor: TensorInfo, kind: gguf.GGMLQuantizationType) -> int:
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    return int(tensor.elements // block * block_bytes)


def _copy_metadata(writer: gguf.GGUFWriter, head: Header) -> None:
    """Every key of the source but those that describe its own layout; texts byte by byte."""
    replaced = {"general.architecture", "general.file_type", "general.quantization_version", "general.alignment"}
    for key, value in head.metadata.items():
        if key in replaced or key.startswith(("split.", "slotune.")):
            continue
        kind, item_kind = head.types[key]
        if isinstance(value, ArrayPlace):
            value = read_array(head.path, value)  # noqa: PLW2901  (the long form of the same value)
        if isinstance(value, str):
            value = value.encode("utf-8", errors="surrogateescape")  # noqa: PLW2901  (as above)
        if kind == gguf.GGUFValueType.ARRAY and not len(value):
            continue  # the writer has no form for an array of nothing, and llama.cpp no use
        sub_type = None if item_kind is None else gguf.GGUFValueType(item_kind)
        writer.add_key_value(key, value, gguf.GGUFValueType(kind), sub_type=sub_type)
