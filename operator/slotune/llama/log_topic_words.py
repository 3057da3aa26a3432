"""The words by which llama-server's lines are told to be about something; searched in a message without its prefix."""

from __future__ import annotations

from typing import Final

from slotune.llama.log_story import Topic

__all__ = ["TOPIC_WORDS"]

TOPIC_WORDS: Final[tuple[tuple[Topic, bytes], ...]] = (
    (
        Topic.NO_USABLE_GPU,
        rb"no usable GPU found|failed to initialize (?:CUDA|ROCm|HIP|MUSA)|[Nn]ot compiled with GPU offload support",
    ),
    (Topic.LAYERS_OFFLOADED, rb"offloaded \d+/\d+ layers to GPU"),
    (
        Topic.FLASH_ATTENTION_FALLBACK,
        (
            rb"Flash Attention (?:tensor )?is assigned to device|Flash Attention not supported"
            rb"|Flash Attention was auto, set to disabled"
        ),
    ),
    (Topic.KERNEL_FALLBACK, rb"no FlashAttention vector kernel compiled for K/V types"),
    (Topic.MEDIA_FALLBACK, rb"CLIP using CPU backend|CLIP graph uses unsupported operators"),
    (Topic.FIT_REDUCED_CONTEXT, rb"context size reduced from \d+ to \d+"),
    (Topic.FIT_FAILED, rb"failed to fit params to free device memory"),
    (Topic.HOST_PROJECTED, rb"projected to use \d+ MiB of host memory vs\. \d+ MiB of total"),
    (Topic.MEMORY_NOT_LOCKED, rb"failed to mlock \d+-byte buffer|failed to VirtualLock"),
    (Topic.CONTEXT_CAPPED, rb"exceeds the training context of the model \(\d+\)"),
    (Topic.CONFIG_FILE, rb"using config file: "),
    (Topic.CACHE_REUSE_UNSUPPORTED, rb"cache_reuse is not supported by|cache reuse is not supported - ignoring"),
    (Topic.FULL_REPROCESSING, rb"forcing full prompt re-processing"),
    (Topic.CHECKPOINT, rb"created context checkpoint"),
    (Topic.CACHE_UPDATE, rb"prompt cache update took [\d.]+ ms"),
    (Topic.CACHE_EVICTED, rb"removing oldest entry \(size"),
    (Topic.STATE_EXCEEDS_CACHE, rb"prompt state size [\d.]+ MiB exceeds cache size limit"),
    (Topic.IDLE_SLOT_SAVED, rb"saving idle slot to prompt cache"),
    (Topic.SLOT_BY_SIMILARITY, rb"selected slot by (?:LCP|lcs) similarity"),
    (Topic.SLOT_BY_LRU, rb"selected slot by (?:LRU|lru)"),
    (Topic.KEPT_COMPARED, rb"prompt with length +\d+, lcp = +\d+"),
    (
        Topic.KV_FULL,
        (
            rb"failed to find free space in the KV cache|failed to find a memory slot for batch"
            rb"|Context size has been exceeded"
        ),
    ),
    (Topic.CONTEXT_EXCEEDED, rb"exceeds? the available context size|is larger than the max context size"),
    (Topic.INPUT_TOO_LARGE, rb"is too large to process\. increase the physical batch size"),
    (
        Topic.REQUEST_REFUSED,
        (
            rb"send_error: task id = +-?\d+, error: (?!.{0,40}(?:exceeds? the available context|is larger than the max"
            rb"|too large to process|Context size has been exceeded|Compute error|Invalid input batch))"
        ),
    ),
    (Topic.CONTEXT_SHIFTED, rb"slot context shift(?:, n_keep|\Z)"),
    (
        Topic.SPECULATION_FAILED,
        rb"failed to initialize speculative decoding context|speculative decoding not supported",
    ),
    (
        Topic.OUT_OF_MEMORY,
        (
            rb"(?:(?:cuda|hip|musa)Malloc\w* failed|(?:CUDA|ROCm|HIP|MUSA|SYCL) error): out of memory"
            rb"|Device memory allocation of size \d+ failed|ErrorOutOfMemory\)"
            rb"|failed to allocate (?:\S+ )?(?:buffer|compute|graph|memory for prompt)"
            rb"|unable to allocate \S+ buffer|insufficient memory \(attempted"
        ),
    ),
    (
        Topic.COMPUTE_FAILED,
        (
            rb"(?:Compute error|Invalid input batch)\. i = |failed to decode, ret = -[1-9]|failed to compute graph"
            rb"|(?:vk::|Error)DeviceLost|[Dd]evice lost|device-side assert"
        ),
    ),
    (Topic.SLOW_PROMPT, rb"prompt processing, n_tokens = +\d+, progress"),
)
"""Of builds of all ages."""
