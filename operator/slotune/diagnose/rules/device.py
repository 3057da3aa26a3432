"""Is the GPU slowed down, or shared with somebody? What NVML saw beside a run, or nvidia-smi printed into a file.

A GPU at its power limit is not slowed down: that is where many work best, and they are there whenever they work.
"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.decode import is_above_roofline
from slotune.diagnose.rules.layers import spilled_layers
from slotune.diagnose.rules.lost import GPU_LOST, gpu_lost
from slotune.diagnose.rules.placement import Backend, backend_of, gpu_given
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic
from slotune.load.device_facts import DeviceFacts, device_fault
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["ENTRIES", "GPU_THROTTLED", "RULES"]

NEEDS_DEVICE: Final = "--nvidia-smi FILE, with the output of nvidia-smi -q while the server works"

GPU_THROTTLED: Final = Entry(
    id="SLT085",
    code="GPUThrottled",
    item=Item.DEVICE,
    title="The GPU is slowed down to protect itself",
    cause="A GPU that gets too hot, or whose power supply brakes it, runs at half of its clocks or less for as long as "
    "that lasts, and prefill and decode slow down with it.",
    first="Cool it (fans, airflow, its neighbours), or lower its power limit until it stays cool: nvidia-smi -pl.",
    avoid="Do not tune settings meanwhile: what is measured on a throttled GPU says nothing about them.",
    verify="nvidia-smi -q -d PERFORMANCE under load says Not Active for every slowdown.",
    knobs=("gpuClass",),
)

GPU_SHARED: Final = Entry(
    id="SLT086",
    code="GPUShared",
    item=Item.DEVICE,
    title="Another process uses the same GPU",
    cause="Processes on one GPU take turns, so the server waits while the other computes; the other's memory is "
    "missing for the context and the layers, and -fit adapts to what is left at the start.",
    first="Give the server a GPU of its own, or a MIG slice: time-slicing shares neither memory nor time fairly.",
    avoid="Do not tune slots and batches for it: the other process changes what is best from minute to minute.",
    verify="nvidia-smi shows one process that computes, and the same prompt takes the same time every time.",
    knobs=("gpuClass",),
)


def _gpu_throttled(symptoms: Symptoms) -> Finding | Clear | Undecided:
    facts = symptoms.device
    if facts is None:
        return _unwatched(symptoms)
    fault = device_fault(facts)
    if fault is not None:
        return Finding(GPU_THROTTLED, _slowdown(facts), _evidence(symptoms, facts), first=_cure(fault[1]))
    if isinstance(facts, DeviceSnapshot) and facts.broken:
        return Clear(f"what does not answer is told as {GPU_LOST.id}")
    if isinstance(facts, DeviceSnapshot) and not facts.knows_clock_reasons:
        return Undecided(NEEDS_DEVICE)
    if any(name == "HwSlowdown" for name, _ in facts.clock_reasons):
        return Finding(
            GPU_THROTTLED,
            f"the GPU ({facts.name}) was slowed by its hardware at the only look, which may also be a change of clocks",
            _evidence(symptoms, facts),
            Severity.INFO,
            Confidence.POSSIBLE,
            first="Look again while it works: nvidia-smi -q -d PERFORMANCE -l 1.",
        )
    return Clear(f"nothing slows {facts.name} down{_held(facts)}", symptoms.device_evidence)


def _unwatched(symptoms: Symptoms) -> Clear | Undecided:
    if backend_of(symptoms) is Backend.CPU and gpu_given(symptoms) is None:
        return Clear("no GPU is in use")
    if symptoms.pod is not None and gpu_given(symptoms) is None:
        return Clear("the pod asks for no GPU")
    return Undecided(NEEDS_DEVICE)


def _slowdown(facts: DeviceFacts) -> str:
    if isinstance(facts, DeviceSnapshot) and facts.slowed is not None:
        one = facts.slowed
        several = " and " in one.name.partition(" of ")[0]
        which, verb = ("the devices", "are") if several else ("the device", "is")
        return f"{which} {one.name} {verb} slowed by {_slower(one)}"
    return f"the GPU ({facts.name}) is slowed by {_slower(facts)}"


def _slower(facts: DeviceFacts) -> str:
    names = [name for name, _ in facts.clock_reasons if name.endswith("Slowdown")]
    heat = "" if facts.temperature_c is None else f" at up to {facts.temperature_c.most:.0f} °C"
    clock = "" if facts.sm_clock_mhz is None else f", SM clock down to {facts.sm_clock_mhz.least:,.0f} MHz"
    return f"{' and '.join(names)}{heat}{clock}"


def _cure(fault: str) -> str:
    """The last part of the fault's sentence."""
    cure = fault.rpartition(": ")[2]
    return f"{cure[:1].upper()}{cure[1:]}."


def _held(facts: DeviceFacts) -> str:
    return ": at its power limit, as it may be" if any(name == "SwPowerCap" for name, _ in facts.clock_reasons) else ""


def _evidence(symptoms: Symptoms, facts: DeviceFacts) -> tuple[Evidence, ...]:
    seen = ", ".join(f"{name} at {count} of {facts.samples} looks" for name, count in facts.clock_reasons)
    return symptoms.device_evidence or (Evidence(Source.DEVICE, seen or facts.name),)


def _gpu_shared(symptoms: Symptoms) -> Finding | Clear | Undecided:
    facts = symptoms.device
    if facts is None:
        return _unwatched(symptoms)
    if facts.others is None:
        return Undecided("the output of nvidia-smi on the node itself (in a container it shows no processes)")
    if not facts.others:
        return Clear(f"nobody else computes on {facts.name}", symptoms.device_evidence)
    who = "another process computes" if facts.others == 1 else f"{facts.others} other processes compute"
    held = f" and holds {facts.others_memory_bytes / 2**20:,.0f} MiB" if facts.others_memory_bytes else ""
    held = held if facts.others == 1 else held.replace("holds", "hold")
    harm = _harm(symptoms, facts)
    return Finding(
        GPU_SHARED,
        f"{who} on {facts.name}{held}" + ("" if harm is None else f", and {harm}"),
        symptoms.device_evidence or (Evidence(Source.DEVICE, f"{facts.others} other processes"),),
        Severity.INFO if harm is None else Severity.WARNING,
        Confidence.POSSIBLE if harm is None else Confidence.LIKELY,
    )


def _harm(symptoms: Symptoms, facts: DeviceFacts) -> str | None:
    """What the neighbour costs, as far as it shows: memory that is missing, or speed."""
    log = symptoms.log
    if log is not None and facts.others_memory_bytes:
        if spilled_layers(log) is not None:
            return "part of the model did not fit beside it"
        if log.count(Topic.OUT_OF_MEMORY) or (log.failure is not None and log.failure.failure_class.is_memory):
            return "memory ran out beside it"
    return "a token takes longer than the GPU needs for it" if is_above_roofline(symptoms) else None


ENTRIES: Final = (GPU_THROTTLED, GPU_SHARED, GPU_LOST)

RULES: Final[tuple[Rule, ...]] = (
    Rule(GPU_THROTTLED.id, Item.DEVICE, _gpu_throttled),
    Rule(GPU_SHARED.id, Item.DEVICE, _gpu_shared),
    Rule(GPU_LOST.id, Item.DEVICE, gpu_lost),
)
