"""Where a server should compute, and where it does: as its arguments, its log, its pod and its devices say.

What several rules ask before they judge. Nothing here judges, and what nobody said is None.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Final

from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.counting import counted
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_number import build_of_image, build_of_text
from slotune.llama.flag_settings import Setting
from slotune.llama.log_buffers import is_on_host
from slotune.llama.log_story import LogStory, Topic

__all__ = [
    "NEEDS_START",
    "Backend",
    "asks_for_gpus",
    "backend_of",
    "backend_of_device",
    "buffers",
    "build_of",
    "fact",
    "gpu_found",
    "gpu_given",
    "gpu_is_sure",
    "gpus",
    "heard",
    "host_bytes",
    "image_backend",
    "is_official_image",
    "layers_asked",
    "offloaded",
    "said",
    "shown",
    "stated",
    "told_cpu",
    "weights_bytes",
]

MIB: Final = 2**20
NEEDS_START: Final = "a log with -lv 4 that holds the server's start"
DETAILS: Final = 4
"""``-lv`` from which llama.cpp logs layers, buffers and kernels."""

_OFFICIAL: Final = "ghcr.io/ggml-org/llama.cpp"
_OFFICIAL_TAG: Final = re.compile(r"^(?:server|full|light)(?:-(?!b\d)([a-z0-9.]+))?(?:-|$)")


class Backend(enum.StrEnum):
    """What computes, as llama.cpp names its devices."""

    CUDA = "CUDA"
    ROCM = "ROCm"
    VULKAN = "Vulkan"
    METAL = "Metal"
    SYCL = "SYCL"
    MUSA = "MUSA"
    OTHER = "GPU"
    """A device that is none of these."""
    CPU = "CPU"

    @property
    def is_gpu(self) -> bool:
        """Whether it is anything but the processor."""
        return self is not Backend.CPU


_BY_DEVICE: Final = (
    ("CUDA", Backend.CUDA),
    ("ROCm", Backend.ROCM),
    ("Vulkan", Backend.VULKAN),
    ("Metal", Backend.METAL),
    ("MTL", Backend.METAL),
    ("SYCL", Backend.SYCL),
    ("MUSA", Backend.MUSA),
)
_BY_IMAGE: Final = {
    "cuda": Backend.CUDA,
    "rocm": Backend.ROCM,
    "vulkan": Backend.VULKAN,
    "intel": Backend.SYCL,
    "musa": Backend.MUSA,
    "openvino": Backend.OTHER,
}


def backend_of(symptoms: Symptoms) -> Backend | None:
    """What computes: as the log's buffers show, else as the arguments or the pod leave no doubt about."""
    log = symptoms.log
    if log is not None and log.facts.model_buffers:
        device = next((name for name in log.facts.model_buffers if not is_on_host(name)), None)
        if device is None:
            return Backend.CPU
        return backend_of_device(device)
    if told_cpu(symptoms) is not None:
        return Backend.CPU
    image = image_backend(symptoms)
    if image is Backend.CPU or (image is not None and symptoms.pod is not None and symptoms.pod.gpus > 0):
        return image
    return None


def backend_of_device(device: str) -> Backend:
    """What ``Vulkan0`` or ``CUDA_Split`` computes with."""
    if is_on_host(device):
        return Backend.CPU
    return next((backend for prefix, backend in _BY_DEVICE if device.startswith(prefix)), Backend.OTHER)


def image_backend(symptoms: Symptoms) -> Backend | None:
    """What the pod's image was built for, where its tag says so: ``server-cuda-b11434``."""
    repository, tag = _image(symptoms)
    if is_official_image(symptoms):
        found = _OFFICIAL_TAG.match(tag)
        if found is None:
            return None
        kind = found[1] or "cpu"
        known = (backend for word, backend in _BY_IMAGE.items() if kind.startswith(word))
        return Backend.CPU if kind in ("cpu", "s390x") else next(known, None)
    words = re.split(r"[^a-z]+", f"{repository.rpartition('/')[2]} {tag}".lower())
    return next((backend for word, backend in _BY_IMAGE.items() if word in words and word != "intel"), None)


def is_official_image(symptoms: Symptoms) -> bool:
    """Whether the pod runs llama.cpp's own image, whose build options are known; a mirror keeps the path."""
    repository, _ = _image(symptoms)
    return repository == _OFFICIAL or repository.endswith("/ggml-org/llama.cpp")


def _image(symptoms: Symptoms) -> tuple[str, str]:
    """(repository, tag) of the pod's image; the tag is empty where there is none."""
    name = ((symptoms.pod.image if symptoms.pod is not None else None) or "").partition("@")[0]
    path, slash, last = name.rpartition("/")
    image, _, tag = last.partition(":")
    return f"{path}{slash}{image}", tag


