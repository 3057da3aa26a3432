"""A failure's sentence for who runs llama-server by hand: flags as they are typed, not the API's names of settings."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["in_flags"]

_PHRASES: Final = (
    (
        "offer a smaller model variant, or a GPU class with more memory",
        "take smaller weights (another quantization, or a smaller model), or a GPU with more memory",
    ),
    ("contextSizePerSlot or parallelSlots", "-c (the context of all slots together) or -np"),
)
_FLAGS: Final = {
    "contextSizePerSlot": "-c",
    "parallelSlots": "-np",
    "batchSize": "-b",
    "uBatchSize": "-ub",
    "flashAttention": "-fa",
    "cacheTypeK": "-ctk",
    "cacheTypeV": "-ctv",
    "cacheRAMMiB": "--cache-ram",
    "gpuLayers": "-ngl",
}
_NAME: Final = re.compile(rf"(?<![\w/.\-])(?:{'|'.join(_FLAGS)})(?![\w/.\-])")


def in_flags(sentence: str) -> str:
    """``sentence`` of a :class:`~slotune.llama.failures.Failure` with llama-server's flags for the API's settings."""
    for phrase, typed in _PHRASES:
        sentence = sentence.replace(phrase, typed)
    return _NAME.sub(lambda match: _FLAGS[match[0]], sentence)
