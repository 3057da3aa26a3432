"""What the devices of a server are called, by whom, and which of the devices that are called so they are.

A driver, llama.cpp and a node's label name the same device alike, but for separators, and for what nvidia-smi cuts off.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from slotune.diagnose.accelerators import Accelerator, known_accelerator
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_lines import LogFacts
from slotune.load.device_facts import SLICED, DeviceFacts
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["all_sizes", "are_others", "figures_of", "logged_names", "names_of", "seen_names"]

LABEL: Final = "nvidia.com/gpu.product"
MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""In MiB."""
MIB: Final = 2**20
_CUT: Final = "..."
_NAMELESS: Final = re.compile(r"\d+ \w+ devices?|[A-Za-z]+\d+|GPU [\w:.-]*")
"""``2 CUDA devices``, the name of a buffer's device, or a GPU by its address."""


def names_of(symptoms: Symptoms) -> list[tuple[tuple[str, ...], Evidence]]:
    """Names of the devices, by whoever knows best first."""
    found: list[tuple[tuple[str, ...], Evidence]] = []
    if symptoms.device is not None:
        names = tuple(name for name in seen_names(symptoms.device) if not name.endswith(_CUT))
        evidence = next(iter(symptoms.device_evidence), Evidence(Source.DEVICE, symptoms.device.name[:LONGEST]))
        found += [(names, evidence)] if names else []
    log = symptoms.log
    if log is not None:
        names = logged_names(log.facts)
        if names:
            line = log.fact_lines.get("devices")
            text, number = (", ".join(names), None) if line is None else (line.text, line.number)
            found.append((names, Evidence(Source.LOG, text[:LONGEST], number)))
    has_gpu = symptoms.pod is None or symptoms.pod.gpus > 0
    if has_gpu and symptoms.node is not None and (product := symptoms.node.labels.get(LABEL)):
        found.append(((product,), Evidence(Source.NODE, f"{LABEL}={product}"[:LONGEST])))
    return found


def seen_names(device: DeviceFacts) -> tuple[str, ...]:
    """``3 x NVIDIA L4 and NVIDIA T4``: two. A name that nvidia-smi cut short ends with three dots."""
    names = re.sub(r"^\d+ x ", "", device.name).split(" and ")
    return tuple(name for name in names if not _NAMELESS.fullmatch(name))


def logged_names(facts: LogFacts) -> tuple[str, ...]:
    """Of the devices that the model lies on by the log, else of all that it found."""
    names = facts.devices_used or facts.devices
    return tuple(name for name in names if not _NAMELESS.fullmatch(name))


def are_others(names: Collection[str], others: Collection[str]) -> bool:
    """Whether none of ``names`` can be one of ``others``: none is the other, or a part of it."""
    here, there = ({_bare(name) for name in some} for some in (names, others))
    return not any(one in other or other in one for one in here for other in there)


def _bare(name: str) -> str:
    whole = name.removesuffix(_CUT).removesuffix(SLICED)
    return re.sub(r"[^a-z0-9]", "", whole.lower())


def figures_of(symptoms: Symptoms, name: str, evidence: Evidence) -> Accelerator | None:
    """By the name and the memory of what is called so, by whoever named it, else by others."""
    device, node = symptoms.device, symptoms.node
    facts = LogFacts() if symptoms.log is None else symptoms.log.facts
    sizes: tuple[int, ...] = ()
    if evidence.source is Source.NODE:
        label = "" if node is None else node.labels.get(MEMORY_LABEL, "")
        sizes = (int(label) * MIB,) if label.isdecimal() else ()
    elif isinstance(device, DeviceSnapshot) and name in seen_names(device):
        sizes = device.memory_sizes
    return known_accelerator(name, sizes or facts.device_sizes.get(name, ()), facts.device_free.get(name, 0))


def all_sizes(symptoms: Symptoms) -> tuple[int, ...]:
    """Of all devices that anybody saw."""
    device = symptoms.device
    if isinstance(device, DeviceSnapshot) and device.memory_sizes:
        return device.memory_sizes
    logged = {} if symptoms.log is None else symptoms.log.facts.device_sizes
    return tuple(size for sizes in logged.values() for size in sizes)
