"""Bytes that one element of the KV cache takes, per cache type (ggml block sizes)."""

from __future__ import annotations

__all__ = ["bytes_per_element"]

BYTES_PER_ELEMENT = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}
"""A block of 32 elements: its values, plus a 2-byte scale (and a 2-byte minimum for the _1 types)."""


def bytes_per_element(kv_type: str) -> float:
    """Bytes per element; raises KeyError for a type that llama-server does not take."""
    return BYTES_PER_ELEMENT[kv_type]
