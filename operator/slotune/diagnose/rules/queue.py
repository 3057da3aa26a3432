"""Requests that wait for a slot: because all are busy, or though some are not."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

TOO_FEW_SLOTS: Final = Entry(
    id="SLT050",
    code="TooFewSlots",
    item=Item.QUEUE,
    title="Requests wait for a slot, and users' speed leaves room for more slots",
    cause="All slots are busy, so new requests wait until one is free: there is no limit to this queue and no error "
    "(ggml-org/llama.cpp#4875). Each running request has speed to spare, so more could run beside it.",
    first="Raise --parallel, and --ctx-size with it so that each slot keeps its context; a q8_0 KV cache makes room.",
    avoid="Do not quantize the weights first: requests wait for a slot, not for the GPU.",
    verify="requests_deferred stays at 0 under the same load, and tokens/s per user stays above what is owed.",
    knobs=("parallelSlots", "cacheTypeK", "cacheTypeV"),
    binds="TTFTQueue",
)

SLOTS_IDLE_WHILE_QUEUEING: Final = Entry(
    id="SLT051",
    code="SlotsIdleWhileQueueing",
    item=Item.QUEUE,
    title="Requests wait though slots are idle",
    cause="Something lets requests in one by one: static batching (-nocb), a slot that requests are pinned to "
    "(id_slot), too few HTTP threads, or a proxy or browser with few connections (ggml-org/llama.cpp#12013, #5827).",
    first="Take -nocb and id_slot out, raise --threads-http, and let the client open more connections.",
    avoid="Do not tune the GPU, and do not add slots: those that are there are not used.",
    verify="Busy slots follow the number of requests in flight.",
    knobs=("extraArgs",),
    binds="TTFTQueue",
)

UNFAIR_SLOTS: Final = Entry(
    id="SLT052",
    code="UnfairSlots",
    item=Item.QUEUE,
    title="A prompt in a low slot keeps those in higher slots waiting",
    cause="Prompts fill a step's batch in the order of slot numbers, not of arrival, so a long prompt in a low slot "
    "can take every step whole while one in a higher slot makes no progress (ggml-org/llama.cpp#6607).",
    first="Keep the number of slots near the number of requests in flight, and raise --ubatch-size so that a long "
    "prompt is over sooner.",
    avoid="Do not add slots: more prompts would then stand in the same line.",
    verify="In two looks at /slots while prompts are read, every slot's n_prompt_tokens_processed has grown.",
    knobs=("parallelSlots", "uBatchSize", "replicas"),
)

SCATTERED_SLOTS: Final = Entry(
    id="SLT053",
    code="ScatteredSlots",
    item=Item.QUEUE,
    title="Few busy slots lie scattered among many, and each piece reads the weights again",
    cause="With a KV stream per slot (no --kv-unified) only neighbouring slots share a computation; with m of N slots "
    "busy the weights are read about m(N-m+1)/N times a step (ggml-org/llama.cpp#25840: 166 against 38 tokens/s).",
    first="Try --kv-unified, or lower --parallel to about the number of requests in flight.",
    avoid="Do not add slots: the same requests would lie scattered even wider.",
    verify="Tokens/s per user at the same number of requests in flight rises.",
    knobs=("kvUnified", "parallelSlots"),
    binds="TokensPerSecond",
)

STATIC_BATCH: Final = Entry(
    id="SLT057",
    code="StaticBatch",
    item=Item.QUEUE,
    title="A batch must finish before a new request gets in",
    cause="With continuous batching off (-nocb) a request that comes while others run waits until all of them are "
    "done, however many slots are free.",
    first="Take -nocb (--no-cont-batching, LLAMA_ARG_NO_CONT_BATCHING) out.",
    avoid="Do not add slots: they stay empty until the running batch is over.",
    verify="With one long answer running, a second request's first token comes at once.",
    knobs=("extraArgs",),
    binds="TTFTQueue",
)

ENTRIES: Final = (TOO_FEW_SLOTS, SLOTS_IDLE_WHILE_QUEUEING, UNFAIR_SLOTS, SCATTERED_SLOTS, STATIC_BATCH)

RULES: Final[tuple[Rule, ...]] = ()
