"""What stands between a bound and a judgement: what is not known, or why more was seen than there can be.

More than a bound is seen where one of the things that it is made of is another than was taken. Each that may be is
named; a device is only said to be another one where nothing else is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.accelerators import is_faster_at_fp4
from slotune.diagnose.devices import Devices
from slotune.diagnose.rules.layers import on_host
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.speculating import Speculating
from slotune.diagnose.step_reads import Weights, kv_type_is_known
from slotune.diagnose.symptoms import Symptoms

__all__ = ["EXPERTS", "Doubts", "doubts_of"]

CACHED_BYTES: Final = 300e6
"""Weights below this may lie in a GPU's own cache (50 MB of an H100, 72 MB of an RTX 4090, 256 MB of an MI300X), which
is faster than its memory."""

BANDWIDTH: Final = (
    "its device's memory bandwidth: --bandwidth, or for a GPU --gpu-class with the name of a known device or of a "
    "GPUClass that states it"
)
OPERATIONS: Final = "its device's operations/s: for a GPU --gpu-class NAME of a known device, such as 'RTX 4090'"
HOST_BANDWIDTH: Final = "the bandwidth of the machine's memory: --bandwidth"
HOST_OPERATIONS: Final = "the operations/s of a processor, for which there are no figures"
PARAMETERS: Final = "how many weights there are: --model FILE.gguf, or a log with -lv 4"
EXPERTS: Final = (
    "whether all weights take part in a token, or a mixture of experts reads only some: --model FILE.gguf, or a log "
    "with -lv 4"
)
HELD_WHOLE: Final = (
    "part of the model lies in host memory, which is slower: the bounds are those of a device that holds all of it"
)
GUESSES: Final = (
    "how many tokens a step writes with speculation: a log of requests with their draft acceptance; until then a bound "
    "on steps is none on tokens"
)


@dataclass(frozen=True, slots=True)
class Doubts:
    """Of both bounds."""

    decode_needs: str | None = None
    """What would have to be known to judge by it."""
    prefill_needs: str | None = None
    sentences: tuple[str, ...] = ()
    """For people, where a bound is not what it seems."""


def doubts_of(
    symptoms: Symptoms,
    weights: Weights,
    devices: Devices,
    guesses: Speculating,
    *,
    kv: int | None,
    decode_share: float | None,
    prefill_share: float | None,
) -> Doubts:
    """What is to be said of these bounds.

    Args:
        symptoms: of the server.
        weights: that a token reads.
        devices: that read them.
        guesses: whether a step writes more than one token.
        kv: bytes of keys and values that a token reads; None: not counted.
        decode_share: of its bound that was seen; None: not known.
        prefill_share: the same of prompts.
    """
    gpu, is_on_cpu = devices.gpu, backend_of(symptoms) is Backend.CPU
    sentences = [] if on_host(symptoms) is None else [HELD_WHOLE]
    decode_needs = prefill_needs = None
    if gpu is None or not gpu.bandwidth_bytes_per_s:
        decode_needs = HOST_BANDWIDTH if is_on_cpu else BANDWIDTH
    elif guesses.tokens_per_step is None:
        decode_needs = GUESSES
    elif decode_share is not None and decode_share > 1:
        step = weights.step_bytes(kv or 0, guesses.drafts_per_step)
        # Where the weights alone take longer than what was seen, it is not for keys and values.
        shorter = bool(kv) and decode_share * (step - (kv or 0)) / step <= 1
        why = _reasons(symptoms, weights, devices, guesses, shorter=shorter)
        decode_needs = f"why more is seen than there can be: {why}"
        sentences.append(f"more tokens/s were seen than the device can write, so something is not as it seems: {why}")
    elif weights.is_dense is None:
        decode_needs = EXPERTS
    if gpu is None or not gpu.flops_per_s:
        prefill_needs = HOST_OPERATIONS if is_on_cpu else OPERATIONS
    elif weights.parameters is None:
        prefill_needs = PARAMETERS
    elif prefill_share is not None and prefill_share > 1:
        why = _prompt_reasons(symptoms, weights, devices)
        prefill_needs = f"why more is seen than there can be: {why}"
        sentences.append(f"more prompt tokens/s were seen than the device can read: {why}")
    elif weights.is_dense is None:
        prefill_needs = EXPERTS
    if weights.is_dense is None:
        sentences.append(
            "a mixture of experts reads only some of its weights for a token, and can do more than that: --model, "
            "or a log with -lv 4, says which it is"
        )
    return Doubts(decode_needs, prefill_needs, tuple(sentences))


def _reasons(symptoms: Symptoms, weights: Weights, devices: Devices, guesses: Speculating, *, shorter: bool) -> str:
    """All that may be otherwise; the device itself only where nothing else may."""
    found = []
    if weights.is_dense is None:
        found.append("it is a mixture of experts (--model FILE.gguf says so)")
    if guesses.is_on is None:
        found.append("it speculates, and a step writes several tokens (/slots, or a log of requests, says so)")
    elif guesses.is_on:
        found.append("its guesses came true more often where this was seen than on average")
    if devices.count is None:
        found.append(
            "several GPUs read at the same time (-sm row or tensor; a log with -lv 4 shows how many there are)"
        )
    elif devices.count > 1 and devices.named_by is None:
        found.append("its GPUs are of several kinds")
    if shorter:
        found.append("the requests that were fastest had a shorter context than the mean one")
        if not kv_type_is_known(symptoms):
            found.append("keys and values are of a smaller type than f16 (-ctk, -ctv)")
    if weights.rough:
        found.append("an input table, of which a token reads one row, counts as read (--model FILE.gguf tells)")
    if weights.taking_part < CACHED_BYTES:
        found.append("its weights are so small that they stay in the GPU's own cache")
    return _either(found) or _accused(devices, declared=devices.declared)


def _accused(devices: Devices, *, declared: bool) -> str:
    name = "the device" if devices.gpu is None else devices.gpu.name
    taken = "was declared" if declared else "its data sheet says"
    return f"{name} is faster than {taken}, or another one"


def _prompt_reasons(symptoms: Symptoms, weights: Weights, devices: Devices) -> str:
    found = []
    if weights.is_dense is None:
        found.append("it is a mixture of experts (--model FILE.gguf says so)")
    if devices.count is None:
        found.append("several GPUs share the prompt (a log with -lv 4 shows how many there are)")
    if symptoms.model is None and devices.gpu is not None and is_faster_at_fp4(devices.gpu.name):
        found.append("its weights are MXFP4 or NVFP4, which this GPU is faster at (--model FILE.gguf tells)")
    if weights.rough:
        found.append("tables that prompts do not multiply with are counted (--model FILE.gguf tells)")
    return _either(found) or _accused(devices, declared=False)


def _either(reasons: list[str]) -> str:
    return "either " + ", or ".join(reasons) if len(reasons) > 1 else "".join(reasons)
