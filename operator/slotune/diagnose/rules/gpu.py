"""Is the GPU used, and for all layers? A server that fell back to the processor serves on, ten times slower.

Only a server that was given a GPU can miss it: one without is healthy. That a build for GPUs says "offloaded 31/31
layers" proves nothing (it does so where there is none); where the weights lie does.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules import decode, layers, prefill
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    asks_for_gpus,
    buffers,
    fact,
    gpu_found,
    gpu_given,
    gpu_is_sure,
    gpus,
    heard,
    host_bytes,
    image_backend,
    layers_asked,
    offloaded,
    said,
    told_cpu,
    weights_bytes,
)
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_buffers import is_on_host
from slotune.llama.log_story import LogStory, Topic
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["ENTRIES", "GPU_NOT_USED", "RULES"]

MIB: Final = 2**20
EMPTY_SHARE: Final = 0.1
"""Of the weights: a GPU that holds less than this of them does not hold the model. The driver alone takes some MiB."""
EMPTY_BYTES: Final = 64 * MIB
"""The same where the size of the weights is not known: any CUDA program takes more than this for its context."""
OLD_DRIVER: Final = "the driver is older than the CUDA that the image was built with"

GIVE_LAYERS: Final = (
    "Start it with -ngl all, and without -ngl 0, --device none or LLAMA_ARG_N_GPU_LAYERS=0; builds before --fit put no "
    "layer on a GPU unless -ngl is stated."
)

GPU_NOT_USED: Final = Entry(
    id="SLT001",
    code="GPUNotUsed",
    item=Item.GPU,
    title="The model runs on the CPU although there is a GPU for it",
    cause="llama-server starts without an error when it finds no usable GPU: the image has no GPU backend, the driver "
    "is older than the image's CUDA (ggml-org/llama.cpp#24418), or the container was given no device; and builds "
    "before --fit leave a GPU that they did find empty unless -ngl is stated (ggml-org/llama.cpp#11367). Prefill and "
    "decode are then many times slower.",
    first="Where the log names a GPU and offloads 0 layers, start it with -ngl all. Else take an image for this GPU "
    "(server-cuda, server-rocm, server-vulkan) whose CUDA the node's driver knows, and let the pod ask for the GPU; "
    "llama-server --list-devices shows what it finds.",
    avoid="Do not tune batches, slots or caches: each would be measured on the wrong device.",
    verify="The log at -lv 4 has a model buffer on the GPU (CUDA0 model buffer size), and nvidia-smi shows its memory "
    "in use.",
    knobs=("gpuLayers", "gpuClass"),
    binds="TTFTPrefill",
)


def _gpu_not_used(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, pod, told = symptoms.log, symptoms.pod, told_cpu(symptoms)
    if log is not None and log.facts.on_gpu:
        return Clear(_where(log), (fact(log, "model_buffers", buffers(log)),))
    if told is not None:
        if pod is None or not pod.gpus:
            return Clear("it was told to compute on the CPU", (told,))
        return Finding(
            GPU_NOT_USED,
            f"the pod holds {gpus(pod.gpus)}, and the server was told not to use any",
            (asks_for_gpus(pod.gpus), told),
            first="Take the argument out, or stop asking for the GPU.",
        )
    return _by_line(symptoms) or _by_buffers(symptoms) or _by_device(symptoms) or _by_pod(symptoms) or _no_gpu(symptoms)


def _where(log: LogStory) -> str:
    """Of a model that is on a GPU, at least in part."""
    whole, host = log.facts.model_bytes, host_bytes(log.facts.model_buffers)
    if host < EMPTY_SHARE * whole:
        return "the weights lie on the GPU"
    return f"the GPU is in use: {(whole - host) / MIB:,.0f} of {whole / MIB:,.0f} MiB of the weights lie on it"


def _by_line(symptoms: Symptoms) -> Finding | None:
    """The server said that it found no usable GPU."""
    log = symptoms.log
    if log is None or not (log.facts.no_usable_gpu or log.count(Topic.NO_USABLE_GPU)):
        return None
    if log.facts.devices:
        return None  # one back end found none and another did: where the weights lie decides
    lines = heard(log, Topic.NO_USABLE_GPU) or (fact(log, "no_usable_gpu", "no usable GPU found"),)
    given, driver = gpu_given(symptoms), _driver_words(log)
    if given is None and driver is None and symptoms.pod is not None:
        return None  # a pod without a GPU, and an argument that is its default
    asked = given or layers_asked(symptoms)
    surely = gpu_is_sure(symptoms) or driver == OLD_DRIVER
    severity, confidence = _weight(surely=surely, asked=asked is not None or driver is not None)
    return Finding(
        GPU_NOT_USED,
        "llama-server found no usable GPU and computes on the CPU" + ("" if driver is None else f": {driver}"),
        lines if asked is None else (*lines, asked),
        severity,
        confidence,
        first=None if driver != OLD_DRIVER else "Update the node's driver, or take an image built with an older CUDA.",
    )


def _by_buffers(symptoms: Symptoms) -> Finding | None:
    """The weights lie in host memory."""
    log = symptoms.log
    if log is None or not log.facts.model_buffers:
        return None
    if any(not is_on_host(device) for device in log.facts.kv_buffers):
        return None  # keys and values lie where their layer does: what is on the GPU was said before the log begins
    given, found = gpu_given(symptoms), gpu_found(symptoms)
    asked = given or layers_asked(symptoms)
    evidence = [fact(log, "model_buffers", buffers(log))]
    if log.facts.layers_offloaded is not None:
        evidence.append(offloaded(log))
    elif asked is None:
        return None
    if asked is not None:
        evidence.append(asked)
    elif symptoms.pod is not None:
        return None  # that the image could use a GPU, and the pod has none, is told by the pod
    # Who gave no layers to a GPU that was found may have said so in arguments that nobody showed.
    maybe_told = given is not None and given == found and not has_defaults(symptoms) and not log.facts.layers_offloaded
    severity, confidence = _weight(surely=gpu_is_sure(symptoms) and not maybe_told, asked=asked is not None)
    here = f", though there is a GPU: {', '.join(log.facts.devices)}" if log.facts.devices else ""
    return Finding(
        GPU_NOT_USED,
        f"all {log.facts.model_bytes / MIB:,.0f} MiB of weights lie in host memory, none on a GPU"
        + (here or ("" if asked is not None else ", though this build could use one")),
        tuple(dict.fromkeys(evidence)),
        severity,
        confidence,
        first=None if not log.facts.devices or log.facts.layers_offloaded else GIVE_LAYERS,
    )


def _weight(*, surely: bool, asked: bool) -> tuple[Severity, Confidence]:
    """There is a GPU; or somebody wrote -ngl; or nobody is known to want one: then a CPU may be what was meant."""
    if surely:
        return Severity.CRITICAL, Confidence.CERTAIN
    return (Severity.WARNING, Confidence.LIKELY) if asked else (Severity.INFO, Confidence.POSSIBLE)


def _driver_words(log: LogStory) -> str | None:
    """What the log says about a driver that is too old, or that found no device."""
    seen = log.seen.get(Topic.NO_USABLE_GPU)
    for line in () if seen is None else (seen.first, seen.last):
        if re.search(r"driver version is insufficient|unsupported display driver", line.text):
            return OLD_DRIVER
        if re.search(r"failed to initialize (?:CUDA|ROCm|HIP|MUSA)|no (?:CUDA|ROCm|MUSA)-capable device", line.text):
            return "it was built for GPUs, and its driver found none"
    return None


def _by_device(symptoms: Symptoms) -> Finding | None:
    """A GPU that holds nearly nothing does not hold the model."""
    device = symptoms.device
    if not isinstance(device, DeviceSnapshot) or device.memory_used_bytes is None or device.shows_server:
        return None
    if symptoms.server is None and not (symptoms.log is not None and symptoms.log.facts.ready):
        return None  # nobody says that a model is loaded
    used, weights = device.memory_used_bytes, weights_bytes(symptoms)
    if used >= (EMPTY_BYTES if weights is None else max(EMPTY_BYTES, EMPTY_SHARE * weights)):
        return None
    size = "" if weights is None else f", the weights take {weights / MIB:,.0f}"
    return Finding(
        GPU_NOT_USED,
        f"only {used / MIB:,.0f} MiB of {device.name} are in use{size}: the model is not there",
        symptoms.device_evidence or (Evidence(Source.DEVICE, f"{used / MIB:,.0f} MiB used"),),
        Severity.CRITICAL,
        Confidence.LIKELY,
    )


def _by_pod(symptoms: Symptoms) -> Finding | None:
    """An image and a pod that do not go together."""
    pod, image = symptoms.pod, image_backend(symptoms)
    if pod is None or image is None or image.is_gpu == bool(pod.gpus):
        return None
    named = Evidence(Source.POD, f"image {pod.image}"[:LONGEST])
    if pod.gpus:
        return Finding(
            GPU_NOT_USED,
            f"the pod holds {gpus(pod.gpus)}, and its image is built for CPUs only",
            (named, asks_for_gpus(pod.gpus)),
            Severity.CRITICAL,
        )
    if symptoms.device is not None:
        return None
    node = symptoms.node
    has_gpus = node is not None and any(re.match(r"(nvidia|amd)\.com/gpu", label) for label in node.labels)
    beside = (Evidence(Source.NODE, f"{node.name} has GPUs"),) if node is not None and has_gpus else ()
    return Finding(
        GPU_NOT_USED,
        f"the image is built for {image}, and the pod asks for no GPU",
        (named, asks_for_gpus(0), *beside),
        # A runtime can hand out devices that nobody asked for.
        confidence=Confidence.LIKELY,
        first="Let the pod ask for a GPU (resources.limits, nvidia.com/gpu: 1), or take the image for CPUs if it is "
        "meant to run on one.",
    )


def _no_gpu(symptoms: Symptoms) -> Clear | Undecided:
    log = symptoms.log
    if gpu_given(symptoms) is not None or layers_asked(symptoms) is not None:
        return Undecided(NEEDS_START)
    if log is not None and log.facts.model_buffers:
        if symptoms.pod is None and not said(log, details=True):
            return Undecided(f"{NEEDS_START} (it names the GPUs that were found), or --deployment NAME")
        return Clear("it computes on the CPU, and there is no GPU for it", (fact(log, "model_buffers", buffers(log)),))
    if symptoms.pod is not None:
        return Clear("the pod asks for no GPU", (asks_for_gpus(0),))
    return Undecided(NEEDS_START)


def _layers_on_cpu(symptoms: Symptoms) -> Finding | Clear | Undecided:
    return _counted(layers.layers_on_cpu(symptoms), symptoms)


def _fit_spilled(symptoms: Symptoms) -> Finding | Clear | Undecided:
    return _counted(layers.fit_spilled(symptoms), symptoms)


def _counted(said: Finding | Clear | Undecided, symptoms: Symptoms) -> Finding | Clear | Undecided:
    """With what one user alone loses to it: all by which they are slower than with the whole model on the GPU."""
    if not isinstance(said, Finding) or said.severity is Severity.INFO:
        return said
    lost = prefill.time_lost(symptoms)
    return replace(said, cost=replace(lost, speed_share=decode.speed_lost(symptoms)))


ENTRIES: Final = (GPU_NOT_USED, layers.LAYERS_ON_CPU, layers.FIT_SPILLED)

RULES: Final[tuple[Rule, ...]] = (
    Rule(GPU_NOT_USED.id, Item.GPU, _gpu_not_used, tells_place=True),
    Rule(layers.LAYERS_ON_CPU.id, Item.GPU, _layers_on_cpu),
    Rule(layers.FIT_SPILLED.id, Item.GPU, _fit_spilled),
)
