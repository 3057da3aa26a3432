"""What a llama-server says before it ends, and what that means: a list, of which the first that matches wins.

Memory comes before "the model could not be loaded", which llama-server logs after either; what says only that something
failed comes last. Strings: build 11549 (captured), llama.cpp's source of 2026 (common/arg.cpp, tools/server, src), and
what older builds said instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slotune.llama.failure_class import FailureClass

__all__ = ["HOST_CURE", "KV_CURE", "RULES", "FailureRule"]

_GPU_FULL = (
    r"(?:CUDA|ROCm|HIP|MUSA|SYCL) error: out of memory|(?:cuda|hip|musa)Malloc\w* failed: out of memory"
    r"|hipErrorOutOfMemory|Device memory allocation of size \d+ failed|kIOGPUCommandBufferCallbackErrorOutOfMemory"
    r"|UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|(?:what\(\)|decode\(\) failed): [^\n]*ErrorOutOfDeviceMemory"
)
"""Each back end's words. Vulkan says ErrorOutOfDeviceMemory also of pinned memory that it goes on without."""
_GPU_ERROR: Final = r"(?:CUDA|ROCm|HIP|MUSA) error: "
_CUDA_ERROR: Final = r"CUDA error: "
"""Of a driver that numbers what went wrong (Xid)."""
_DEVICE_GONE: Final = (
    r"(uncorrectable (?:ECC|NVLink) error[^\n]*|unknown error|no \S+-capable device[^\n]*|[^\n]*busy or unavailable"
    r"|[^\n]*device (?:is )?lost)"
)
_STEP_FAILED: Final = (
    r"(unspecified launch failure|an illegal (?:memory access|instruction) was encountered|misaligned address"
    r"|device-side assert triggered|the launch timed out and was terminated|hardware stack error)"
)
_BY_A_FAULT: Final = (
    "a computation failed on the GPU ({0}), by a fault of the build, of the driver or of the card: try the newest build"
)
KV_CURE = "lower contextSizePerSlot or parallelSlots, or take a smaller cacheTypeK and cacheTypeV"
_COMPUTE_CURE = "lower uBatchSize"
_WEIGHTS_CURE = "offer a smaller model variant, or a GPU class with more memory"
HOST_CURE = "raise the memory limit, or lower cacheRAMMiB, contextSizePerSlot or parallelSlots"


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Words by which one cause is known."""

    pattern: re.Pattern[str]
    failure_class: FailureClass
    knob: str | None
    sentence: Callable[[re.Match[str], str], str]
    """From the match and the amount that could not be allocated (or an empty string)."""


def _rule(pattern: str, failure_class: FailureClass, knob: str | None, sentence: str) -> FailureRule:
    def fill(match: re.Match[str], amount: str) -> str:
        return sentence.format(*(group for group in match.groups() if group is not None), amount=amount)

    return FailureRule(re.compile(pattern, re.MULTILINE), failure_class, knob, fill)


RULES: Final = (
    # The model was up: no buffer of the start is at fault (ggml-org/llama.cpp#13085).
    _rule(
        rf"model loaded\s*$[\s\S]*?(?:{_GPU_FULL})",
        FailureClass.OUT_OF_MEMORY_RUNTIME,
        "uBatchSize",
        "GPU memory ran out under load{amount}, not at the start: lower uBatchSize or contextSizePerSlot for a margin",
    ),
    _rule(
        r"failed to allocate buffer for (?:kv|rs) cache",
        FailureClass.OUT_OF_MEMORY_KV,
        "contextSizePerSlot",
        f"the KV cache did not fit{{amount}}: {KV_CURE}",
    ),
    _rule(
        r"failed to allocate compute (?:pp |tg )?buffers?|failed to allocate graph|failed to allocate output buffer",
        FailureClass.OUT_OF_MEMORY_COMPUTE,
        "uBatchSize",
        f"the compute buffer did not fit{{amount}}: {_COMPUTE_CURE}",
    ),
    _rule(
        r"unable to allocate (\S+) buffer",
        FailureClass.OUT_OF_MEMORY_WEIGHTS,
        "variant",
        f"the weights did not fit into {{0}}{{amount}}: {_WEIGHTS_CURE}",
    ),
    _rule(
        r"mmap failed: Cannot allocate memory",
        FailureClass.OUT_OF_MEMORY_WEIGHTS,
        "variant",
        "the weights file did not fit into the memory that this process may use: " + _WEIGHTS_CURE,
    ),
    _rule(
        _GPU_FULL,
        FailureClass.OUT_OF_MEMORY_RUNTIME,
        "uBatchSize",
        f"GPU memory ran out{{amount}}: {_COMPUTE_CURE}, or contextSizePerSlot",
    ),
    _rule(
        r"std::bad_alloc|insufficient memory \(attempted to allocate",
        FailureClass.OUT_OF_MEMORY_HOST,
        "cacheRAMMiB",
        f"host memory ran out{{amount}}: {HOST_CURE}",
    ),
    _rule(
        r"quantized V cache (?:requires|was requested, but this requires) [Ff]lash",
        FailureClass.BAD_FLAG,
        "flashAttention",
        "a quantized cacheTypeV needs flashAttention: set flashAttention to on, or cacheTypeV to f16",
    ),
    _rule(
        r"([KV]) cache type (\S+) with block size (\d+) does not divide (\S+=\d+)",
        FailureClass.BAD_FLAG,
        "cacheTypeK",
        "this model cannot use cacheType{0} {1}: its block of {2} does not divide {3}: set cacheType{0} to f16",
    ),
    _rule(
        r"^(?:[\d.]+ E )?error: --model is required",
        FailureClass.BAD_FLAG,
        "-m",
        "llama-server was given no model: set -m to its file, or -hf to its repository",
    ),
    _rule(
        r"error: the supplied chat template is not supported: ([^\n]*?)\.?$",
        FailureClass.BAD_FLAG,
        "--chat-template",
        "llama-server does not know the chat template {0:.60}: set --jinja, or remove --chat-template",
    ),
    _rule(
        r"(?:^|error: )(either --embeddings? or --rerank\w* can be specified, but not both)",
        FailureClass.BAD_FLAG,
        "--embedding",
        "llama-server was asked for embeddings and for reranking ({0}): remove --embedding",
    ),
    _rule(
        r"built without SSL support",
        FailureClass.BAD_FLAG,
        "--ssl-key-file",
        "this llama-server was built without TLS: remove --ssl-key-file and --ssl-cert-file",
    ),
    _rule(
        r"static assets path not found: ([^\n]+)",
        FailureClass.BAD_FLAG,
        "--path",
        "the folder of --path is not there ({0}): remove --path, or name one that is",
    ),
    _rule(
        r"failed to initialize router models: ([^\n]+)",
        FailureClass.BAD_FLAG,
        "--models-preset",
        "the router could not read what models it has ({0}): check --models-dir and --models-preset",
    ),
    _rule(
        r"tools setup failed: ([^\n]+)",
        FailureClass.BAD_FLAG,
        "--tools",
        "llama-server could not set up its tools ({0}): remove --tools",
    ),
    _rule(
        r"couldn't bind (?:HTTP server socket, hostname: |to server socket: hostname=)(\S+?),? port[:=] ?(\d+)",
        FailureClass.CRASHED,
        "--port",
        "{0}:{1} is taken or not an address of this machine: take another --port",
    ),
    _rule(
        r"the package xllamacpp is not installed",
        FailureClass.CRASHED,
        "--engine",
        "the embedded engine is not installed: pip install 'slotune[engine]', or name a llama-server with --engine",
    ),
    _rule(
        r"failed to open GGUF file '([^'\n]*)' \(([^)\n]*)\)",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model file {0} cannot be opened ({1}): check the path and the permissions",
    ),
    _rule(
        r"gguf_init_from_file: failed to open '([^'\n]*)': '([^'\n]*)'"
        r"|error loading model: failed to open (\S+): ([^\n]+)",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model file {0} cannot be opened ({1}): check the path and the permissions",
    ),
    _rule(
        r"failed to load multimodal model, '([^'\n]*)'",
        FailureClass.MODEL_UNREADABLE,
        "--mmproj",
        "the projector {0} could not be loaded: take the one that was made for this model, or remove --mmproj",
    ),
    _rule(
        r"failed to (?:load|apply) lora adapter '([^'\n]*)'",
        FailureClass.MODEL_UNREADABLE,
        "--lora",
        "the adapter {0} could not be loaded: take one that was made for this model, or remove --lora",
    ),
    _rule(
        r"no backends are loaded",
        FailureClass.CRASHED,
        "--engine",
        "llama-server found none of its libraries that compute (libggml-*.so): take an image that has them beside it, "
        "or set GGML_BACKEND_PATH",
    ),
    _rule(
        r"\berror: (failed to (?:get|download|fetch) [^\n]+)",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model could not be fetched ({0}): check its name, the network and the token (HF_TOKEN)",
    ),
    _rule(
        r"tensor '([^']+)' data is not within the file bounds",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model file is cut off (tensor {0} lies beyond its end): download it again",
    ),
    _rule(
        r"unknown model architecture: '([^']+)'",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "this llama-server does not know the architecture {0}: take a newer build",
    ),
    _rule(
        r"invalid magic characters|failed to read key-value pairs|failed to read magic|failed to read tensor info",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model file is no complete GGUF file: download it again",
    ),
    _rule(
        r"error while loading shared libraries: ([^\s:]+)",
        FailureClass.CRASHED,
        "--engine",
        "llama-server needs the library {0}, which is not there (libcuda.so.1 comes with the driver, and only into a "
        "container that was given the GPU): take an image that has it, or let the container ask for the GPU",
    ),
    _rule(
        r"version `([^'\n]+)' not found \(required by ",
        FailureClass.CRASHED,
        "--engine",
        "llama-server was built for a newer system ({0} is not there): take an image that was built as a whole, or a "
        "build for this system",
    ),
    _rule(
        r"error loading model: ([^\n]+)",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model could not be loaded: {0}",
    ),
    _rule(
        r"([^\n]*(?:[Dd]evice lost|DeviceLost)[^\n]*)",
        FailureClass.CRASHED,
        None,
        "the driver gave the GPU up while it computed ({0}), as it does when a step takes too long or hangs: lower "
        "uBatchSize, and update the driver",
    ),
    _rule(
        rf"{_GPU_ERROR}(no kernel image is available[^\n]*|device kernel image is invalid|invalid device function)",
        FailureClass.CRASHED,
        "--engine",
        "this build has no kernels for this GPU ({0}): take an image that was built for its generation, or a newer one",
    ),
    _rule(
        rf"{_CUDA_ERROR}{_DEVICE_GONE}",
        FailureClass.CRASHED,
        None,
        "the GPU failed or was taken away while the server ran ({0}): check nvidia-smi, and dmesg for Xid; then reset "
        "the GPU or reboot",
    ),
    _rule(
        rf"{_GPU_ERROR}{_DEVICE_GONE}",
        FailureClass.CRASHED,
        None,
        "the GPU failed or was taken away while the server ran ({0}): check dmesg for a fault or a reset of it; then "
        "reboot",
    ),
    _rule(
        rf"{_CUDA_ERROR}{_STEP_FAILED}",
        FailureClass.CRASHED,
        None,
        f"{_BY_A_FAULT}, and look for Xid in dmesg (13 and 31 are mostly a program's fault, 48 and 79 the card's)",
    ),
    _rule(
        rf"{_GPU_ERROR}{_STEP_FAILED}",
        FailureClass.CRASHED,
        None,
        f"{_BY_A_FAULT}, and look in dmesg for a fault or a reset of the GPU",
    ),
    _rule(
        r"(GGML_ASSERT[(:][^\n]*|GGML_ABORT[^\n]*|(?:CUDA|ROCm|HIP|MUSA|SYCL) error: [^\n]*)",
        FailureClass.CRASHED,
        None,
        "llama-server stopped itself: {0}",
    ),
    _rule(r"what\(\): +([^\n]+)", FailureClass.CRASHED, None, "llama-server ended with an exception: {0}"),
    _rule(
        r"terminate called after throwing an instance of '([^'\n]+)'",
        FailureClass.CRASHED,
        None,
        "llama-server ended with an exception: {0}",
    ),
    _rule(
        r"(\S+\.(?:cu|cuh|cpp|c|h|hpp|m|mm):\d+: (?:fatal error|\w+ error))\b",
        FailureClass.CRASHED,
        None,
        "llama-server stopped itself: {0}",
    ),
    _rule(
        r"^(\S+\.(?:cu|cuh|cpp|cc|c|h|hpp|m|mm|metal):\d+: [^\n]+)\n(?:[^\n]*\n){0,20}?"
        r"(?:No stack\.|ptrace: |The program is not being run|\[New LWP|\[Inferior 1|(?:\S+: )?Aborted\b)",
        FailureClass.CRASHED,
        None,
        "llama-server stopped itself: {0}",
    ),
    _rule(
        r"Illegal instruction",
        FailureClass.CRASHED,
        "--engine",
        "llama-server uses instructions that this processor lacks (SIGILL): take a build for this processor",
    ),
    _rule(
        r"failed to load model '([^'\n]*)': ([^\n]+)",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model {0} could not be loaded: {1}",
    ),
    _rule(
        r"failed to load model,? '([^'\n]*)'",
        FailureClass.MODEL_UNREADABLE,
        "variant",
        "the model {0} could not be loaded, and this log does not say why: set -lv 4 and read the lines before the end",
    ),
    _rule(
        r"exiting due to HTTP server error",
        FailureClass.CRASHED,
        "--port",
        "its address is taken or not one of this machine: take another --port or --host",
    ),
    _rule(
        r"Segmentation fault|\bSIGSEGV\b",
        FailureClass.CRASHED,
        None,
        "llama-server touched memory that is not its own (SIGSEGV), which is a fault of it or of a driver: try another "
        "build, and report it with its log",
    ),
)
