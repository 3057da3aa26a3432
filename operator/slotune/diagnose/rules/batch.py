"""Prompts are read in pieces: how large a piece is (``-ub``), and how long a step keeps the others waiting (``-b``)."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

PREFILL_IN_SMALL_PIECES: Final = Entry(
    id="SLT020",
    code="PrefillInSmallPieces",
    item=Item.BATCH,
    title="Prompts are read in small pieces",
    cause="A prompt is computed in pieces of --ubatch-size tokens, never more than --batch-size, and every piece reads "
    "all the weights once: with small ones the time goes into reading weights (ggml-org/llama.cpp#26391).",
    first="Raise --ubatch-size to 512 or more, and --batch-size to at least the same.",
    avoid="Do not lower the context or quantize the weights for this: both leave the number of pieces as it is.",
    verify="Send one prompt of 1,000 tokens or more to the idle server before and after: its prompt eval time falls.",
    knobs=("uBatchSize", "batchSize"),
    binds="TTFTPrefill",
)

NEIGHBOURS_STALL: Final = Entry(
    id="SLT021",
    code="NeighboursStall",
    item=Item.BATCH,
    title="Answers pause while a neighbour's prompt is read",
    cause="Each step computes up to --batch-size prompt tokens, and every running answer waits for the whole step "
    "(ggml-org/llama.cpp#4216): one long prompt shows as a gap in all the others.",
    first="Lower --batch-size to 512, so that running answers get a token four times as often as with 2,048.",
    avoid="Do not raise --batch-size, and do not add slots: both let more prompt tokens into one step.",
    verify="Send a long prompt beside a running stream: the longest gap between two of its tokens falls.",
    knobs=("batchSize",),
)

CONTENTION: Final = Entry(
    id="SLT022",
    code="Contention",
    item=Item.BATCH,
    title="Prompts wait for other prompts in the same batch",
    cause="Prompts that arrive together share the batch, so each is read at a part of the speed that it has alone "
    "(ggml-org/llama.cpp#4875).",
    first="Raise --ubatch-size, so that the prompts of a step are read faster; then try fewer slots.",
    avoid="Do not add slots: more prompts would then share the same step.",
    verify="Measure at the same rate: prompt_ms of a request comes near to what the same prompt takes alone.",
    knobs=("uBatchSize", "parallelSlots", "replicas"),
    binds="TTFTContention",
)

PREFILL_BOUND: Final = Entry(
    id="SLT023",
    code="PrefillBound",
    item=Item.BATCH,
    title="Reading the prompt takes most of the wait",
    cause="Most of the time to the first token goes into computing prompt tokens that no cache could have saved.",
    first="Raise --ubatch-size and keep flash attention on; then shorter prompts, or a GPU that computes faster.",
    avoid="Do not quantize the KV cache for this: reading a prompt is arithmetic, and a quantized cache adds to it.",
    verify="Send the same prompt to the idle server before and after: prompt_ms falls.",
    knobs=("uBatchSize", "flashAttention", "gpuClass"),
    binds="TTFTPrefill",
)

PROMPT_ALONE_TOO_SLOW: Final = Entry(
    id="SLT024",
    code="PromptAloneTooSlow",
    item=Item.BATCH,
    title="Even alone on the server a prompt takes longer than is owed",
    cause="At the speed of the idle server the prompt's own tokens take longer than the promised time to the first "
    "token, so no rate is low enough and no number of replicas helps.",
    first="Try a faster GPU or smaller weights, or shorten the prompts; or promise what this server can do.",
    avoid="Do not search slots, caches or replicas: all of them only take waiting away, and here nobody waits.",
    verify="Probe the idle server: prompt tokens divided by prefill speed must be under the promised time.",
    knobs=("gpuClass", "variant"),
    binds="TTFTPrefill",
)

ENTRIES: Final = (PREFILL_IN_SMALL_PIECES, NEIGHBOURS_STALL, CONTENTION, PREFILL_BOUND, PROMPT_ALONE_TOO_SLOW)

RULES: Final[tuple[Rule, ...]] = ()
