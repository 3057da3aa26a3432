"""Which GPUs a start of llama-server names: that a device was found says nothing about whether it is used.

Each back end has words of its own, and a server names a device up to four times: as its back end found it, in the list
of devices, in the plan for their memory, and when it loads a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "DEVICE_LINE",
    "NAMED_LINE",
    "device_free",
    "device_sizes",
    "devices_found",
    "devices_used",
    "gpus_in_use",
]

MIB: Final = 2**20

_KINDS: Final = "CUDA|ROCm|HIP|MUSA|Vulkan|SYCL|Metal|MTL|OpenCL|CANN|GPUOpenCL|OpenVINO"

_NAMED: Final = (
    # "using device CUDA0 (NVIDIA L4) (0000:01:00.0) - 22000 MiB free", at each load of a model
    rf"using device (?:{_KINDS})\d* \((?P<used>[^\n]+?)\)(?: \([^()\n]*\))? - \d+ MiB free",
    # "  Device 0: NVIDIA L4, compute capability 8.9, VMM: yes", and "gfx1100 (0x1100)" of ROCm
    r"\bDevice \d+: (?P<init>[^,\n]+), (?:compute capability|gfx)",
    # "ggml_vulkan: 0 = NVIDIA L4 (NVIDIA) | uma: 0 | fp16: 1"
    r"ggml_vulkan: \d+ = (?P<vulkan>[^|\n]+?)(?: \([^()|\n]*\))? *\| uma",
    r"ggml_metal_\w+: (?:found device|GPU name): +(?P<metal>[^\n]+)",
    r"ggml_opencl: (?:selected )?device:? +'(?P<opencl>[^'\n]+)",
    # the list of devices, "  - CUDA0 : NVIDIA L4 (22565 MiB, 22000 MiB free)"
    rf"- (?:{_KINDS})\d* *: (?P<listed>[^|\n]+?) \(\d+ MiB",
    # what -fit expects of each, "- CUDA0 (NVIDIA L4):  22565 total,  21000 used"
    rf"- (?:{_KINDS})\d+ \((?P<fitted>[^|\n]+?)\): +\d+ total",
    # the plan for their memory, "|   - CUDA0 (L4)   | 22565 = 21000 + ..."
    rf"\|   - (?:{_KINDS})\d* \((?P<planned>[^|\n]+)\) +\|",
    # a row of SYCL's own table, "| 0| [level_zero:gpu:0]|  Intel Arc A770 Graphics|  12.55|  512| 1024|  32| 16225M|"
    r"\| *\d+\| *\[(?:level_zero|opencl):gpu:\d+\]\| *(?P<sycl>[^|\n]+?) *\|",
)
_COUNTED: Final = rf"[Ff]ound (?P<count>[1-9]\d*) (?P<kind>{_KINDS}) devices"
_BUFFER: Final = rf"(?P<buffer>(?:{_KINDS})\d*) +(?:compute|KV|RS|model) buffer size ="
"""A buffer on a device: what is there when the log was cut, or kept at a low verbosity, before the rest."""
DEVICE_LINE: Final = "|".join(re.sub(r"\?P<\w+>", "?:", words) for words in (*_NAMED, _COUNTED, _BUFFER))
"""Matches a line that names a device, or says how many there are."""

NAMED_LINE: Final = "|".join(re.sub(r"\?P<\w+>", "?:", words) for words in _NAMED)
"""Matches a line that has a device's own name."""

_TOGETHER: Final = re.compile(r"(?:Meta\((?P<names>[^)\n]+)\)|\w+_Split) model buffer size =")
"""Weights with their rows (``-sm row``) or tensors (``-sm tensor``) over several devices."""
_SOFTWARE: Final = re.compile(r"llvmpipe|SwiftShader|lavapipe|softpipe|Microsoft Basic Render", re.IGNORECASE)
"""Vulkan devices that are the processor."""
_SOURCES: Final = (
    ("listed",),
    ("init", "vulkan", "metal", "opencl", "sycl"),
    ("used",),
    ("fitted",),
    ("planned",),
    ("kind",),
    ("buffer",),
)
"""The first that names a device counts: they spell the same one differently."""
_PATTERN: Final = re.compile("|".join((*_NAMED, _COUNTED, _BUFFER)))
_NUMBER: Final = re.compile(rf"(?P<kind>{_KINDS}|Device |ggml_vulkan: |\| *)(?P<number>\d+)")
_IN_USE: Final = frozenset({"used", "buffer"})
_SIZED: Final = re.compile(
    r"\bDevice \d+: (?P<init>[^,\n]+), [^\n]*?VRAM: (?P<init_mib>\d+) MiB"
    rf"|- (?:{_KINDS})\d* *: (?P<listed>[^|\n]+?) \((?P<listed_mib>\d+) MiB, \d+ MiB free"
    rf"|- (?:{_KINDS})\d+ \((?P<fitted>[^|\n]+?)\): +(?P<fitted_mib>\d+) total"
    rf"|\|   - (?:{_KINDS})\d* \((?P<planned>[^|\n]+)\) +\| *(?P<planned_mib>\d+) ="
    r"|\| *\d+\| *\[(?:level_zero|opencl):gpu:\d+\]\| *(?P<sycl>[^|\n]+?) *\|"
    r"(?:[^|\n]*\|){4} *(?P<sycl_size>\d+)(?P<mb>M?)\|"
    r"|ggml_metal_\w+: (?:found device|GPU name): +(?P<metal>[^\n]+)"
    r"|recommendedMaxWorkingSetSize +=+ +(?P<working_set>\d+)(?:\.\d+)? MB"
)
_PLACED: Final = re.compile(
    rf"using device (?P<taken>(?:{_KINDS})\d*) \((?P<taken_name>[^\n]+?)\)(?: \([^()\n]*\))? - \d+ MiB free"
    rf"|- (?P<listed>(?:{_KINDS})\d*) *: (?P<listed_name>[^|\n]+?) \(\d+ MiB"
    rf"|(?P<holds>(?:{_KINDS})\d*)(?:_Mapped|_Private)? model buffer size =(?! +0\.00 )"
)
_FREE: Final = re.compile(rf"using device (?:{_KINDS})\d* \(([^\n]+?)\)(?: \([^()\n]*\))? - (\d+) MiB free")


