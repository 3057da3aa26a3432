"""Is the GPU used, and for all layers? A server that fell back to the processor serves on, ten times slower.

Only a server that was given a GPU can miss it: one without is healthy. That a build for GPUs says "offloaded 31/31
layers" proves nothing (it does so where there is none); where the weights lie does.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.placement import (
    NEEDS_START,
    asks_for_gpus,
    backend_of,
    fact,
    gpu_given,
    gpus,
    heard,
    host_bytes,
    image_backend,
    knows_arguments,
    layers_asked,
    said,
    shown,
    stated,
    told_cpu,
    weights_bytes,
)
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import LogStory, Topic
from slotune.load.nvidia_smi import DeviceSnapshot

__all__ = ["ENTRIES", "RULES", "layers_on_cpu"]

MIB: Final = 2**20
EMPTY_SHARE: Final = 0.1
"""Of the weights: a GPU that holds less than this of them does not hold the model. The driver alone takes some MiB."""
EMPTY_BYTES: Final = 64 * MIB
"""The same where the size of the weights is not known: any CUDA program takes more than this for its context."""

GPU_NOT_USED: Final = Entry(
    id="SLT001",
    code="GPUNotUsed",
    item=Item.GPU,
    title="The model runs on the CPU although there is a GPU for it",
    cause="llama-server starts without an error when it finds no usable GPU: the image has no GPU backend, the driver "
    "is older than the image's CUDA (ggml-org/llama.cpp#24418), or the container was given no device. Prefill and "
    "decode are then many times slower.",
    first="Take an image for this GPU (server-cuda, server-rocm, server-vulkan) whose CUDA the node's driver knows, and "
    "let the pod ask for the GPU; llama-server --list-devices shows what it finds.",
    avoid="Do not tune batches, slots or caches: each would be measured on the wrong device.",
    verify="The log at -lv 4 has a model buffer on the GPU (CUDA0 model buffer size), and nvidia-smi shows its memory "
    "in use.",
    knobs=("gpuLayers", "gpuClass"),
    binds="TTFTPrefill",
)

LAYERS_ON_CPU: Final = Entry(
    id="SLT002",
    code="LayersOnCPU",
    item=Item.GPU,
    title="Some layers or the KV cache lie in host memory",
    cause="Every step waits for the part that the CPU computes, and for the data that cross the bus: host memory is "
    "ten times slower or more, so a few layers there can cost half of the speed.",
    first="Make it fit: -ngl all with a smaller context, fewer slots or a q8_0 KV cache; else smaller weights.",
    avoid="Do not raise --threads first: the CPU's memory bandwidth is the limit, not its cores.",
    verify="The log at -lv 4 says that all layers are offloaded, and has no KV buffer on the CPU.",
    knobs=("gpuLayers", "cacheTypeK", "cacheTypeV", "variant", "gpuClass"),
    binds="TokensPerSecond",
)

FIT_SPILLED: Final = Entry(
    id="SLT003",
    code="FitSpilled",
    item=Item.GPU,
    title="-fit moved layers to the CPU, or could not make the model fit",
    cause="With -fit (the default) llama-server changes what is not stated until the model fits the free GPU memory "
    "less a margin: first the context, then the layers. It says so in its log only, and other programs on the GPU "
    "change the result from start to start (ggml-org/llama.cpp#23472, #18181).",
    first="State -ngl all -fit off and a context that fits, so that too little memory is an error and not a slow server.",
    avoid="Do not lower the margin (-fitt) to nothing: buffers still grow while it serves (ggml-org/llama.cpp#13085).",
    verify="The log at -lv 4 says that all layers are offloaded, at every start.",
    knobs=("gpuLayers", "contextSizePerSlot", "cacheTypeK", "cacheTypeV", "variant"),
    binds="TokensPerSecond",
)


def _gpu_not_used(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, pod, told = symptoms.log, symptoms.pod, told_cpu(symptoms)
    if log is not None and log.facts.on_gpu:
        return Clear("the weights lie on the GPU", (fact(log, "model_buffers", _buffers(log)),))
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


def _by_line(symptoms: Symptoms) -> Finding | None:
    """The server said that it found no usable GPU."""
    log = symptoms.log
    if log is None or not (log.facts.no_usable_gpu or log.count(Topic.NO_USABLE_GPU)):
        return None
    lines = heard(log, Topic.NO_USABLE_GPU) or (fact(log, "no_usable_gpu", "no usable GPU found"),)
    given, driver = gpu_given(symptoms), _driver_words(log)
    if given is None and driver is None and symptoms.pod is not None:
        return None  # a pod without a GPU, and an argument that is its default
    asked = given or layers_asked(symptoms)
    severity, confidence = _weight(surely=given is not None or driver is not None, asked=asked is not None)
    return Finding(
        GPU_NOT_USED,
        "llama-server found no usable GPU and computes on the CPU" + ("" if driver is None else f": {driver}"),
        lines if asked is None else (*lines, asked),
        severity,
        confidence,
        first=None if driver is None else "Update the node's driver, or take an image built with an older CUDA.",
    )


def _by_buffers(symptoms: Symptoms) -> Finding | None:
    """The weights lie in host memory."""
    log = symptoms.log
    if log is None or not log.facts.model_buffers:
        return None
    given = gpu_given(symptoms)
    asked = given or layers_asked(symptoms)
    evidence = [fact(log, "model_buffers", _buffers(log))]
    if log.facts.layers_offloaded:
        offloaded = f"offloaded {log.facts.layers_offloaded}/{log.facts.layers} layers to GPU"
        evidence.append(fact(log, "layers_offloaded", offloaded))
    elif asked is None:
        return None
    if asked is not None:
        evidence.append(asked)
    elif symptoms.pod is not None:
        return None  # that the image could use a GPU, and the pod has none, is told by the pod
    severity, confidence = _weight(surely=given is not None, asked=asked is not None)
    return Finding(
        GPU_NOT_USED,
        f"all {log.facts.model_bytes / MIB:,.0f} MiB of weights lie in host memory, none on a GPU"
        + ("" if asked is not None else ", though this build could use one"),
        tuple(evidence),
        severity,
        confidence,
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
            return "the driver is older than the CUDA that the image was built with"
        if re.search(r"failed to initialize (?:CUDA|ROCm|HIP)|no (?:CUDA|ROCm)-capable device", line.text):
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
        return Clear("it computes on the CPU, and there is no GPU for it", (fact(log, "model_buffers", _buffers(log)),))
    if symptoms.pod is not None:
        return Clear("the pod asks for no GPU", (asks_for_gpus(0),))
    return Undecided(NEEDS_START)


def layers_on_cpu(log: LogStory) -> tuple[str, tuple[Evidence, ...]] | None:
    """What of a model on a GPU lies in host memory: a sentence and its lines; None when nothing does that should not.

    The input embeddings always stay in host memory, so buffers alone say nothing while all layers are offloaded.
    """
    facts = log.facts
    if not facts.on_gpu:
        return None
    parts: list[str] = []
    evidence: list[Evidence] = []
    if facts.layers_offloaded is not None and facts.layers and facts.layers_offloaded < facts.layers:
        parts.append(f"{facts.layers - facts.layers_offloaded} of {facts.layers} layers run on the CPU")
        offloaded = f"offloaded {facts.layers_offloaded}/{facts.layers} layers to GPU"
        evidence.append(fact(log, "layers_offloaded", offloaded))
    if kept := host_bytes(facts.kv_buffers):
        parts.append(f"{kept / MIB:,.0f} of {facts.kv_bytes / MIB:,.0f} MiB of the KV cache lie in host memory")
        evidence.append(fact(log, "kv_buffers", f"KV buffers in host memory: {kept / MIB:,.0f} MiB"))
    return (" and ".join(parts), tuple(evidence)) if parts else None


def _layers_on_cpu(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None or not log.facts.model_buffers:
        return _unsplit(symptoms)
    if not log.facts.on_gpu:
        return Clear("no GPU is in use, so nothing is split")
    spilled = layers_on_cpu(log)
    if spilled is not None:
        if _fit_did_it(symptoms, log):
            return Clear("what runs on the CPU was moved there by -fit, which is a finding of its own")
        return Finding(LAYERS_ON_CPU, *spilled, first=_first(symptoms, log))
    if (moved := _weights_on_cpu(symptoms, log)) is not None:
        return moved
    if log.facts.layers_offloaded is None:
        return Undecided(NEEDS_START)
    offloaded = f"offloaded {log.facts.layers_offloaded}/{log.facts.layers} layers to GPU"
    return Clear("all layers and the KV cache lie on the GPU", (fact(log, "layers_offloaded", offloaded),))


def _unsplit(symptoms: Symptoms) -> Clear | Undecided:
    backend = backend_of(symptoms)
    if backend is not None and not backend.is_gpu:
        return Clear("no GPU is in use, so nothing is split")
    if symptoms.pod is not None and gpu_given(symptoms) is None:
        return Clear("the pod asks for no GPU, so nothing is split")
    return Undecided(NEEDS_START)


def _weights_on_cpu(symptoms: Symptoms, log: LogStory) -> Finding | None:
    """Parts of layers that an argument keeps in host memory; the log counts their layers as offloaded."""
    settings = stated(symptoms)
    argument = next((settings[name] for name in ("-cmoe", "-ncmoe", "-ncffn", "-ot") if name in settings), None)
    kept = host_bytes(log.facts.model_buffers)
    usual = 0 if symptoms.model is None else symptoms.model.host_weights_bytes
    # Half of the weights is more than any input table takes, so it is experts that were moved.
    if argument is None or argument.values[:1] == ("0",) or kept <= usual or 2 * kept < log.facts.model_bytes:
        return None
    return Finding(
        LAYERS_ON_CPU,
        f"{kept / MIB:,.0f} of {log.facts.model_bytes / MIB:,.0f} MiB of weights are kept in host memory by an argument",
        (shown(argument), fact(log, "model_buffers", _buffers(log))),
        confidence=Confidence.LIKELY,
    )


def _fit_did_it(symptoms: Symptoms, log: LogStory) -> bool:
    """Whether -fit chose where layers lie: it is on and they were not stated, or it said that it could not."""
    settings = stated(symptoms)
    if "-ngl" in settings or ("-kvo" in settings and not settings["-kvo"].on):
        return False
    if "-fit" in settings and settings["-fit"].values[:1] == ("off",):
        return False
    heard_of = log.facts.fit_changes or log.count(Topic.FIT_FAILED) or log.count(Topic.FIT_REDUCED_CONTEXT)
    return bool(heard_of) or knows_arguments(symptoms)


def _first(symptoms: Symptoms, log: LogStory) -> str | None:
    """With the number that the person wrote, or the memory that is missing."""
    settings = stated(symptoms)
    if "-kvo" in settings and not settings["-kvo"].on:
        return "Take --no-kv-offload out: the KV cache then lies where attention is computed."
    if "-ngl" in settings and settings["-ngl"].values[:1] != ("all",):
        return f"Set -ngl all in place of {settings['-ngl'].values[0]}, with a context and slots that fit."
    if missing := host_bytes(log.facts.kv_buffers):
        return f"Make {missing / MIB:,.0f} MiB of room on the GPU: a smaller context, fewer slots, or a q8_0 KV cache."
    return None


def _fit_spilled(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log, settings = symptoms.log, stated(symptoms)
    if "-fit" in settings and settings["-fit"].values[:1] == ("off",):
        return Clear("-fit is off", (shown(settings["-fit"]),))
    if log is None:
        return Undecided(NEEDS_START)
    failed, spilled = _failed_to_fit(log), layers_on_cpu(log)
    if spilled is not None:
        if not _fit_did_it(symptoms, log):
            return Clear("what runs on the CPU was stated, or nothing says that -fit chose it")
        sentence, evidence = spilled
        return Finding(FIT_SPILLED, f"-fit chose that {sentence}", (*evidence, *failed))
    if failed:
        return Finding(
            FIT_SPILLED,
            "-fit could not leave its margin of free memory, and the server went on as it was told",
            failed,
            Severity.INFO,
        )
    return Clear("-fit moved no layers") if said(log, details=True) else Undecided(NEEDS_START)


def _failed_to_fit(log: LogStory) -> tuple[Evidence, ...]:
    if lines := heard(log, Topic.FIT_FAILED):
        return lines
    words = next((change for change in log.facts.fit_changes if change.startswith("failed to fit")), None)
    return () if words is None else (Evidence(Source.LOG, words[:LONGEST]),)


def _buffers(log: LogStory) -> str:
    sizes = ", ".join(f"{device} {size / MIB:,.0f} MiB" for device, size in log.facts.model_buffers.items())
    return f"model buffers: {sizes}"[:LONGEST]


ENTRIES: Final = (GPU_NOT_USED, LAYERS_ON_CPU, FIT_SPILLED)

RULES: Final[tuple[Rule, ...]] = (
    Rule(GPU_NOT_USED.id, Item.GPU, _gpu_not_used),
    Rule(LAYERS_ON_CPU.id, Item.GPU, _layers_on_cpu),
    Rule(FIT_SPILLED.id, Item.GPU, _fit_spilled),
)
