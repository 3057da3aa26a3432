"""Which extended resources are what a model runs on, and for how many devices an amount of each stands.

Told by the name behind the slash, for a vendor's domain says nothing: ``gpu.intel.com`` has devices, shares and a
monitor. A share of a device, such as its memory or its cores, is asked for beside it or in its place, in units of its
own, and however large never makes two of it, unless it counts percent of one.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

__all__ = ["devices_in", "is_gpu_class", "is_gpu_part", "is_gpu_resource"]

_DEVICE: Final = re.compile(
    r"(^|[-._])[vs]{0,2}(gpus?|mig|i915|xe|xpu|npu|tpus?|gaudi\d?|ascend\w*|mlu\d*|dcu(num)?|gcu|ppu|neuron(device)?|qaic"
    r"|[sdtqc]px_nps\d)(?=[-._]|\d|$)"
)
"""Names of devices: NVIDIA's and AMD's with their partitions, Intel's two drivers, and the accelerators of others."""

_SHARE: Final = re.compile(
    r"(^|[-._]|gpu|cuda|neuron)(mem|memory|cores?|millicores|ratio|percent|percentage|tiles|monitoring|vcore|vmemory)"
    r"(?=[-._]|$)"
)
"""Names of a part of a device."""

_PERCENT: Final = frozenset(
    {"koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio", "tencent.com/vcuda-core"}
)
"""Resources of which 100 are one device."""

_PART: Final = re.compile(r"(^|[-._])(mig(?=[-._]|\d|$)|[dtqc]px_nps\d)")
"""NVIDIA's and AMD's names of partitions, each with a part of the memory and of its bandwidth."""

_CORES: Final = re.compile(r"(^|[-._]|gpu|cuda)v?(cores?|percent(age)?)(?=[-._]|$)")
"""Names of a time share of a device's multiprocessors, in percent of one."""

_NO_GPU_CLASS: Final = re.compile(
    r"(^|[-._/])(nic|net|network|dranet|rdma|roce|ib|infiniband|sriov|cpu|memory|fpga)(?=[-._/]|$)"
)


def is_gpu_resource(name: str) -> bool:
    """Whether an extended resource is a device that a model runs on, or a part of one."""
    kind = name.lower().partition("/")[2]
    return bool(_DEVICE.search(kind) or (_SHARE.search(kind) and re.search(r"gpu|cuda|neuron", name.lower())))


def devices_in(name: str, amount: Decimal) -> int:
    """How many devices ``amount`` of an extended resource stands for; 0: a part of one, or none."""
    if name in _PERCENT:
        return math.ceil(amount / 100) if amount > 100 else 0
    kind = name.lower().partition("/")[2]
    return int(amount) if is_gpu_resource(name) and not _SHARE.search(kind) else 0


def is_gpu_part(name: str, amount: Decimal) -> bool:
    """Whether ``amount`` of an extended resource lets a pod use no more than a part of a device's bandwidth.

    True of hardware partitions and of a share of its cores; not of memory alone, nor of a device in turns with others.
    """
    kind = name.lower().partition("/")[2]
    if not is_gpu_resource(name) or amount <= 0:
        return False
    if name in _PERCENT or _CORES.search(kind):
        return "mem" not in kind and amount % 100 != 0
    return _PART.search(kind) is not None


def is_gpu_class(device_class: str) -> bool:
    """Whether a DeviceClass may be one of GPUs: all but those of networks and hosts, for anybody names them."""
    return _NO_GPU_CLASS.search(device_class.lower()) is None
