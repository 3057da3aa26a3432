"""Is there enough memory: for the context that requests need, for the caches, for the weights, on the GPU and the host?

That a context is smaller than somebody hoped costs nothing until a request does not fit, so it is told as information;
requests that were refused or cut are another matter.
"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.counting import times
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.finding import Clear, Cost, Finding, Severity, Undecided
from slotune.diagnose.rules import cache_limit, locking, page_cache, swap, weights_file
from slotune.diagnose.rules import host_memory as host
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    fact,
    heard,
    said,
    shown,
    stated,
)
from slotune.diagnose.rules.told_failures import cure_of, quoted_end
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.failure_words import in_flags
from slotune.llama.log_story import LogStory, Topic

__all__ = ["ENTRIES", "RULES"]

RARE: Final = 0.01
"""Share of requests that do not fit: below it, it is a client's mistake now and then, not too small a context."""
_OVERSIZED: Final = re.compile(
    r"request \((\d+) tokens\) exceeds the available context size|input \((\d+) tokens\) is larger than the max context"
)

CONTEXT_SHRUNK: Final = Entry(
    id="SLT030",
    code="ContextShrunk",
    item=Item.MEMORY,
    title="A slot has less context than was asked for",
    cause="The context is divided by the number of slots, capped at what the model was trained for, and shrunk by -fit "
    "when -c is not stated and memory is short (ggml-org/llama.cpp#11681, #17767).",
    first="State -c as the context per request times --parallel, and -fit off to hear an error when it does not fit.",
    avoid="Do not raise -c beyond the training context of the model: the slots are capped there.",
    verify="n_ctx of a slot in /slots is what a request needs.",
    knobs=("contextSizePerSlot", "parallelSlots"),
)

CONTEXT_TOO_SMALL: Final = Entry(
    id="SLT031",
    code="ContextTooSmall",
    item=Item.MEMORY,
    title="Requests do not fit into the context of a slot",
    cause="A prompt that is longer than its slot's context is refused with an error; one that fills it while it is "
    "answered is cut off, or loses its beginning where context shift is on.",
    first="Raise -c to the longest prompt and answer times --parallel, or lower that; a q8_0 KV cache makes room.",
    avoid="Do not turn on --context-shift instead: answers then go on without the beginning of their prompt.",
    verify="The log has no refused or truncated request under the same traffic.",
    knobs=("contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV"),
)

KV_POOL_FULL: Final = Entry(
    id="SLT032",
    code="KVPoolFull",
    item=Item.MEMORY,
    title="The KV cache that all slots share ran full",
    cause="With one pool for all slots (--kv-unified, and the default without -np) each may use all of it, so together "
    "they may need more than there is: the batch is then halved again and again, and in the end all active requests "
    "fail together (ggml-org/llama.cpp#23652, lemonade-sdk/lemonade#3276).",
    first="Raise -c to the sum of what all slots need at once, lower --parallel, or cap a slot with "
    "--kv-unified-per-slot.",
    avoid="Do not let clients retry at once: the pool is as full as before.",
    verify="The log has no line about free space in the KV cache under the same traffic.",
    knobs=("contextSizePerSlot", "parallelSlots", "kvUnified", "cacheTypeK", "cacheTypeV"),
)

GPU_MEMORY_FULL: Final = Entry(
    id="SLT036",
    code="GPUMemoryFull",
    item=Item.MEMORY,
    title="GPU memory ran out",
    cause="Weights, KV cache and compute buffers must fit together with what others hold; buffers also grow while it "
    "serves, so one that started may still fail at its first long prompt (ggml-org/llama.cpp#13085). A server that "
    "ended with it is told by what did not fit.",
    first="Lower what the log names: the context or slots for the KV cache, --ubatch-size for the compute buffer, a "
    "smaller quantization for the weights.",
    avoid="Do not start it again with the same settings: it ends in the same place.",
    verify="It answers the longest prompt on every slot at once.",
    knobs=("contextSizePerSlot", "parallelSlots", "uBatchSize", "cacheTypeK", "cacheTypeV", "variant"),
)


