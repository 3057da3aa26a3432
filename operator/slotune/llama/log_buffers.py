"""How much memory a llama-server's log says that weights, caches and scratch space take, device by device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["buffers", "closed_lists", "compute_buffers", "is_on_host"]

_MIB: Final = 1024 * 1024
_CONTEXT = re.compile(r"constructing llama_context|llama_new_context_with_model: n_ctx |\bCLIP using \S+ backend")
"""Where one begins: of the model, of a draft model, of what reads images or sound."""

_HOST: Final = re.compile(r"^(CPU|BLAS|AMX|.*_Host$)")

_LISTED = re.compile(rb"(\S+) +(?:(?:model|KV|RS|compute|output) )?buffer size = ")
"""One of a list; nothing says how many devices it has."""


def is_on_host(device: str) -> bool:
    """Whether a buffer lies in host memory: plain, mapped, repacked for SIMD, or pinned such as ``CUDA_Host``."""
    return _HOST.match(device) is not None


def closed_lists(lines: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """``lines``, which a log ends with, without a last list of buffers that are in host memory so far: what is on a
    device may come behind them."""
    end = len(lines)
    while end and (listed := _LISTED.search(lines[end - 1][1])) is not None:
        if not is_on_host(listed[1].decode(errors="replace")):
            return lines
        end -= 1
    return lines[:end]


def buffers(kind: str, text: str) -> Mapping[str, int]:
    """Bytes per device, as the log spells it, of buffers whose kind and device the pattern ``kind`` finds."""
    found: dict[str, int] = {}
    for match in re.finditer(rf"(?:{kind}) buffer size = +([\d.]+) MiB", text):
        *names, size = match.groups()
        name = next(name for name in names if name)
        found[name] = found.get(name, 0) + round(float(size) * _MIB)
    return MappingProxyType(found)


def compute_buffers(text: str) -> Mapping[str, int]:
    """Scratch space per device: a context that reserves again replaces its buffer, a second context has its own."""
    total: dict[str, int] = {}
    for context in _CONTEXT.split(text):
        kinds = (r"compute", r" ?output")
        latest = {
            (kind, match[1]): round(float(match[2]) * _MIB)
            for kind in kinds
            for match in re.finditer(rf"(\S+) {kind} buffer size = +([\d.]+) MiB", context)
        }
        for (_, device), size in latest.items():
            total[device] = total.get(device, 0) + size
    return MappingProxyType(total)
