"""What a llama-server's log says about the server that really came up.

Only the text of a message is matched, never its prefix: module names are cut to twelve characters, and time stamps,
levels and colours come and go with flags. A fact that the log does not state is None, which is not the same as no.

Memory lines, layers and kernels are only logged at ``-lv 4``; builds before 2026 always log them. Strings: build 11549
(CPU, captured), llama.cpp's source at b11434 (CUDA lines), and b3561, b4450 and b8586 for how the same was said before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slotune.llama.log_buffers import buffers, compute_buffers, is_on_host
from slotune.llama.log_devices import device_free, device_sizes, devices_found, devices_used, gpus_in_use
from slotune.llama.log_shape import ModelShape, model_shape

__all__ = ["LogFacts", "parse_log"]


_DRAFT_MODEL = re.compile(
    r"loading draft model '[\s\S]*?(?=[^\n]*(?:initializing,? (?:slots, )?n_slots|exiting due to)|\Z)"
)
"""From the load of a draft model to the next thing that the server does."""


_CONTEXT: Final = r"(?:llama_new_context_with_model|llama_init_from_model|llama_context)"


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts of one server's log. Buffer maps go from device, as the log spells it, to bytes (rounded to 0.01 MiB)."""

    build: str | None = None
    slots: int | None = None
    context_per_slot: int | None = None
    """Tokens that one slot may use; with a unified cache that is the whole pool."""
    context_total: int | None = None
    kv_unified: bool | None = None
    batch_size: int | None = None
    ubatch_size: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    flash_attention: bool | None = None
    """Whether it is in effect, after ``auto`` was resolved."""
    layers_offloaded: int | None = None
    """As logged. A build that could use a GPU logs all of them even where there is none: see :attr:`on_gpu`."""
    layers: int | None = None
    """What ``layers_offloaded`` is out of: the model's layers and its output layer."""
    model_buffers: Mapping[str, int] = field(default_factory=dict)
    kv_buffers: Mapping[str, int] = field(default_factory=dict)
    """Keys, values and the fixed state of recurrent layers."""
    compute_buffers: Mapping[str, int] = field(default_factory=dict)
    """Scratch space of the graph and the output buffer."""
    cache_ram_mib: int | None = None
    """Host prompt cache: 0 is off, -1 has no limit."""
    cache_idle_slots: bool | None = None
    cache_reuse_unsupported: bool = False
    context_trained_cap: int | None = None
    """Training context that the slots' context was cut to, or None when it was not."""
    speculation: bool | None = None
    speculation_error: str | None = None
    draft_loaded: bool = False
    """Whether a draft model was loaded, which does not mean that it is used."""
    backend_sampling: bool | None = None
    """Whether samplers were set up where the model runs; None: the log does not say."""
    backend_sampling_error: str | None = None
    """The line that says why they were not."""
    no_usable_gpu: bool = False
    kept_on_host: int = 0
    """Weights of layers, one by one, that an argument (``-ot``, ``--cpu-moe``) kept in host memory."""
    devices: tuple[str, ...] = ()
    """GPUs that a back end found, whether anything lies on them or not: names, or ``2 CUDA devices`` without names."""
    devices_used: tuple[str, ...] = ()
    """Names of those that the model lies on, as far as the log says which they are."""
    device_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Bytes of memory of each of these, as far as the log says; several where GPUs of one name differ."""
    device_free: Mapping[str, int] = field(default_factory=dict)
    """Bytes that were free on each when a model was loaded."""
    gpus: int = 0
    """How many the model lies on, equal ones too; where the log does not say that, how many were found."""
    flash_attention_fallback: str | None = None
    """The line that says why flash attention was given up or left to another device."""
    kernel_fallback: str | None = None
    """K/V types without a compiled kernel, as ``q5_0-f16``: converted at every step (ggml-org/llama.cpp#28455)."""
    fit_changes: tuple[str, ...] = ()
    """What ``-fit`` changed or failed to change, in the log's words."""
    config_files: tuple[str, ...] = ()
    """INI files that llama-server read behind its command line."""
    ready: bool = False
    """The model was loaded."""
    parameters: float | None = None
    """Weights of the model, as rounded in the log; with a mixture of experts all of them."""
    experts: int | None = None
    """Experts of each layer; 0 is a dense model."""
    experts_used: int | None = None
    """How many of them take part in a token."""
    model_path: str | None = None
    """Of the weights, as the command line named them."""
    shape: ModelShape = field(default_factory=ModelShape)
    """The model's widths, its caches one by one, and what a draft model beside it takes."""

    @property
    def model_bytes(self) -> int:
        """Weights, over all devices."""
        return sum(self.model_buffers.values())

    @property
    def kv_bytes(self) -> int:
        """KV cache, over all devices."""
        return sum(self.kv_buffers.values())

    @property
    def compute_bytes(self) -> int:
        """Compute and output buffers, over all devices."""
        return sum(self.compute_buffers.values())

    @property
    def on_gpu(self) -> bool:
        """Whether any weights lie outside host memory."""
        return any(not is_on_host(device) for device in self.model_buffers)

    @property
    def memory_bytes(self) -> int | None:
        """Model, KV and compute buffers in GPU memory, or in the host's without a GPU. None: the log does not say."""
        buffers = [*self.model_buffers.items(), *self.kv_buffers.items(), *self.compute_buffers.items()]
        if not buffers:
            return None
        return sum(size for device, size in buffers if not (self.on_gpu and is_on_host(device)))

    @property
    def device_compute_bytes(self) -> int | None:
        """Compute buffers where the model runs, as :attr:`memory_bytes` counts them; None when the log has none."""
        if not self.compute_buffers:
            return None
        on_gpu = self.on_gpu
        return sum(size for device, size in self.compute_buffers.items() if not (on_gpu and is_on_host(device)))


def parse_log(text: str) -> LogFacts:
    """Facts in the log ``text``. Of a fact stated twice the last counts; weights and caches of one device add up."""
    whole, text = text, _DRAFT_MODEL.sub("\n", text)  # what a draft model's context has is not the server's
    slots = _last(r"initializing, n_slots = (\d+), n_ctx_slot = (\d+), kv_unified = '(\w+)'", text)
    count = _number(r"initializing(?:,? slots)?, n_slots = (\d+)|initializing slots \|[^\n]* n_slots=(\d+)", text)
    cache_types = _last(r"\bK \((\w+)\): +[\d.]+ MiB, V \((\w+)\):", text)
    offloaded = _last(r"offloaded (\d+)/(\d+) layers to GPU", text)
    threads = _last(r"n_threads = (\d+) \(n_threads_batch = (\d+)\)", text) or _last(
        r"system info \|[^\n]* n_threads=(\d+) n_threads_batch=(-?\d+)", text
    )
    fallback = _last(r"([^\n:]*Flash Attention (?:is assigned to device|not supported)[^\n]*)", text)
    return LogFacts(
        build=_build(text),
        slots=int(slots[1]) if slots else count,
        context_per_slot=int(slots[2]) if slots else _context_per_slot(text),
        context_total=_context_number("n_ctx", text),
        kv_unified=slots[3] == "true" if slots else _context_switch("kv_unified", text),
        batch_size=_context_number("n_batch", text),
        ubatch_size=_context_number("n_ubatch", text),
        threads=int(threads[1]) if threads else None,
        threads_batch=(int(threads[2]) if int(threads[2]) > 0 else int(threads[1])) if threads else None,
        cache_type_k=cache_types[1] if cache_types else None,
        cache_type_v=cache_types[2] if cache_types else None,
        flash_attention=_flash_attention(text),
        layers_offloaded=int(offloaded[1]) if offloaded else None,
        layers=int(offloaded[2]) if offloaded else None,
        model_buffers=buffers(r"(\S+) model|llm_load_tensors: +(\S+)", whole),
        kv_buffers=buffers(r"(\S+) (?:KV|RS|DSV4 \S+ state)", whole),
        compute_buffers=compute_buffers(whole),
        cache_ram_mib=_cache_ram(text),
        cache_idle_slots=_idle_slots(text),
        cache_reuse_unsupported="cache_reuse is not supported by" in text,
        context_trained_cap=_number(r"exceeds the training context of the model \((\d+)\) - capping", text),
        speculation=_speculation(text),
        speculation_error=_word(
            r"(failed to initialize speculative decoding context: [^\n]*|speculative decoding not supported[^\n]*)",
            text,
        ),
        draft_loaded="loading draft model '" in whole,
        backend_sampling=True if "setting backend sampler for seq_id" in text else None,
        backend_sampling_error=_word(r"(sampler '[^\n]* cannot be offloaded to the backend)", text),
        no_usable_gpu=bool(re.search(r"no usable GPU found|[Nn]ot compiled with GPU offload support", text)),
        kept_on_host=len(re.findall(r"\bblk\.\d+\.\S+ (?:\([^)\n]*\) )?buffer type overrid+en to CPU\b", text)),
        devices=devices_found(text),
        devices_used=devices_used(text),
        device_sizes=device_sizes(text),
        device_free=device_free(text),
        gpus=gpus_in_use(text),
        flash_attention_fallback=fallback[1].strip() if fallback else None,
        kernel_fallback=_word(r"no FlashAttention vector kernel compiled for K/V types (\S+?)[,\s]", text),
        fit_changes=_all(r"(context size reduced from [^\n]*|failed to fit params to free device memory[^\n]*)", text),
        config_files=_all(r"using config file: ([^\n]+)", text),
        ready=bool(re.search(r"\bmodel loaded\s*(?:\| tid=|$)", text, re.MULTILINE)),
        parameters=_parameters(text),
        experts=_number(r"\bn_expert +=+ +(\d+)", text),
        experts_used=_number(r"\bn_expert_used +=+ +(\d+)", text),
        model_path=_word(r"load_model: loading model '([^'\n]+)'", text),
        shape=model_shape(text, "\n".join(_DRAFT_MODEL.findall(whole))),
    )


def _last(pattern: str, text: str) -> re.Match[str] | None:
    found = None
    for match in re.finditer(pattern, text):
        found = match
    return found


def _word(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1].strip() if match else None


def _all(pattern: str, text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1].strip() for match in re.finditer(pattern, text)))


