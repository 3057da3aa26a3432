"""How many accelerators a server is paid for: a price is that of one."""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.devices import devices_of
from slotune.diagnose.symptoms import Symptoms

__all__ = ["gpu_count"]

_SEVERAL: Final = re.compile(r"(\d+) x ")


def gpu_count(symptoms: Symptoms) -> int:
    """At least 1. What its pod asks for is paid for whether it is used or not; then comes what the log says that the
    model lies on, then what nvidia-smi showed, if the server computes on all of it."""
    if symptoms.pod is not None and symptoms.pod.gpus:
        return symptoms.pod.gpus
    if (holding := devices_of(symptoms).count) is not None:
        return holding
    device = symptoms.device
    if device is None or not device.of_server:
        return 1
    several = _SEVERAL.match(device.name)
    return max(1, len(device.uuids), int(several[1]) if several else 1)
