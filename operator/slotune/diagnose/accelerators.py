"""What well-known accelerators can do at best, for a bound where nobody declared one.

Memory bandwidth in GB/s, and 10^12 operations/s of dense matrix arithmetic at 8 bits, in which llama.cpp's kernels
multiply quantized weights, or at 16 bits where the hardware is no faster at 8. Figures of the makers' data sheets and
architecture papers (NVIDIA: Turing, Ampere, Ada, Hopper and Blackwell papers and data sheets, where "AI TOPS" with
sparsity count half, and those of FP4 a quarter; AMD: CDNA and RDNA product pages; Apple: newsroom; Intel: ARK); each
bandwidth that TechPowerUp's GPU database of December 2025 has too was compared with it, and a heading in the table says
where a row rests on something else. A bound must stay above the truth: of two sources the higher counts.

Cards that share a name (an RTX 3060 with 8 GB has 240 GB/s, one with 12 GB 360) have a row each, and are told apart by
their memory where that differs: ``RTX 3060@7-9`` is one of 7 to 9 GiB. What may be several has the figures of the
fastest as its bound, and of the slowest as what it has to be able to do. None: no figure that counts alike.

A name that is not here has no bound, nor has a part of a device (MIG, vGPU, a compute partition), nor a variant that
only shares a name with one that is here: a laptop's GPU is another device than the card that it is named after. A
device in turns with others (``-SHARED``) is whole while it is one's turn, so its bound holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

__all__ = ["TIMES_AT_FP4", "Accelerator", "is_faster_at_fp4", "is_part_of_device", "known_accelerator"]

GIB: Final = 2**30
MOST_APART: Final = 3.5
"""A name behind which one device reads so many times faster than another says nothing without its memory: ``Orin``."""
_GB: Final = 1e9
_TERA: Final = 1e12

_TABLE: Final = """
# NVIDIA, for servers
H100 80GB HBM3 3350 1979|H100 SXM5 3350 1979|H800 3350 1979|GB10 273 250|NVIDIA THOR 273 -
A100 PCIE 40GB 1555 624|A100 SXM4 40GB 1555 624|A100 80GB PCIE 1935 624|A100 PCIE 80GB 1935 624
A100 SXM4 80GB 2039 624|A100 SXM 80GB 2039 624|A800 SXM4 80GB 2039 624|A800 80GB PCIE 1935 624
A30 933 330|A10G 600 252|A10 600 250|A40 696 299|A2 200 36|A16 200 36
L40S 864 733|L40 864 362|L4 300 242|L20 864 239|TESLA T4 320 130|T4 320 130
V100 900 125|V100 SXM3 32GB 981 131|V100S 1134 130|TESLA P40 347 -
# NVIDIA, where the sheet rounds down: by the memory's clock (H200: 3201 MHz by 6144 bits, B200: 3996 MHz by 8192)
H200 4917 1979|H200 NVL 4917 1671|H20 3E 4917 296|GH200 144G HBM3E 4917 1979|H20 4022 296|GH200 480GB 4022 1979
H100 NVL 3938 1671|H100 PCIE 2039 1513|H800 PCIE 2039 1513
B200 8184 4500|GB200 8184 5000|B300 8184 -|GB300 8184 -
# NVIDIA, for workstations
RTX A6000 768 310|RTX A5500 768 273|RTX A5000 768 222|RTX A4500 640 189|RTX A4000 448 153|RTX A2000 288 64
RTX 6000 ADA GENERATION 960 728|RTX 5000 ADA GENERATION 576 522|RTX 4500 ADA GENERATION 432 317
RTX 4000 ADA GENERATION 360 214|RTX 4000 SFF ADA GENERATION 280 153
RTX PRO 6000 BLACKWELL WORKSTATION EDITION 1792 1008|RTX PRO 6000 BLACKWELL MAX Q WORKSTATION EDITION 1792 878
RTX PRO 5000 BLACKWELL 1344 517|RTX PRO 5000 72GB BLACKWELL 1344 517
RTX PRO 4500 BLACKWELL 896 -|RTX PRO 4000 BLACKWELL 672 -
QUADRO RTX 8000 672 261|QUADRO RTX 6000 672 261|QUADRO RTX 5000 448 178|QUADRO RTX 4000 416 114|TITAN RTX 672 261
# NVIDIA's word, which TechPowerUp contradicts (1792; its clock, 12481 MHz by 512 bits, agrees with NVIDIA)
RTX PRO 6000 BLACKWELL SERVER EDITION 1597 1000
# the higher of NVIDIA's word and TechPowerUp's: 960 and 864, 224 and 256
RTX 5880 ADA GENERATION 960 554|RTX 2000 ADA GENERATION 256 96
# GeForce
RTX 5090 1792 838|RTX 5090 D 1792 594|RTX 5080 960 450|RTX 5070 TI 896 352|RTX 5070 672 247
RTX 5060 TI 448 190|RTX 5060 448 154|RTX 5050 320 105
RTX 5090 LAPTOP 896 -|RTX 5080 LAPTOP 896 -|RTX 5070 TI LAPTOP 672 -|RTX 5070 LAPTOP 384 -|RTX 5060 LAPTOP 384 -
RTX 4090 1008 661|RTX 4090 D 1008 588|RTX 4080 SUPER 736 418|RTX 4080 717 390|RTX 4070 TI SUPER 672 353
RTX 4070 TI 504 321|RTX 4070 SUPER 504 284|RTX 4060 TI 288 177|RTX 4060 272 121
RTX 4090 LAPTOP 576 -|RTX 4080 LAPTOP 432 -|RTX 4070 LAPTOP 256 -|RTX 4060 LAPTOP 256 -|RTX 4050 LAPTOP 192 -
RTX 3090 TI 1008 320|RTX 3090 936 285|RTX 3080 TI 912 273|RTX 3070 TI 608 174|RTX 3070 448 163
RTX 3080 TI LAPTOP 512 -|RTX 3070 TI LAPTOP 448 -
RTX 2080 TI 616 228|RTX 2080 SUPER 496 178|RTX 2080 448 170|RTX 2070 SUPER 448 145|RTX 2070 448 126
RTX 2060 SUPER 448 115|GTX 1660 TI 288 -|GTX 1660 SUPER 336 -|GTX 1660 192 -
GTX 1080 TI 484 -|GTX 1070 TI 256 -|GTX 1070 256 -
# GeForce with several memories under one name, by GiB where these tell
RTX 4070 504 233|RTX 4070 480 233|RTX 3060 TI 608 130|RTX 3060 TI 448 130
RTX 3080@9-10.5 760 238|RTX 3080@11-12.5 912 245|RTX 3060@7-9 240 102|RTX 3060@11-12.5 360 102
RTX 3050@5-6.5 168 54|RTX 3050@7-9 224 73|RTX 2060@5-6.5 336 103|RTX 2060@11-12.5 336 115
RTX 3080 LAPTOP@7-9 448 -|RTX 3080 LAPTOP@15-16.5 448 -|RTX 3080 LAPTOP@15-16.5 384 -
RTX 3070 LAPTOP 448 -|RTX 3070 LAPTOP 384 -|RTX 3060 LAPTOP 336 -|RTX 3060 LAPTOP 288 -
RTX 3050 LAPTOP@3-4.5 224 -|RTX 3050 LAPTOP@3-4.5 176 -|RTX 3050 LAPTOP@5-6.5 168 -
GTX 1080 352 -|GTX 1080 320 -|GTX 1060@2-3.5 192 -|GTX 1060@4.5-5.2 160 -|GTX 1060@5.5-6.5 217 -|GTX 1060@5.5-6.5 192 -
GTX 1650 192 -|GTX 1650 128 -
# Jetson, with the slowest clock of the memory in its power modes; CUDA gives no more than the family's name
AGX ORIN 205 -|AGX ORIN 136.5 -|ORIN NX 102.4 -|ORIN NX 68 -
ORIN NANO@6-8 102.4 -|ORIN NANO@6-8 68 -|ORIN NANO@3-4 51 -|ORIN NANO@3-4 34 -
ORIN@26-64 205 -|ORIN@26-64 136.5 -|ORIN@13-16 102.4 -|ORIN@13-16 68 -
ORIN@6-8 102.4 -|ORIN@6-8 68 -|ORIN@3-4 51 -|ORIN@3-4 34 -|AGX XAVIER 137 -
# AMD; of MI300 and MI325, to which TechPowerUp gives twice as much, AMD's word; of MI250, one of its two devices
INSTINCT MI355X 8192 5033|INSTINCT MI350X 8192 4614|INSTINCT MI325X 6000 2615|INSTINCT MI300X 5325 2615
INSTINCT MI300A 5325 1961|INSTINCT MI250X 1638 192|INSTINCT MI250 1638 181|INSTINCT MI210 1638 181
INSTINCT MI100 1229 185|INSTINCT MI60 1024 -|INSTINCT MI50 1024 -|RADEON VII 1024 -
RADEON AI PRO R9700 645 383|RADEON PRO W7900 864 123|RADEON PRO W7800 48GB 864 90|RADEON PRO W7800 576 90
RADEON PRO W6800 512 -|RADEON RX 9070 XT 645 389|RADEON RX 9070 645 289|RADEON RX 9060 XT 322 205
RADEON RX 7900 XTX 960 123|RADEON RX 7900 XT 800 103|RADEON RX 7900 GRE 576 92|RADEON RX 7800 XT 624 75
RADEON RX 7700 XT 432 70|RADEON RX 7600 XT 288 45|RADEON RX 7600 288 44
RADEON RX 6950 XT 576 -|RADEON RX 6900 XT 512 -|RADEON RX 6800 XT 512 -|RADEON RX 6800 512 -|RADEON RX 6750 XT 432 -
RADEON RX 6700 XT 384 -|RADEON RX 6650 XT 280 -|RADEON RX 6600 XT 256 -|RADEON RX 6600 224 -|RADEON RX 5700 XT 448 -
# memory of the host, by AMD's word: LPDDR5X-8000 by 256 bits
RADEON 8060S 256 -|RADEON 8050S 256 -
# Apple's word; its names tell no cores, and what Metal takes of the memory tells most of them
APPLE M1 68.3 -|APPLE M1 PRO 205 -|APPLE M1 MAX 410 -|APPLE M1 ULTRA 819 -|APPLE M2 102.4 -|APPLE M2 PRO 205 -
APPLE M2 MAX 410 -|APPLE M2 ULTRA 819 -|APPLE M3 102.4 -|APPLE M3 PRO 153.6 -|APPLE M3 ULTRA 819 -
APPLE M4 120 -|APPLE M4 PRO 273 -|APPLE M5 153.6 -|APPLE M5 PRO 307.2 -
APPLE M3 MAX@22-31 300 -|APPLE M3 MAX@33-60 410 -|APPLE M3 MAX@65-88 300 -|APPLE M3 MAX@90-127 410 -
APPLE M4 MAX@22-31 410 -|APPLE M4 MAX@33-127 546 -|APPLE M5 MAX@22-31 460 -|APPLE M5 MAX@33-127 614.4 -
# Intel
ARC A770@7-9 512 275|ARC A770@14-16.5 560 275|ARC A750 512 229|ARC A580 512 197|ARC A380 186 -|ARC A310 124 -
ARC B580 456 233|ARC B570 380 203
ARC PRO B60 456 197|ARC PRO B50 224 170|DATA CENTER GPU MAX 1100 1229 -
"""


class Accelerator(NamedTuple):
    """What a device can do at best: bytes/s, and operations/s or None."""

    bandwidth: float
    operations: float | None
    slowest_bandwidth: float
    """Of the slowest device that it may be."""
    slowest_operations: float | None


class _Row(NamedTuple):
    bandwidth: float
    operations: float | None
    least: float = 0.0
    most: float = float("inf")
    """Bytes of memory."""


def _rows(table: str) -> dict[str, list[_Row]]:
    known: dict[str, list[_Row]] = {}
    for line in table.strip().splitlines():
        for row in () if line.startswith("#") else line.split("|"):
            named, bandwidth, operations = row.rsplit(" ", 2)
            name, _, memory = named.partition("@")
            sizes = (float(size) * GIB for size in memory.split("-")) if memory else ()
            figures = float(bandwidth) * _GB, None if operations == "-" else float(operations) * _TERA
            known.setdefault(name, []).append(_Row(*figures, *sizes))
    return known


_KNOWN: Final = _rows(_TABLE)
_NAMES: Final = re.compile(r"\b(?:" + "|".join(sorted(_KNOWN, key=len, reverse=True)) + r")\b")
"""Alternatives are tried in order, so that a variant is found before the plain name."""
_SIZE: Final = re.compile(r"\b(\d+) ?GB\b")
_PART: Final = re.compile(r"\b(?:MIG|VGPU|GRID|[CDQT]PX|\d+[QABC](?:ME)?)\b|\b\dG \d+GB\b")
"""What a name has of which only a part is there."""
_ANOTHER: Final = re.compile(
    r"\b(?:LAPTOP|MOBILE|NOTEBOOK|EMBEDDED|MAX Q|TI|SUPER|D|V2|XT|XTX|GRE|PRO|MAX|ULTRA|ADA|BLACKWELL|SFF|NVL|CMP)\b"
)
"""Words that make of a name another device."""

TIMES_AT_FP4: Final = 2.0
"""As many operations/s of 4-bit floating point as of 8 bits, on GPUs that have these."""
_BLACKWELL: Final = re.compile(r"\b(?:RTX 50\d0|BLACKWELL|G?B200|G?B300|GB10|THOR)\b")


def is_faster_at_fp4(name: str) -> bool:
    """Whether the device of that name multiplies MXFP4 and NVFP4 as they are: NVIDIA's of the Blackwell generation."""
    return _BLACKWELL.search(re.sub(r"[^A-Z0-9]+", " ", name.upper())) is not None


