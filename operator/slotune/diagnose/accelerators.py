"""What well-known accelerators can do at best, for a bound where nobody declared one.

Memory bandwidth in bytes/s and dense half-precision tensor operations/s (FP32 accumulation) of the makers' data sheets:
NVIDIA T4, V100, A10, A30, L4, L40S, A100, H100, H200, RTX 3090, 4090 and 5090 architecture papers. Where a sheet names
only the figure with sparsity, half of it stands here. A name that is not here has no bound; a GPUClass may state one.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["known_accelerator"]

_GB: Final = 1e9
_TERA: Final = 1e12

_KNOWN: Final[tuple[tuple[str, float, float], ...]] = (
    # The longest name that fits wins, so a variant stands beside the plain name.
    ("H200", 4800, 989),
    ("H100 PCIE", 2000, 756),
    ("H100 NVL", 3900, 835),
    ("H100", 3350, 989),
    ("A100 80GB PCIE", 1935, 312),
    ("A100 SXM4 80GB", 2039, 312),
    ("A100 80GB", 1935, 312),
    ("A100", 1555, 312),
    ("A30", 933, 165),
    ("A10G", 600, 70),
    ("A10", 600, 125),
    ("L40S", 864, 362),
    ("L40", 864, 181),
    ("L4", 300, 121),
    ("T4", 300, 65),
    ("V100", 900, 125),
    ("RTX 5090", 1792, 209),
    ("RTX 4090", 1008, 165),
    ("RTX 3090", 936, 71),
)


def known_accelerator(name: str) -> tuple[float, float] | None:
    """(bytes/s, operations/s) of the device that ``name`` contains as a word, or None.

    ``name`` as a driver or a node label has it: ``NVIDIA L4``, ``NVIDIA-A100-SXM4-80GB``, ``2 x NVIDIA L4`` (of each).
    """
    words = re.sub(r"[^A-Z0-9]+", " ", name.upper())
    fitting = [one for one in _KNOWN if re.search(rf"\b{one[0]}\b", words)]
    if not fitting:
        return None
    _, bandwidth, operations = max(fitting, key=lambda one: len(one[0]))
    return bandwidth * _GB, operations * _TERA
