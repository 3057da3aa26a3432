"""What a log says about the size of the work of one token: the model's widths, and each of its caches.

Of the server's own model and context, not of a draft model's beside them, whose buffers are kept apart. Printed at
``-lv 4``. Strings of b11434 (``print_info``, ``llama_kv_cache``, ``llama_memory_recurrent``), and what builds before
said instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["CacheShape", "ModelShape", "model_shape"]

MIB: Final = 1024 * 1024

_SIZE: Final = re.compile(
    r"creating +(?P<non>non-)?(?P<sliding>SWA) KV cache"
    r"|llama_kv_cache(?:_unified)?: size = +(?P<kv>[\d.]+) MiB \( *(?P<cells>\d+) cells, +\d+ layers, +"
    r"\d+(?:/ *(?P<streams>\d+))? seqs\)"
    r"|llama_memory_recurrent: size = +(?P<state>[\d.]+) MiB \( *(?P<states>\d+) cells"
)


_WEIGHTS: Final = re.compile(r"\b(?:print_info: file|llm_load_print_meta: model) size +=+ +([\d.]+) ([MG])iB")


@dataclass(frozen=True, slots=True)
class CacheShape:
    """One cache of the context, as allocated."""

    size_bytes: int
    """Over all layers, sequences and devices."""
    cells: int
    """Tokens that it has room for, all streams together; of recurrent states the number of sequences."""
    sliding: bool = False
    """Of layers with a sliding window."""
    recurrent: bool = False
    """States of fixed size, one for each sequence."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """None: the log does not say."""

    vocabulary: int | None = None
    embedding: int | None = None
    window: int | None = None
    """Tokens of a sliding window; 0 where the model has none."""
    caches: tuple[CacheShape, ...] = ()
    draft_buffers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device to bytes of a draft model's weights; they are in ``LogFacts.model_buffers`` too."""
    weights_bytes: int | None = None
    """Of all tensors in the file, as rounded in the log."""


def model_shape(text: str, draft: str) -> ModelShape:
    """Read the server's part of a start, and the part in which a draft model is loaded."""
    loads = re.split(r"llama_context: constructing|llama_new_context_with_model: n_ctx ", text)
    buffers: dict[str, int] = {}
    for match in re.finditer(r"(\S+) model buffer size = +([\d.]+) MiB", draft):
        buffers[match[1]] = buffers.get(match[1], 0) + round(float(match[2]) * MIB)
    return ModelShape(
        vocabulary=_stated("n_vocab", text),
        embedding=_stated("n_embd", text),
        window=_stated("n_swa", text),
        caches=next((caches for load in reversed(loads) if (caches := _caches(load))), ()),
        draft_buffers=MappingProxyType(buffers),
        weights_bytes=_weights(text),
    )


def _stated(name: str, text: str) -> int | None:
    found = re.findall(rf"\b(?:print_info|llm_load_print_meta): {name} +=+ +(\d+)", text)
    return int(found[-1]) if found else None


def _weights(text: str) -> int | None:
    found = _WEIGHTS.findall(text)
    return round(float(found[-1][0]) * MIB * (1024 if found[-1][1] == "G" else 1)) if found else None


def _caches(load: str) -> tuple[CacheShape, ...]:
    """Those of one context."""
    sliding, caches = False, []
    for match in _SIZE.finditer(load):
        if match["sliding"]:
            sliding = match["non"] is None
        elif match["kv"]:
            cells = int(match["cells"]) * int(match["streams"] or 1)
            caches.append(CacheShape(round(float(match["kv"]) * MIB), cells, sliding=sliding))
            sliding = False
        else:
            caches.append(CacheShape(round(float(match["state"]) * MIB), int(match["states"]), recurrent=True))
    return tuple(one for one in caches if one.cells > 0)
