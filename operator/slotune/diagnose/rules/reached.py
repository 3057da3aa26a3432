"""How much of what a device can do its kernels reach, as far as that differs between makers."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.roofline import Roofline
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.symptoms import Symptoms

__all__ = ["times_for_few_bits", "times_the_usual"]

LESS_TUNED: Final = 2.0
"""llama.cpp's kernels for devices that are neither NVIDIA's nor Apple's reach a smaller part of what these can do, and
how much depends on the back end: on one Arc a token took 2.9 times as long with SYCL as with Vulkan
(ggml-org/llama.cpp#26010)."""
APPLE: Final = 1.5
"""One processor's memory serves its CPU too, and the GPUs of early ones can't take all of it: an M1 Max writes 4.3
tokens/s with 42 GB of weights, which is 45 % of its bandwidth (XiongjieDai/GPU-Benchmarks-on-LLM-Inference)."""
FEW_BITS: Final = 4.5
"""A weight: with fewer, tokens take no less time, since unpacking them is what takes it. An RTX 3090 writes 167
tokens/s with 1.75 bits, 143 with 3.06 and 157 with 4.5 (ggml-org/llama.cpp#8215, #15802)."""
COUNT_AS_BITS: Final = 5.5
"""What these take as long as at most: a Tesla P40 writes 31 tokens/s at 3.4 bits, and 48 at 5.5 (#4766)."""
_OTHER_MAKERS: Final = re.compile(r"\b(?:AMD|RADEON|INSTINCT|MI\d+\w?|RX|INTEL|ARC)\b", re.IGNORECASE)


def times_the_usual(symptoms: Symptoms, roofline: Roofline) -> float:
    """How many times as long as on NVIDIA's devices is still usual."""
    backend, device = backend_of(symptoms), roofline.device or ""
    if backend is Backend.METAL or device.lower().startswith("apple"):
        return APPLE
    if backend is not None:
        return 1.0 if backend is Backend.CUDA else LESS_TUNED
    return LESS_TUNED if _OTHER_MAKERS.search(device) else 1.0


def times_for_few_bits(roofline: Roofline) -> float:
    """How many times as long as its bytes explain a token of weights of few bits may take."""
    parameters = roofline.weights.parameters
    bits = 8 * roofline.weights_bytes / parameters if parameters else FEW_BITS
    return COUNT_AS_BITS / bits if bits < FEW_BITS else 1.0