def _context_shrunk(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is not None:
        fitted = heard(log, Topic.FIT_REDUCED_CONTEXT)
        words = next((change for change in log.facts.fit_changes if change.startswith("context size reduced")), None)
        if fitted or words:
            what = words or "the context was reduced"
            return _shrunk(f"-fit: {what}", fitted or (fact(log, "fit_changes", what[:LONGEST]),))
        cap = log.facts.context_trained_cap
        if cap is not None or log.count(Topic.CONTEXT_CAPPED):
            to = "" if cap is None else f" to {cap:,} tokens"
            lines = heard(log, Topic.CONTEXT_CAPPED) or (fact(log, "context_trained_cap", f"capping to {cap}"),)
            return _shrunk(f"the context of a slot was capped{to}, which is what the model was trained for", lines)
    if (divided := _divided(symptoms)) is not None:
        return divided
    if said(log, details=True):
        return Clear("the context is as it was asked for")
    return Undecided(NEEDS_START)


def _shrunk(sentence: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(CONTEXT_SHRUNK, sentence, evidence, Severity.INFO)


def _slot_context(symptoms: Symptoms) -> tuple[int, int, Evidence] | None:
    """(tokens of a slot, slots, who says so)."""
    server, log = symptoms.server, symptoms.log
    if server is not None and server.props is not None:
        props = server.props
        told = Evidence(Source.PROPS, f"n_ctx {props.context_per_slot}, total_slots {props.total_slots}")
        return props.context_per_slot, props.total_slots, told
    if log is not None and log.facts.context_per_slot and log.facts.slots:
        words = f"n_slots = {log.facts.slots}, n_ctx_slot = {log.facts.context_per_slot}"
        return log.facts.context_per_slot, log.facts.slots, fact(log, "context_per_slot", words)
    return None


def _divided(symptoms: Symptoms) -> Clear | None:
    """``-c`` is for all slots together, and that is as it should be."""
    context, known = stated(symptoms).get("-c"), _slot_context(symptoms)
    if context is None or known is None or not context.values or not context.values[0].isdecimal():
        return None
    asked, (per_slot, slots, told) = int(context.values[0]), known
    if per_slot * slots < asked:
        return None
    return Clear(
        f"each of {slots} slots has {per_slot:,} of the {asked:,} tokens that were stated", (shown(context), told)
    )


def _context_too_small(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line for every request that did not fit")
    refused, cut = log.count(Topic.CONTEXT_EXCEEDED), log.count(Topic.TRUNCATED)
    shifted = log.count(Topic.CONTEXT_SHIFTED)
    if not refused + cut + shifted:
        if said(log) or log.requests is not None:
            return Clear("every request fitted into its slot")
        return Undecided("a log that holds the start or an answered request")
    parts = [
        f"{count} {words}"
        for count, words in (
            (refused, "requests were refused" if refused > 1 else "request was refused"),
            (cut, "answers were cut off" if cut > 1 else "answer was cut off"),
            (shifted, "times the beginning of a prompt was dropped" if shifted > 1 else "time a beginning was dropped"),
        )
        if count
    ]
    known = _slot_context(symptoms)
    room = "" if known is None else f": a slot has {known[0]:,} tokens"
    answered = 0 if log.requests is None else log.requests.requests
    share = (refused + cut + shifted) / max(1, answered + refused)
    lines = tuple(
        line
        for topic in (Topic.CONTEXT_EXCEEDED, Topic.TRUNCATED, Topic.CONTEXT_SHIFTED)
        for line in heard(log, topic)[:1]
    )
    return Finding(
        CONTEXT_TOO_SMALL,
        f"{' and '.join(parts)}{room}",
        lines,
        Severity.INFO if share < RARE else Severity.WARNING,
        cost=Cost(refused_share=min(1.0, (refused + cut) / max(1, answered + refused)) if refused + cut else None),
        first=_larger_context(log, known),
    )


def _larger_context(log: LogStory, known: tuple[int, int, Evidence] | None) -> str | None:
    """The context that the largest refused prompt that is quoted would have needed."""
    seen = log.seen.get(Topic.CONTEXT_EXCEEDED)
    sizes = [
        int(match[1] or match[2])
        for line in ((seen.first, seen.last) if seen else ())
        if (match := _OVERSIZED.search(line.text))
    ]
    if not sizes:
        return None
    per_slot = -(-max(sizes) * 5 // 4 // 256) * 256  # a fourth more, for the answer, in llama.cpp's blocks
    slots = 1 if known is None or log.facts.kv_unified else known[1]
    beside = "" if slots == 1 else f" ({per_slot:,} for each of {slots} slots)"
    return f"Set -c {per_slot * slots}{beside}: a prompt of {max(sizes):,} tokens was refused."


def _kv_pool_full(symptoms: Symptoms) -> Finding | Clear | Undecided:
    log = symptoms.log
    if log is None:
        return Undecided("the server's log, which has a line each time that the KV cache is full")
    count = log.count(Topic.KV_FULL)
    if count:
        facts = log.facts
        pool = "" if facts.context_total is None else f" of {facts.context_total:,} tokens"
        slots = "" if facts.slots is None else f", which {facts.slots} slots share,"
        return Finding(KV_POOL_FULL, f"the KV cache{pool}{slots} was full {times(count)}", heard(log, Topic.KV_FULL))
    if said(log) or log.requests is not None:
        return Clear("the KV cache was never full")
    return Undecided("a log that holds the start or an answered request")


def _gpu_memory_full(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Of a server that ended with it under the entry of what did not fit; else whether an allocation ever failed."""
    log = symptoms.log
    if log is None:
        return Undecided("the server's log")
    failure = log.failure
    if host.ran_out_on_host(symptoms):
        return Clear("it was host memory that ran out")
    if failure is not None and failure.failure_class.is_memory:
        sentence, told = in_flags(failure.sentence), quoted_end(failure, log.failure_line)
        return Finding(
            OF_FAILURES[failure.failure_class],
            f"the {sentence}" if sentence.startswith("GPU memory ran out") else f"memory ran out: {sentence}",
            tuple(dict.fromkeys((told, *heard(log, Topic.OUT_OF_MEMORY)[:1]))),
            # The process that it happened to may have been followed by one that came up.
            Severity.WARNING if log.starts > 1 and log.facts.ready else Severity.CRITICAL,
            first=cure_of(sentence),
        )
    lines = tuple(line for line in heard(log, Topic.OUT_OF_MEMORY) if not host.is_about_prompt_cache(line))
    if lines:
        count = log.count(Topic.OUT_OF_MEMORY)
        return Finding(GPU_MEMORY_FULL, f"an allocation failed {times(count)}", lines)
    return Clear("every buffer was allocated") if said(log) else Undecided("a log that holds the server's start")


ENTRIES: Final = (
    CONTEXT_SHRUNK,
    CONTEXT_TOO_SMALL,
    KV_POOL_FULL,
    cache_limit.CACHE_RAM_BEYOND_LIMIT,
    host.HOST_MEMORY_PRESSURE,
    weights_file.WEIGHTS_FROM_SLOW_STORAGE,
    GPU_MEMORY_FULL,
    swap.HOST_SWAP,
    page_cache.WEIGHTS_READ_AGAIN,
    locking.MEMORY_NOT_LOCKED,
)

RULES: Final[tuple[Rule, ...]] = (
    Rule(CONTEXT_SHRUNK.id, Item.MEMORY, _context_shrunk),
    Rule(CONTEXT_TOO_SMALL.id, Item.MEMORY, _context_too_small),
    Rule(KV_POOL_FULL.id, Item.MEMORY, _kv_pool_full),
    Rule(cache_limit.CACHE_RAM_BEYOND_LIMIT.id, Item.MEMORY, cache_limit.cache_ram_beyond_limit),
    Rule(host.HOST_MEMORY_PRESSURE.id, Item.MEMORY, host.host_memory_pressure),
    Rule(weights_file.WEIGHTS_FROM_SLOW_STORAGE.id, Item.MEMORY, weights_file.weights_from_slow_storage),
    Rule(GPU_MEMORY_FULL.id, Item.MEMORY, _gpu_memory_full),
    Rule(swap.HOST_SWAP.id, Item.MEMORY, swap.host_swap),
    Rule(page_cache.WEIGHTS_READ_AGAIN.id, Item.MEMORY, page_cache.weights_read_again),
    Rule(locking.MEMORY_NOT_LOCKED.id, Item.MEMORY, locking.memory_not_locked),
)
