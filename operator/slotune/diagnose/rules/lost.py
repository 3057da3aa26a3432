"""Does each GPU answer its driver? One that fell off the bus, or whose memory failed, computes for nobody."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import Backend, backend_of, gpu_given
from slotune.diagnose.symptoms import Symptoms
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["GPU_LOST", "gpu_lost"]

GPU_LOST: Final = Entry(
    id="SLT087",
    code="GPULost",
    item=Item.DEVICE,
    title="The GPU failed, or does not answer its driver",
    cause="A card that fell off the bus, whose memory or firmware failed, or whose power does not suffice stands still "
    "until it is reset; a server on it ends with a CUDA error, or starts again on the CPU.",
    first="Look for Xid in dmesg, reset the GPU (nvidia-smi --gpu-reset) or reboot the machine; check the card's seat, "
    "power and heat if it comes back.",
    avoid="Do not change the server's settings, and do not only start it again: it ends in the same way, or computes "
    "on the CPU.",
    verify="nvidia-smi shows values for every GPU, and dmesg no new Xid for a day of the same load.",
    knobs=("gpuClass",),
)

MOST_LINES: Final = 3
"""That are quoted: a card that fails says so again and again."""
NEEDS: Final = "--nvidia-smi FILE, with the output of nvidia-smi -q, and of dmesg where a GPU failed"


def gpu_lost(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether any does not, by nvidia-smi or by the kernel."""
    facts = symptoms.device
    if facts is None:
        return _unwatched(symptoms)
    if not isinstance(facts, DeviceSnapshot):
        return Clear(f"{facts.name} answered at {facts.samples} looks")
    found = _by_kernel(facts) or _by_values(symptoms, facts) or _of_a_program(facts)
    return found or Clear(f"{facts.name} answers its driver", symptoms.device_evidence)


def _unwatched(symptoms: Symptoms) -> Clear | Undecided:
    if gpu_given(symptoms) is not None or (symptoms.pod is None and backend_of(symptoms) is not Backend.CPU):
        return Undecided(NEEDS)
    return Clear("no GPU is in use" if symptoms.pod is None else "the pod asks for no GPU")


def _by_kernel(facts: DeviceSnapshot) -> Finding | None:
    """What the kernel says of a card after which it computes for nobody."""
    failed = [event for event in facts.xids if event.what is not None]
    if not failed:
        return None
    last = failed[-1]
    goes_on = facts.shows_server and not facts.broken
    doubt = "; nvidia-smi shows a server at work, so it was reset since, or is another GPU" if goes_on else ""
    return Finding(
        GPU_LOST,
        f"the GPU at {last.device} failed: {last.what} (Xid {last.number}){doubt}",
        tuple(Evidence(Source.DEVICE, event.line[:LONGEST]) for event in failed[-MOST_LINES:]),
        Severity.WARNING if goes_on else Severity.CRITICAL,
        Confidence.POSSIBLE if goes_on else Confidence.CERTAIN,
        first=None if last.cure is None else f"{last.cure[:1].upper()}{last.cure[1:]}.",
    )


def _by_values(symptoms: Symptoms, facts: DeviceSnapshot) -> Finding | None:
    """An error where values should be; where a server is seen on the devices, it may be on another of them."""
    if not facts.broken:
        return None
    which, said = facts.broken[0]
    where = f"{which} says {said!r}" if which == "nvidia-smi" else f"{said!r} stands for the values of {which}"
    who = "a GPU does" if len(facts.broken) == 1 else f"{len(facts.broken)} GPUs do"
    maybe_other = facts.shows_server and len(facts.broken) < len(facts.lines)
    return Finding(
        GPU_LOST,
        f"{who} not answer the driver: {where}",
        symptoms.device_evidence or (Evidence(Source.DEVICE, f"{which}: {said}"[:LONGEST]),),
        Severity.WARNING if maybe_other else Severity.CRITICAL,
        Confidence.POSSIBLE if maybe_other else Confidence.CERTAIN,
    )


def _of_a_program(facts: DeviceSnapshot) -> Finding | None:
    """An Xid by which the driver stops a program; the card goes on."""
    if not facts.xids:
        return None
    last = facts.xids[-1]
    return Finding(
        GPU_LOST,
        f"the driver reported Xid {last.number} of the GPU at {last.device}, which is mostly a program's fault and not "
        "the card's",
        (Evidence(Source.DEVICE, last.line[:LONGEST]),),
        Severity.INFO,
        Confidence.POSSIBLE,
        first="If it was the server, try the newest build and driver: its log then ends with a CUDA error.",
    )
