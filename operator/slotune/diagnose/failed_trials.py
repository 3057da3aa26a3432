"""The entry of every class of failure: its own, or the one under which the same cause is found of a running server."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from slotune.diagnose.entry import Entry
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.rules import gpu, health, kernels, layers, wedged
from slotune.diagnose.rules.ending import ENDED
from slotune.llama.failures import FailureClass

__all__ = ["FAILURES", "entry_of"]

_FOUND_OF_SERVERS: Final[Mapping[FailureClass, Entry]] = {
    FailureClass.CPU_FALLBACK: gpu.GPU_NOT_USED,
    FailureClass.CRASHED: ENDED,
    FailureClass.WEDGED: wedged.WEDGED,
    FailureClass.SPECULATION_UNAVAILABLE: health.SPECULATION_FAILED,
}

FAILURES: Final[Mapping[FailureClass, Entry]] = MappingProxyType(
    {one: OF_FAILURES.get(one) or _FOUND_OF_SERVERS[one] for one in FailureClass}
)
"""Class to entry, in the order of the classes."""

_FALLBACKS: Final[Mapping[str, Entry]] = {
    "flashAttention": kernels.FLASH_ATTENTION_OFF,
    "cacheTypeK": kernels.KV_TYPE_WITHOUT_KERNEL,
}
"""Setting that a server fell back from, to what that is called; of ``gpuLayers`` the sentence decides."""


def entry_of(failure: FailureClass, knob: str | None, sentence: str) -> Entry:
    """The entry of one failure. What a server falls back from says which of several causes it is.

    ``sentence`` is that of :attr:`slotune.llama.effective.Mismatch.sentence`, for falls back to the CPU.
    """
    if failure is not FailureClass.CPU_FALLBACK:
        return FAILURES[failure]
    if knob == "gpuLayers" and "the server has 0" not in sentence:
        return layers.LAYERS_ON_CPU
    return _FALLBACKS.get(knob or "", FAILURES[failure])
