"""Is a token written as fast as the GPU can read what it needs? One user's speed, put beside its bound."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.durations import seconds
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Undecided
from slotune.diagnose.roofline import Roofline, roofline_of, usual_step_s
from slotune.diagnose.rules.layers import on_host
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.rules.reached import times_for_few_bits, times_the_usual
from slotune.diagnose.symptoms import Symptoms

__all__ = ["ABOVE_ROOFLINE", "ENTRIES", "RULES", "is_above_roofline", "speed_lost"]

ABOVE_ROOFLINE: Final = Entry(
    id="SLT012",
    code="AboveRoofline",
    item=Item.KERNELS,
    title="A token takes far longer than the GPU's memory bandwidth explains",
    cause="One token reads the weights once. When a single user on an idle server waits much longer than that reading "
    "takes, something else is in the way: layers or the KV cache on the CPU, a missing kernel, or a throttled GPU.",
    first="Look for layers on the CPU and missing kernels in a log with -lv 4, then at nvidia-smi -q for what holds "
    "the clocks.",
    avoid="Do not buy a faster GPU or quantize the weights first: the one that is there is not used up.",
    verify="tokens/s of one user alone come near to memory bandwidth divided by the bytes of the weights.",
    knobs=("gpuLayers", "cacheTypeK", "cacheTypeV"),
)


def _above_roofline(symptoms: Symptoms) -> Finding | Clear | Undecided:
    said = _measured(symptoms)
    cause = on_host(symptoms) if isinstance(said, Finding) else None
    if cause is None or not isinstance(said, Finding):
        return said
    return Clear(f"a token takes longer than the GPU needs for it: {cause.id} says why", said.evidence)


def speed_lost(symptoms: Symptoms) -> float | None:
    """Share of tokens/s by which a token is slower than is usual for its GPU, whatever the cause; None: none is
    known."""
    said = _measured(symptoms)
    return said.cost.speed_share if isinstance(said, Finding) else None


def _measured(symptoms: Symptoms) -> Finding | Clear | Undecided:
    if backend_of(symptoms) is Backend.CPU:
        return Clear("no GPU is in use, so no GPU's bandwidth bounds it")
    roofline = roofline_of(symptoms)
    if isinstance(roofline, str):
        return Undecided(roofline)
    at_most = roofline.decode.at_most
    if at_most is None or (roofline.decode.needs is not None and not roofline.decode.is_least):
        return Undecided(roofline.decode.needs or "--probe: the speed of one request alone")
    if roofline.is_dense is False:
        return Undecided("--model FILE.gguf: how many of the weights of this mixture of experts take part in a token")
    return _step(symptoms, roofline, at_most)


def _step(symptoms: Symptoms, roofline: Roofline, at_most: float) -> Finding | Clear | Undecided:
    """Whether a token alone takes about as long as a GPU needs that can write ``at_most`` a second."""
    seen = roofline.decode.seen
    if seen is None or not seen.alone or seen.is_mean or seen.tokens_per_s <= 0:
        return Undecided("--probe: the speed of one request alone")
    # Devices that share each matrix wait for each other: of these, one alone is what is sure.
    step, floor = 1 / seen.tokens_per_s, roofline.devices.at_once * roofline.devices.slower_reading / at_most
    times = times_the_usual(symptoms, roofline) * times_for_few_bits(roofline)
    usual = usual_step_s(floor * times, _layers(symptoms))
    if step <= usual and roofline.decode.needs is not None:
        return Undecided(roofline.decode.needs)
    if step <= usual:
        return Clear(f"a token takes {seconds(step)} alone, memory bandwidth allows {seconds(floor)}", (seen.evidence,))
    return Finding(
        ABOVE_ROOFLINE,
        f"a token takes {seconds(step)} alone, though {_device(roofline)} can read what it needs in {seconds(floor)}",
        (seen.evidence, *roofline.evidence),
        confidence=Confidence.POSSIBLE if roofline.decode.is_least else Confidence.LIKELY,
        cost=Cost(speed_share=1 - usual / step),
        first=_first(roofline),
    )


def _first(roofline: Roofline) -> str | None:
    """Where several GPUs share each matrix, the link between them comes before anything else."""
    split = roofline.devices.split
    if split not in ("row", "tensor"):
        return None
    return (
        f"Compare with -sm layer: with -sm {split} the GPUs exchange parts of every layer, over whatever links them. "
        "Then look for layers on the CPU and missing kernels in a log with -lv 4."
    )


def is_above_roofline(symptoms: Symptoms) -> bool:
    """Whether a token is known to take longer than the GPU needs for it, and nothing else says why."""
    return isinstance(_above_roofline(symptoms), Finding)


def _layers(symptoms: Symptoms) -> int | None:
    if symptoms.model is not None and symptoms.model.layers:
        return len(symptoms.model.layers)
    return None if symptoms.log is None else symptoms.log.facts.layers


def _device(roofline: Roofline) -> str:
    return roofline.device or "the GPU"


ENTRIES: Final = (ABOVE_ROOFLINE,)

RULES: Final = (Rule(ABOVE_ROOFLINE.id, Item.KERNELS, _above_roofline, tells_place=True),)
