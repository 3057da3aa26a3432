"""Which line of a start said which fact: evidence for whoever doubts it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from slotune.llama.log_devices import DEVICE_LINE, NAMED_LINE

__all__ = ["fact_lines"]

_FACT_LINES: Final = (
    (("build",), rb"slotune engine: xllamacpp "),
    (("build",), rb"\bbuild_info: \S"),
    (("build",), rb"\bbuild:? \d+ \(\w+\)"),
    (("build",), rb"\bbuild info \| "),
    (("slots", "context_per_slot"), rb"initializing, n_slots = "),
    (("slots",), rb"initializing slots(?:, n_slots = | \| )"),
    (("context_per_slot",), rb"\bnew slot(?:,? n_ctx| \| )"),
    (("context_per_slot",), rb"\bn_ctx_seq {2,}= |\bn_ctx_per_seq += "),
    (("batch_size",), rb"\bn_batch {2,}= "),
    (("ubatch_size",), rb"\bn_ubatch {2,}= "),
    (("threads", "threads_batch"), rb"n_threads = \d+ \(n_threads_batch|\bsystem info \| .* n_threads="),
    (("cache_type_k",), rb"\bK \(\w+\): .* V \(\w+\):"),
    (("flash_attention",), rb"Flash Attention (?:enabled|not supported|was auto)"),
    (("flash_attention",), rb"\bflash_attn {2,}= |_with_model: flash_attn = "),
    (("layers_offloaded",), rb"offloaded \d+/\d+ layers to GPU"),
    (("model_buffers",), rb"model buffer size = |llm_load_tensors: +\S+ buffer size = "),
    (("kv_buffers",), rb"(?:CPU\w*|BLAS|AMX|\w+_Host) (?:KV|RS|state) buffer size = "),
    (("kv_buffers",), rb"(?:KV|RS|state) buffer size = "),
    (("kept_on_host",), rb"\bblk\.\d+\.\S+ .*buffer type overrid+en to CPU"),
    (("compute_buffers",), rb"compute buffer size = "),
    (("cache_ram_mib",), rb"prompt cache is (?:en|dis)abled"),
    (("context_trained_cap",), rb"exceeds the training context of the model"),
    (("speculation",), rb"speculative decoding context initialized|no implementations specified for speculative"),
    (("speculation_error",), rb"failed to initialize speculative|speculative decoding not supported"),
    (("draft_loaded",), rb"loading draft model '"),
    (("no_usable_gpu",), rb"no usable GPU found|[Nn]ot compiled with GPU offload support"),
    (("devices",), NAMED_LINE.encode()),
    (("devices",), DEVICE_LINE.encode()),
    (("flash_attention_fallback",), rb"Flash Attention (?:is assigned to device|not supported)"),
    (("kernel_fallback",), rb"no FlashAttention vector kernel compiled"),
    (("fit_changes",), rb"context size reduced from|failed to fit params to free device memory"),
    (("config_files",), rb"using config file: "),
    (("ready",), rb"\bmodel loaded\s*(?:\| tid=|$)"),
)
"""Fields of LogFacts that rules quote and the line that states them; of two patterns for one field, the first that is
there."""
_PATTERNS = tuple((names, re.compile(pattern)) for names, pattern in _FACT_LINES)


def fact_lines(lines: Sequence[tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """For quoted fields of :class:`~slotune.llama.log_lines.LogFacts`, number and text of the last line with them."""
    found: dict[str, tuple[int, bytes]] = {}
    for names, pattern in _PATTERNS:
        if all(name in found for name in names):
            continue
        entry = next((entry for entry in reversed(lines) if pattern.search(entry[1])), None)
        if entry is not None:
            for name in names:
                found.setdefault(name, entry)
    return found
