"""How much of what a device can do its kernels reach, as far as that differs between makers."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.roofline import Roofline
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.symptoms import Symptoms

__all__ = ["times_the_usual"]

LESS_TUNED: Final = 2.0
"""llama.cpp's kernels for devices that are neither NVIDIA's nor Apple's reach a smaller part of what these can do, and
how much depends on the back end: on one Arc a token took 2.9 times as long with SYCL as with Vulkan
(ggml-org/llama.cpp#26010)."""
APPLE: Final = 1.5
"""One processor's memory serves its CPU too, and the GPUs of early ones can't take all of it: an M1 Max writes 4.3
tokens/s with 42 GB of weights, which is 45 % of its bandwidth (XiongjieDai/GPU-Benchmarks-on-LLM-Inference)."""
_OTHER_MAKERS: Final = re.compile(r"\b(?:AMD|RADEON|INSTINCT|MI\d+\w?|RX|INTEL|ARC)\b", re.IGNORECASE)


def times_the_usual(symptoms: Symptoms, roofline: Roofline) -> float:
    """How many times as long as on NVIDIA's devices is still usual."""
    backend, device = backend_of(symptoms), roofline.device or ""
    if backend is Backend.METAL or device.lower().startswith("apple"):
        return APPLE
    if backend is not None:
        return 1.0 if backend is Backend.CUDA else LESS_TUNED
    return LESS_TUNED if _OTHER_MAKERS.search(device) else 1.0