def is_part_of_device(name: str) -> bool:
    """Whether ``name`` says that it is of a part of a device: ``NVIDIA A100-SXM4-40GB MIG 1g.5gb``, ``GRID T4-8Q``."""
    return _PART.search(_words(name)) is not None


def known_accelerator(name: str, sizes: Collection[int] = (), at_least: int = 0) -> Accelerator | None:
    """Figures of the device that ``name`` contains as a word, or None.

    Args:
        name: as a driver, llama.cpp or a node label has it: ``NVIDIA L4``, ``NVIDIA-A100-SXM4-80GB``, ``Intel(R)
            Arc(TM) A770 Graphics``, ``AMD Radeon RX 7900 XTX (RADV NAVI31)``, ``2 x NVIDIA L4`` (of each).
        sizes: bytes of its memory; several where there are several of that name. Empty: what its name says, if that.
        at_least: bytes that it has at least, where it is not known how many.
    """
    words = _words(name)
    found = _NAMES.search(words)
    if found is None or _PART.search(words) or _ANOTHER.search(words[: found.start()] + " " + words[found.end() :]):
        return None
    rows = _may_be(_KNOWN[found[0]], sizes or _named_sizes(words), at_least)
    bandwidths = [row.bandwidth for row in rows]
    operations = [row.operations for row in rows if row.operations is not None]
    if max(bandwidths) > MOST_APART * min(bandwidths):
        return None
    most = max(operations) if len(operations) == len(rows) else None
    return Accelerator(max(bandwidths), most, min(bandwidths), None if most is None else min(operations))


def _may_be(rows: list[_Row], sizes: Collection[int], at_least: int) -> list[_Row]:
    """Those with memory of that size; all where that fits none."""
    fitting = [row for row in rows if any(row.least <= size <= row.most for size in sizes)]
    return fitting or [row for row in rows if row.most >= at_least] or rows


def _named_sizes(words: str) -> tuple[int, ...]:
    """``GTX 1060 6GB``. Apple's are of the machine, of which a GPU gets a part."""
    found = None if "APPLE" in words else _SIZE.search(words)
    return () if found is None else (int(found[1]) * GIB,)


def _words(name: str) -> str:
    return re.sub(r"[^A-Z0-9]+", " ", re.sub(r"\((?:R|TM|C)\)", " ", name.upper()))
