"""More work than the server can do, and work that is done in vain."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

SATURATED: Final = Entry(
    id="SLT100",
    code="Saturated",
    item=Item.LOAD,
    title="Requests wait, and users' speed leaves no room for more slots",
    cause="All slots are busy and each request already gets about as few tokens/s as is owed, or fewer: a request "
    "takes too much work for this rate (ggml-org/llama.cpp#10860).",
    first="Save work first: a prompt cache that hits, then fewer bytes (smaller weights, q8_0 KV cache); then one "
    "replica more.",
    avoid="Do not add slots: they share the same bandwidth, and everybody gets slower.",
    verify="requests_deferred stays at 0 under the same load.",
    knobs=("cacheRAMMiB", "variant", "cacheTypeK", "cacheTypeV", "replicas"),
    binds="TTFTQueue",
)

ONE_USER_TOO_SLOW: Final = Entry(
    id="SLT101",
    code="OneUserTooSlow",
    item=Item.LOAD,
    title="One user alone gets fewer tokens/s than are owed",
    cause="A token of one sequence takes longer than is owed with nothing else running, so no rate is low enough and "
    "no number of replicas helps.",
    first="Try smaller weights, a GPU with more memory bandwidth, or speculative decoding.",
    avoid="Do not search slots or replicas: they share speed, and none of them makes one user faster.",
    verify="Tokens/s of one request on the idle server is above what is owed.",
    knobs=("variant", "gpuClass"),
    binds="TokensPerSecond",
)

BYTES_PER_STEP: Final = Entry(
    id="SLT102",
    code="BytesPerStep",
    item=Item.LOAD,
    title="Together, users get fewer tokens/s than are owed",
    cause="Each step reads the weights and every running request's KV cache, and with this many requests that takes "
    "longer than is owed for a token.",
    first="Smaller weights first, then a q8_0 KV cache, then fewer slots.",
    avoid="Do not change --batch-size or --ubatch-size: they are about prompts.",
    verify="Tokens/s per user at the same number of requests in flight.",
    knobs=("variant", "cacheTypeK", "cacheTypeV", "parallelSlots"),
    binds="TokensPerSecond",
)

SPECULATION_DOES_NOT_PAY: Final = Entry(
    id="SLT103",
    code="SpeculationDoesNotPay",
    item=Item.LOAD,
    title="Most guessed tokens are thrown away",
    cause="Every guessed token is computed, and only accepted ones are kept; with few accepted, or many requests at "
    "once, guessing takes more time than it saves (ggml-org/llama.cpp#27342).",
    first="Start without --spec-type (and --spec-draft-model), or guess fewer tokens at a time (--spec-draft-n-max).",
    avoid="Do not judge it with one request at a time: the loss grows with the number of requests.",
    verify="Tokens/s per user under the same load with and without it.",
    knobs=("speculation",),
)

ENTRIES: Final = (SATURATED, ONE_USER_TOO_SLOW, BYTES_PER_STEP, SPECULATION_DOES_NOT_PAY)

RULES: Final[tuple[Rule, ...]] = ()