def _number(pattern: str, text: str) -> int | None:
    match = _last(pattern, text)
    return int(match[match.lastindex or 0]) if match else None


def _parameters(text: str) -> float | None:
    match = _last(r"\bmodel params +=+ +([\d.]+) ([KMBT])\b", text)
    return float(match[1]) * 1000 ** ("KMBT".index(match[2]) + 1) if match else None


def _build(text: str) -> str | None:
    # The wheel was built without a number, so the embedded engine names itself.
    patterns = (r"slotune engine: (xllamacpp \S+)", r"\bbuild_info: (\S+)", r"\bbuild:? (\d+ \(\w+\))")
    if build := next((build for pattern in patterns if (build := _word(pattern, text))), None):
        return build
    old = _last(r"\bbuild info \|[^\n]* build=(\d+)(?: [^\n]*?commit=\"(\w+)\")?", text)
    return f"{old[1]} ({old[2] or 'unknown'})" if old else None


def _context_per_slot(text: str) -> int | None:
    stated = _number(r"\bnew slot,? n_ctx(?:_slot)? = (\d+)|\bnew slot \|[^\n]* n_ctx_slot=(\d+)", text)
    return stated or _context_number("n_ctx_seq", text) or _context_number("n_ctx_per_seq", text)


def _context_line(name: str, text: str) -> str | None:
    # Two blanks before the sign: the table of a new context aligns its values, ordinary messages do not.
    match = _last(rf"(?:\b{name} {{2,}}|{_CONTEXT}: {name} +)= (\S+)", text)
    return match[1] if match else None


