"""Which tensors of a model take part in what, told by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from slotune.llama.gguf_header import TensorInfo
from slotune.llama.layer_caches import per_layer

__all__ = ["INPUT_TABLES", "block_of", "prompt_parameters"]

INPUT_TABLES: Final = (
    "token_embd.weight",
    "per_layer_token_embd.weight",
    "position_embd.weight",
    "token_types.weight",
)
"""Looked up row by row, so llama.cpp keeps them in host memory however many layers are on a GPU."""

OUTPUT: Final = "output.weight"


def block_of(name: str) -> int | None:
    """The block that a tensor belongs to, from ``blk.N.…``."""
    prefix, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return int(number) if prefix == "blk" and number.isdigit() else None


def prompt_parameters(tensors: Sequence[TensorInfo], get: Callable[[str], Any], layers: int) -> int:
    """Elements of all matrices that every token of a prompt is multiplied with, as
    :attr:`~slotune.llama.model_facts.ModelFacts.prompt_parameters` says.

    llama.cpp takes the rows that are asked for out of the last block's attention, so what follows it is computed for
    them alone.
    """
    experts = int(get("expert_count") or 0)
    used = per_layer(get("expert_used_count") or 0, layers)
    trunk = layers - int(get("nextn_predict_layers") or 0)
    total = 0.0
    for tensor in tensors:
        block = block_of(tensor.name)
        if len(tensor.shape) < 2 or tensor.name.endswith(".bias") or tensor.name in (*INPUT_TABLES, OUTPUT):
            continue
        if block is not None and (block >= trunk or (block == trunk - 1 and ".ffn_" in tensor.name)):
            continue
        if experts and "_exps." in tensor.name and block is not None and block < layers:
            total += tensor.elements * used[block] / experts
        else:
            total += tensor.elements
    return round(total)
