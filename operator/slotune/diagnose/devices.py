"""Which accelerators a server computes on, how many of them work on a token at a time, and who says so.

Split by layers, llama-server's default, the GPUs take turns with a token: each reads its own layers, so all of them
together read no faster than one. Split by rows or tensors each reads its part of every matrix at the same time.

Where a name, or several names, leave open which of some devices it is, the fastest bounds what it can do, and the
slowest is what it has to be able to do before anybody is told that it is slow.

A part of a device has a part of its bandwidth, though nvidia-smi and a node's labels may name the whole: where anybody
says that it is a part, nothing is known but what was declared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from slotune.diagnose.accelerators import Accelerator, is_part_of_device, known_accelerator
from slotune.diagnose.device_names import all_sizes, figures_of, names_of
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import GPUFacts, Symptoms
from slotune.llama.log_buffers import is_on_host
from slotune.llama.log_lines import LogFacts

__all__ = ["Devices", "accelerator_of", "devices_of"]

SPLITS: Final = frozenset({"none", "layer", "row", "tensor"})
"""What ``-sm`` takes."""

_SHARED: Final = re.compile(r"_Split$")
"""Of the rows of a matrix, over several GPUs."""
_META: Final = re.compile(r"^Meta\((?P<parts>[^)]*)\)$")
"""A buffer of ``-sm tensor``: ``Meta(CUDA0,CUDA1)``."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What computes."""

    gpu: GPUFacts | None
    """One of them, the fastest where they differ; None: not known."""
    named_by: Evidence | None
    """Who named it, where nobody declared what it can do."""
    count: int | None
    """How many hold the model; None: nobody says."""
    split: str | None
    """As ``-sm`` has it, where there are several; None: not known, or one."""
    unknown: str | None = None
    """What there are no figures for: a name, or ``nvidia.com/mig-1g.5gb of NVIDIA-A100-SXM4-40GB``."""
    declared: bool = False
    """Whether somebody stated the bandwidth, so that a name gives no more than operations/s."""
    slowest: Accelerator | None = None
    """Figures of the names that ``gpu`` has the fastest of; None where it has none of a name."""

    @property
    def slower_reading(self) -> float:
        """How many times as long as ``gpu`` the slowest that it may be takes to read."""
        width = None if self.gpu is None else self.gpu.bandwidth_bytes_per_s
        return 1.0 if self.slowest is None or self.declared or not width else width / self.slowest.slowest_bandwidth

    @property
    def slower_computing(self) -> float:
        """The same of its arithmetic."""
        most = None if self.gpu is None else self.gpu.flops_per_s
        least = None if self.slowest is None else self.slowest.slowest_operations
        return most / least if most and least else 1.0

    @property
    def doubt(self) -> str | None:
        """What is taken where names leave open which device it is; None where they do not."""
        if self.slowest is None or self.gpu is None or self.slower_reading == 1:
            return None
        least, most = (width / 1e9 for width in (self.slowest.slowest_bandwidth, self.slowest.bandwidth))
        return (
            f"by its name it may read {least:,.4g} to {most:,.4g} GB/s: the most bounds what it can do, and nothing is "
            "called slow that is usual for the least"
        )

    @property
    def at_once(self) -> int:
        """How many of them read for a token at the same time, at most."""
        if self.count is None or self.count < 2 or self.split in ("layer", "none"):
            return 1
        return self.count

    @property
    def in_turn(self) -> int:
        """How many of them can work on a long prompt, each on a piece of it."""
        return 1 if self.split == "none" else max(1, self.count or 1)

    @property
    def sentence(self) -> str | None:
        """What is taken for true of several; None of one."""
        if self.count is None or self.count < 2:
            return None
        if self.split == "none":
            return f"of {self.count} GPUs one holds the model (-sm none)"
        if self.split == "layer":
            return (
                f"{self.count} GPUs hold the model by layers and take turns: a token is bound by the bandwidth of one, "
                "a long prompt by the operations/s of all"
            )
        how = "by rows or tensors" if self.split is None else f"by {self.split}s"
        assumed = ", if they do not take turns (-sm layer)" if self.split is None else ""
        return f"{self.count} GPUs hold the model {how} and read at the same time{assumed}: their bandwidths add up"


def accelerator_of(symptoms: Symptoms) -> GPUFacts | None:
    """What is known of the device: as declared, else by its name in a driver's, the log's or a node's words."""
    return devices_of(symptoms).gpu


