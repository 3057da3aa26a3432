"""Why a llama-server could not be measured, and the setting that each cause names.

Exit code 1 stands for a typing error as well as for a full GPU, so the log's last lines decide: which buffer could not
be allocated tells which setting to lower. The rules are a list; the first that matches wins, so memory comes before
"the model could not be loaded", which llama-server logs after either.
"""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Failure", "FailureClass", "classify_failure"]


class FailureClass(enum.StrEnum):
    """Why a server could not be measured. The value is the API's reason."""

    BAD_FLAG = "BadFlag"
    MODEL_UNREADABLE = "ModelUnreadable"
    OUT_OF_MEMORY_WEIGHTS = "OutOfMemoryWeights"
    OUT_OF_MEMORY_KV = "OutOfMemoryKV"
    OUT_OF_MEMORY_COMPUTE = "OutOfMemoryCompute"
    OUT_OF_MEMORY_RUNTIME = "OutOfMemoryRuntime"
    OUT_OF_MEMORY_HOST = "OutOfMemoryHost"
    CPU_FALLBACK = "CPUFallback"
    CONFIGURATION_MISMATCH = "ConfigurationMismatch"
    CRASHED = "Crashed"
    WEDGED = "Wedged"
    STARTUP_TIMEOUT = "StartupTimeout"
    FOREIGN_CONTEXT = "ForeignContext"
    SPECULATION_UNAVAILABLE = "SpeculationUnavailable"

    @property
    def is_memory(self) -> bool:
        """Whether candidates that need at least as much memory are bound to fail too."""
        return self.value.startswith("OutOfMemory")


@dataclass(frozen=True, slots=True)
class Failure:
    """One diagnosed failure."""

    failure_class: FailureClass
    knob: str | None
    """The setting to lower or change first, as the API spells it, or the refused flag; None when none would help."""
    sentence: str
    """Cause, value and cure, for people. Has no prompt text."""


EVIDENCE_LENGTH = 300
"""Characters of a log line that a sentence repeats."""

_GPU_FULL = (
    r"(?:CUDA|ROCm|HIP|MUSA|SYCL) error: out of memory|(?:cuda|hip|musa)Malloc\w* failed: out of memory"
    r"|hipErrorOutOfMemory|Device memory allocation of size \d+ failed|kIOGPUCommandBufferCallbackErrorOutOfMemory"
    r"|UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY|(?:what\(\)|decode\(\) failed): [^\n]*ErrorOutOfDeviceMemory"
)
"""Each back end's words. Vulkan says ErrorOutOfDeviceMemory also of pinned memory that it goes on without."""
_KV_CURE = "lower contextSizePerSlot or parallelSlots, or take a smaller cacheTypeK and cacheTypeV"
_COMPUTE_CURE = "lower uBatchSize"
_WEIGHTS_CURE = "offer a smaller model variant, or a GPU class with more memory"
_HOST_CURE = "raise the memory limit, or lower cacheRAMMiB, contextSizePerSlot or parallelSlots"


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    failure_class: FailureClass
    knob: str | None
    sentence: Callable[[re.Match[str], str], str]
    """From the match and the amount that could not be allocated (or an empty string)."""


def _rule(pattern: str, failure_class: FailureClass, knob: str | None, sentence: str) -> _Rule:
    def fill(match: re.Match[str], amount: str) -> str:
        return sentence.format(*match.groups(), amount=amount)

    return _Rule(re.compile(pattern, re.MULTILINE), failure_class, knob, fill)


_FLAG_KNOBS = {
    "-np": "parallelSlots",
    "-c": "contextSizePerSlot",
    "-b": "batchSize",
    "-ub": "uBatchSize",
    "-fa": "flashAttention",
    "-ctk": "cacheTypeK",
    "-ctv": "cacheTypeV",
    "--cache-ram": "cacheRAMMiB",
}

_REFUSED_FLAG = re.compile(
    r'error: invalid argument: (?P<unknown>\S+)|error while handling argument "(?P<flag>[^"]+)": (?P<why>[^\n]+)'
    r'|error while handling environment variable "(?P<variable>[^"]+)": (?P<value>[^\n]+)'
)

_RULES = (
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
        f"the KV cache did not fit{{amount}}: {_KV_CURE}",
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
        f"host memory ran out{{amount}}: {_HOST_CURE}",
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
        r"couldn't bind HTTP server socket, hostname: (\S+), port: (\d+)",
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
        r"Segmentation fault|\bSIGSEGV\b",
        FailureClass.CRASHED,
        None,
        "llama-server touched memory that is not its own (SIGSEGV), which is a fault of it or of a driver: try another "
        "build, and report it with its log",
    ),
)

_DRAFT_LOAD = re.compile(
    r"loading draft model '([^'\n]*)'(?:(?!model loaded\s*$|initializing, n_slots)[\s\S])*"
    r"(?:failed to load draft model|failed to create draft context|exiting due to model loading error)"
    r"(?:(?!model loaded\s*$)[\s\S])*",
    re.MULTILINE,
)
"""A start that got as far as the draft model, and no further."""

