"""What well-known accelerators can do at best, for a bound where nobody declared one.

Memory bandwidth in bytes/s and dense half-precision matrix operations/s (FP32 accumulation) of the makers' data sheets
and architecture papers. Where a sheet names only the figure with sparsity, half of it stands here; None: no figure that
counts alike. A name that is not here has no bound, nor has a part of a device (MIG, vGPU) or a variant that shares a
name (Laptop, Ti, SUPER): a GPUClass may state one.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["known_accelerator"]

_GB: Final = 1e9
_TERA: Final = 1e12

_KNOWN: Final[tuple[tuple[str, float, float | None], ...]] = (
    # The longest name that fits wins, so a variant stands beside the plain name.
    ("H200", 4800, 989),
    ("H100 PCIE", 2000, 756),
    ("H100 NVL", 3900, 835),
    ("H100 80GB HBM3", 3350, 989),
    ("H100 SXM5", 3350, 989),
    ("A100 80GB PCIE", 1935, 312),
    ("A100 PCIE 40GB", 1555, 312),
    ("A100 SXM4 40GB", 1555, 312),
    ("A100 SXM4 80GB", 2039, 312),
    ("A30", 933, 165),
    ("A10G", 600, None),
    ("A10", 600, 125),
    ("A40", 696, 150),
    ("RTX A6000", 768, 155),
    ("RTX 6000 ADA GENERATION", 960, 364),
    ("L40S", 864, 362),
    ("L40", 864, 181),
    ("L4", 300, 121),
    ("TESLA T4", 320, 65),
    ("T4", 320, 65),
    ("V100", 900, 125),
    ("RTX 5090", 1792, 209),
    ("RTX 4090", 1008, 165),
    ("RTX 4080", 717, 97),
    ("RTX 3090", 936, 71),
    ("INSTINCT MI300X", 5300, 1307),
    ("INSTINCT MI210", 1638, 181),
    ("RADEON RX 7900 XTX", 960, 123),
    ("APPLE M1 MAX", 400, None),
    ("APPLE M2 MAX", 400, None),
    ("APPLE M2 ULTRA", 800, None),
    ("APPLE M4 MAX", 546, None),
)
_ANOTHER: Final = re.compile(
    r"\b(?:MIG|LAPTOP|MOBILE|MAX Q|TI|SUPER|D|VGPU|GRID|\d+[QABC])\b|\b\dG \d+GB\b",
)
"""Words that make of a name another device, or a part of one."""


def known_accelerator(name: str) -> tuple[float, float | None] | None:
    """(bytes/s, operations/s or None) of the device that ``name`` contains as a word, or None.

    ``name`` as a driver or a node label has it: ``NVIDIA L4``, ``NVIDIA-A100-SXM4-80GB``, ``2 x NVIDIA L4`` (of each).
    """
    words = re.sub(r"[^A-Z0-9]+", " ", name.upper())
    fitting = [one for one in _KNOWN if re.search(rf"\b{one[0]}\b", words)]
    if not fitting:
        return None
    model, bandwidth, operations = max(fitting, key=lambda one: len(one[0]))
    if _ANOTHER.search(words.replace(model, " ")):
        return None
    return bandwidth * _GB, None if operations is None else operations * _TERA