def devices_found(text: str) -> tuple[str, ...]:
    """The GPUs that ``text`` names, each once; without a name ``2 CUDA devices``, or the name of a buffer's device."""
    found: dict[str, dict[str, None]] = {}
    for match in _PATTERN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "kind":
            count = int(match["count"])
            found.setdefault(kind, {})[f"{count} {match['kind']} device{'s' if count > 1 else ''}"] = None
        else:
            found.setdefault(kind, {})[match[kind].strip()] = None
    for source in _SOURCES:
        if names := tuple(name for kind in source for name in found.get(kind, ())):
            return tuple(name for name in names if not _SOFTWARE.search(name))
    return ()


def devices_used(text: str) -> tuple[str, ...]:
    """Names of the GPUs that weights lie on, each once; else of those that were taken for a model. Empty: the log does
    not say, so that it may be all that were found."""
    names: dict[str, str] = {}
    taken: dict[str, None] = {}
    holding: dict[str, None] = {}
    for match in _PLACED.finditer(text):
        if match["holds"]:
            holding[match["holds"]] = None
        else:
            kind = "taken" if match["taken"] else "listed"
            names.setdefault(match[kind], match[f"{kind}_name"].strip())
            if kind == "taken":
                taken[match[kind]] = None
    places = holding if holding and all(place in names for place in holding) else taken
    return tuple(dict.fromkeys(names[place] for place in places))


def device_sizes(text: str) -> Mapping[str, tuple[int, ...]]:
    """Bytes of memory of each GPU that ``text`` names; several where GPUs of one name, or what says so, differ.

    Of Apple's, which have the host's memory, what Metal lets programs take of it.
    """
    found: dict[str, dict[int, None]] = {}
    metal: str | None = None
    for match in _SIZED.finditer(text):
        kind = match.lastgroup or ""
        if kind == "metal":
            metal = match["metal"].strip()
        elif kind == "working_set":
            if metal is not None:
                found.setdefault(metal, {})[int(match[kind]) * 1_000_000] = None
        elif kind == "mb":
            unit = 1_000_000 if match["mb"] else 1
            found.setdefault(match["sycl"], {})[int(match["sycl_size"]) * unit] = None
        else:
            name = kind.removesuffix("_mib")
            found.setdefault(match[name].strip(), {})[int(match[kind]) * MIB] = None
    return {name: tuple(sizes) for name, sizes in found.items()}


def device_free(text: str) -> Mapping[str, int]:
    """Bytes that were free on each GPU when a model was loaded, which is as much as it has at least."""
    free: dict[str, int] = {}
    for name, mib in _FREE.findall(text):
        free[name] = max(free.get(name, 0), int(mib) * MIB)
    return free


def gpus_in_use(text: str) -> int:
    """How many GPUs a model lies on; where ``text`` does not say that, how many are there; 0 where it names none.

    Two back ends that find the same ones (CUDA and Vulkan) do not make more of them.
    """
    used: dict[str, set[str]] = {}
    there: dict[str, set[str]] = {}
    counted = 0
    for match in _PATTERN.finditer(text):
        source = match.lastgroup or ""
        if source == "kind":
            counted = max(counted, int(match["count"]))
        elif not _SOFTWARE.search(match[source]):
            number = _NUMBER.search(match[0])
            kind, index = (source, match[source]) if number is None else (number["kind"], number["number"])
            (used if source in _IN_USE else there).setdefault(f"{source} {kind}", set()).add(index)
    if together := _TOGETHER.search(text):  # one buffer over several, or over all that there are
        if together["names"]:
            return together["names"].count(",") + 1
        used = {kind: found for kind, found in used.items() if kind.startswith("used")}
    return max(map(len, used.values()), default=0) or max([counted, *map(len, there.values())])