_AMOUNT = re.compile(
    r"allocating (?P<mib>[\d.]+) MiB on device|failed to allocate buffer of size (?P<bytes>\d+)"
    r"|Device memory allocation of size (?P<device>\d+) failed"
    r"|failed to allocate \S+ buffer of size (?P<more>\d+)|attempted to allocate (?P<mb>[\d.]+) MB"
)


def classify_failure(
    exit_code: int | None,
    log_tail: str,
    *,
    timed_out: bool = False,
    wedged: bool = False,
    limit_s: float | None = None,
) -> Failure:
    """Diagnose a server that could not be measured.

    Args:
        exit_code: as a shell (137) or as Python (-9) gives it; None while it runs.
        log_tail: the end of its log, enough to hold the first error.
        timed_out: it was stopped because it was not ready within ``limit_s``.
        wedged: it was stopped because it made no progress for ``limit_s``.
        limit_s: the limit that was missed, in seconds, for the sentence.
    """
    within = f" within {limit_s:g} s" if limit_s is not None else ""
    if wedged:
        return Failure(
            FailureClass.WEDGED,
            None,
            f"llama-server held requests but made no progress{within}, whatever /health said: report it with its log",
        )
    if timed_out:
        return Failure(
            FailureClass.STARTUP_TIMEOUT,
            "startupTimeout",
            f"llama-server was not ready{within}: raise the start-up limit, or take a smaller or closer model file",
        )
    if refused := _REFUSED_FLAG.search(log_tail):
        return _refused(refused)
    amount = _amount(log_tail)
    if drafting := _DRAFT_LOAD.search(log_tail):
        return _draft_failed(drafting[1], drafting[0], amount)
    for rule in _RULES:
        if match := rule.pattern.search(log_tail):
            sentence = rule.sentence(match, amount)
            return Failure(rule.failure_class, rule.knob, sentence[: 2 * EVIDENCE_LENGTH])
    return _by_exit_code(exit_code, log_tail)


def _draft_failed(path: str, log: str, amount: str) -> Failure:
    """The model was loaded, and then its draft model was not: memory is what candidates without one need less of."""
    rule, match = next(((rule, found) for rule in _RULES if (found := rule.pattern.search(log))), (None, None))
    if rule is not None and match is not None and rule.failure_class.is_memory:
        return Failure(
            rule.failure_class,
            "draft",
            f"memory ran out for the draft model {path}{amount}: take a smaller one, or none; {_KV_CURE}"[
                : 2 * EVIDENCE_LENGTH
            ],
        )
    why = "" if rule is None or match is None else f": {rule.sentence(match, amount)}"
    return Failure(
        FailureClass.SPECULATION_UNAVAILABLE,
        "draft",
        f"the draft model {path} could not be loaded{why}"[: 2 * EVIDENCE_LENGTH],
    )


def _refused(match: re.Match[str]) -> Failure:
    if unknown := match["unknown"]:
        return Failure(
            FailureClass.BAD_FLAG,
            unknown,
            f"llama-server does not know the flag {unknown}: it is misspelt, or of another build: remove {unknown}",
        )
    if variable := match["variable"]:
        return Failure(
            FailureClass.BAD_FLAG,
            variable,
            f"llama-server refused the environment variable {variable}: {match['value']}",
        )
    flag = match["flag"]
    knob = _FLAG_KNOBS.get(flag, flag)
    return Failure(FailureClass.BAD_FLAG, knob, f"llama-server refused {flag}: {match['why'][:EVIDENCE_LENGTH]}")


def _amount(log_tail: str) -> str:
    match = _AMOUNT.search(log_tail)
    if match is None:
        return ""
    if size := match["bytes"] or match["more"] or match["device"]:
        return f" ({int(size) / 2**20:.0f} MiB were refused)"
    return f" ({float(match['mib'] or match['mb']):.0f} MiB were refused)"


def _by_exit_code(exit_code: int | None, log_tail: str) -> Failure:
    if exit_code is None:
        return Failure(FailureClass.CRASHED, None, "llama-server could not be measured, and its log does not say why")
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    if number == signal.SIGKILL:
        return Failure(
            FailureClass.OUT_OF_MEMORY_HOST,
            "cacheRAMMiB",
            f"llama-server was killed (exit code 137), as the kernel does when host memory runs out: {_HOST_CURE}",
        )
    if number == signal.SIGILL:
        return Failure(
            FailureClass.CRASHED,
            "--engine",
            "llama-server uses instructions that this processor lacks (SIGILL): take a build for this processor",
        )
    how = f"exit code {exit_code}"
    if number:
        try:
            how = signal.Signals(number).name
        except ValueError:
            how = f"signal {number}"
    last = next((line.strip() for line in reversed(log_tail.splitlines()) if line.strip()), "it logged nothing")
    return Failure(
        FailureClass.CRASHED, None, f"llama-server ended with {how}; its last line: {last[:EVIDENCE_LENGTH]}"
    )