def build_of(symptoms: Symptoms) -> tuple[int, Evidence] | None:
    """The build of llama.cpp, and who says so."""
    log = symptoms.log
    if log is not None and log.build is not None:
        return log.build, fact(log, "build", f"build {log.build}")
    props = None if symptoms.server is None else symptoms.server.props
    if props is not None and (number := build_of_text(props.build)) is not None:
        return number, Evidence(Source.PROPS, f"build_info {props.build}")
    image = None if symptoms.pod is None else symptoms.pod.image
    if (number := build_of_image(image)) is not None:
        return number, Evidence(Source.POD, f"image {image}"[:LONGEST])
    return None


def stated(symptoms: Symptoms) -> Mapping[str, Setting]:
    """What is known to be stated, by the flag's first spelling; the setting that counts of each."""
    return {setting.flag.name: setting for setting in settings.arguments(symptoms) or ()}


def shown(setting: Setting) -> Evidence:
    """A setting as somebody wrote it. For flags that hold no secret."""
    return settings.said(setting)


def told_cpu(symptoms: Symptoms) -> Evidence | None:
    """The argument that keeps everything on the processor."""
    known = stated(symptoms)
    for name, value in (("-ngl", "0"), ("-dev", "none")):
        setting = known.get(name)
        if setting is not None and setting.values[:1] == (value,):
            return shown(setting)
    return None


def gpu_given(symptoms: Symptoms) -> Evidence | None:
    """Who says that there is a GPU for this server: its pod, whoever declared or looked at a device, or its log."""
    pod = symptoms.pod
    if pod is not None and pod.gpus > 0:
        return asks_for_gpus(pod.gpus)
    if symptoms.device is not None:
        return next(iter(symptoms.device_evidence), Evidence(Source.DEVICE, symptoms.device.name))
    # A class of hardware may be one without a GPU, so only the name of a known device counts.
    if symptoms.gpu is not None and known_accelerator(symptoms.gpu.name) is not None:
        return Evidence(Source.DEVICE, symptoms.gpu.name)
    return gpu_found(symptoms)


def gpu_is_sure(symptoms: Symptoms) -> bool:
    """Whether more than a declared name says that there is a GPU: a name can be given where there is none."""
    has_pod = symptoms.pod is not None and symptoms.pod.gpus > 0
    return has_pod or symptoms.device is not None or gpu_found(symptoms) is not None


def gpu_found(symptoms: Symptoms) -> Evidence | None:
    """The line of the log by which a back end found a GPU; None also where no such line was kept."""
    log = symptoms.log
    if log is None or not log.facts.devices:
        return None
    return fact(log, "devices", f"found {', '.join(log.facts.devices)}"[:LONGEST])


def layers_asked(symptoms: Symptoms) -> Evidence | None:
    """The argument that wants layers on a GPU. In a pod that asks for none it means nothing: there it is a default."""
    layers = stated(symptoms).get("-ngl")
    if symptoms.pod is not None or layers is None or layers.values[:1] in ((), ("0",), ("auto",), ("-1",)):
        return None
    return shown(layers)


def asks_for_gpus(count: int) -> Evidence:
    """What the pod says about devices."""
    return Evidence(Source.POD, "asks for no GPU" if not count else f"asks for {gpus(count)}")


def gpus(count: int) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return counted(count, "GPU")


def weights_bytes(symptoms: Symptoms) -> int | None:
    """All weights of the model, wherever they lie."""
    if symptoms.model is not None:
        return symptoms.model.weights_bytes
    meta = None if symptoms.server is None else symptoms.server.model
    if meta is not None and meta.size_bytes:
        return meta.size_bytes
    return None if symptoms.log is None else symptoms.log.facts.model_bytes or None


def host_bytes(buffers: Mapping[str, int]) -> int:
    """The part of some buffers that lies in host memory."""
    return sum(size for device, size in buffers.items() if is_on_host(device))


def buffers(log: LogStory) -> str:
    """Where the weights lie, in our words: for a log whose line is not known."""
    sizes = ", ".join(f"{device} {size / MIB:,.0f} MiB" for device, size in log.facts.model_buffers.items())
    return f"model buffers: {sizes}"[:LONGEST]


def offloaded(log: LogStory) -> Evidence:
    """How many of its layers a log says that it put on a GPU."""
    words = f"offloaded {log.facts.layers_offloaded}/{log.facts.layers} layers to GPU"
    return fact(log, "layers_offloaded", words)


def fact(log: LogStory, name: str, otherwise: str) -> Evidence:
    """The line that said a fact (a field of LogFacts); without it the fact in our words."""
    line = log.fact_lines.get(name)
    if line is None:
        return Evidence(Source.LOG, otherwise)
    return Evidence.of_line(line)


def heard(log: LogStory, topic: Topic) -> tuple[Evidence, ...]:
    """The first and the last line about a topic; the same line counts once."""
    seen = log.seen.get(topic)
    lines = () if seen is None else dict.fromkeys((seen.first, seen.last))
    return tuple(Evidence.of_line(line) for line in lines)


def said(log: LogStory | None, *, details: bool = False) -> bool:
    """Whether what the log does not say about the start did not happen: it holds the start, in enough detail."""
    if log is None or log.starts < 1:
        return False
    return not details or (log.verbosity is not None and log.verbosity >= DETAILS)