def devices_of(symptoms: Symptoms) -> Devices:
    """What the server computes on, as far as anybody says."""
    declared = symptoms.gpu
    named, by, unknown, figures = _named(symptoms)
    count = _count(symptoms)
    split = _split(symptoms) if count is not None and count > 1 else None
    if declared is None:
        return Devices(named, by, count, split, unknown, slowest=figures)
    known = known_accelerator(declared.name, all_sizes(symptoms))
    if _part(symptoms) is not None:
        named, by, figures = None, None, None
    elif known is not None:
        named, by, figures = GPUFacts(declared.name, known.bandwidth, known.operations), None, known
    if declared.bandwidth_bytes_per_s is not None and declared.flops_per_s is not None:
        by = None
    gpu = replace(
        declared,
        bandwidth_bytes_per_s=declared.bandwidth_bytes_per_s
        or (None if named is None else named.bandwidth_bytes_per_s),
        flops_per_s=declared.flops_per_s or (None if named is None else named.flops_per_s),
    )
    is_declared = declared.bandwidth_bytes_per_s is not None
    return Devices(gpu, by, count, split, unknown, declared=is_declared, slowest=figures)


def _named(symptoms: Symptoms) -> tuple[GPUFacts | None, Evidence | None, str | None, Accelerator | None]:
    """(The fastest of the known names, who has it, a name without figures, figures of all). Where the log says that
    nothing lies on a GPU, a name says nothing about what computes."""
    log = symptoms.log
    if log is not None and log.facts.model_buffers and not log.facts.on_gpu:
        return None, None, None, None
    if (part := _part(symptoms)) is not None:
        return None, None, part, None
    unknown = None
    for names, evidence in names_of(symptoms):
        known = [(figures, name) for name in names if (figures := figures_of(symptoms, name, evidence)) is not None]
        if len(known) == len(names):
            _, name = max(known, key=lambda one: one[0].bandwidth)
            figures = _together([one for one, _ in known])
            return GPUFacts(name, figures.bandwidth, figures.operations), evidence, None, figures
        unknown = unknown or next(name for name in names if figures_of(symptoms, name, evidence) is None)
        if evidence.source is Source.LOG:
            break  # what the server itself found is none of the devices that others name less exactly
    return None, None, unknown, None


def _together(known: Sequence[Accelerator]) -> Accelerator:
    """The fastest and the slowest of several devices."""
    most = [one.operations for one in known if one.operations is not None]
    least = [one.slowest_operations for one in known if one.slowest_operations is not None]
    return Accelerator(
        max(one.bandwidth for one in known),
        max(most) if len(most) == len(known) else None,
        min(one.slowest_bandwidth for one in known),
        min(least) if len(least) == len(known) else None,
    )


def _part(symptoms: Symptoms) -> str | None:
    """The part of a device that it computes on, by a name that says so or by what its pod asks for; None: all of it."""
    names = [name for several, _ in names_of(symptoms) for name in several]
    told = next((name for name in names if is_part_of_device(name)), None)
    if told is not None or symptoms.pod is None or not symptoms.pod.gpu_parts:
        return told
    asked = " and ".join(symptoms.pod.gpu_parts)
    return f"{asked} of {names[0]}" if names else asked


def _count(symptoms: Symptoms) -> int | None:
    """GPUs with weights on them, as the log shows; else those that it found, or that the pod asks for."""
    log, asked = symptoms.log, 0 if symptoms.pod is None else symptoms.pod.gpus
    chosen = settings.stated(symptoms, "-dev")
    if chosen is not None and chosen.values and (log is None or not log.facts.model_buffers):
        return chosen.values[0].count(",") + 1
    if log is None:
        return asked or None
    facts = log.facts
    holding = _holding(facts)
    if facts.model_buffers and not any(_SHARED.search(name) for name in facts.model_buffers):
        return len(holding) or None
    return max(len(holding), facts.gpus, len(facts.devices), asked) or None


def _holding(facts: LogFacts) -> frozenset[str]:
    """Devices that hold weights of the model itself, or with split rows, whose buffer names no device, anything."""
    holding: set[str] = set()
    rows = any(_SHARED.search(name) for name in facts.model_buffers)
    for buffers in (facts.model_buffers, facts.kv_buffers, facts.compute_buffers) if rows else (facts.model_buffers,):
        for name, size in buffers.items():
            if buffers is facts.model_buffers and size <= facts.shape.draft_buffers.get(name, 0):
                continue
            if (meta := _META.match(name)) is not None:
                holding.update(meta["parts"].split(","))
            elif not is_on_host(name) and not _SHARED.search(name):
                holding.add(name)
    return frozenset(holding)


def _split(symptoms: Symptoms) -> str | None:
    """As the buffers show, else as stated, else the default where that is known."""
    names = () if symptoms.log is None else tuple(symptoms.log.facts.model_buffers)
    if any(name.startswith("Meta") for name in names):
        return "tensor"
    if any(_SHARED.search(name) for name in names):
        return "row"
    if names:
        return "layer"
    stated = settings.stated(symptoms, "-sm")
    if stated is not None:
        value = stated.values[0] if stated.values else ""
        return value if value in SPLITS else None
    return "layer" if settings.has_defaults(symptoms) else None