def _context_number(name: str, text: str) -> int | None:
    value = _context_line(name, text)
    return int(value) if value and value.isdecimal() else None


def _context_switch(name: str, text: str) -> bool | None:
    value = _context_line(name, text)
    return None if value is None else value in ("true", "1", "enabled")


def _flash_attention(text: str) -> bool | None:
    resolved = _last(r"Flash Attention (enabled|not supported|was auto, set to (?:enabled|disabled))", text)
    if resolved:
        return resolved[1].endswith("enabled")
    stated = _context_line("flash_attn", text)
    return None if stated in (None, "auto") else _context_switch("flash_attn", text)


def _cache_ram(text: str) -> int | None:
    if "prompt cache is disabled" in text:
        return 0
    limit = _last(r"prompt cache is enabled, size limit: (\d+|no limit)", text)
    if limit is None:
        return None
    return -1 if limit[1] == "no limit" else int(limit[1])


def _idle_slots(text: str) -> bool | None:
    if "idle slots will be saved to prompt cache" in text:
        return True
    # Said by default, so its absence is an answer, but only once the server said that it is up.
    return False if "prompt cache is" in text and "model loaded" in text else None


def _speculation(text: str) -> bool | None:
    if "speculative decoding context initialized" in text:
        return True
    return False if "no implementations specified for speculative decoding" in text else None
