"""A server was killed for memory: which part of it took the memory, and which number makes it fit.

The prompt cache is accused only where there is one and all else fits. What the log's buffers, the arguments and the
size of the weights leave open is said to be open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from slotune.diagnose.entry import Entry
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.rules.host_parts import (
    CACHE_ROOM,
    KV_AND_BUFFERS,
    PROCESS_BYTES,
    STEP_MIB,
    HostParts,
    cache_ram,
    cache_words,
    fits,
    growth,
    limit_beside_model,
    limit_mib,
    limit_of,
    limit_words,
    parts_of,
)
from slotune.diagnose.rules.placement import fact, shown, stated
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import LogStory, Topic

__all__ = ["Eater", "eater_of"]

MIB: Final = 2**20
LEAST_CONTEXT: Final = 512
"""Tokens of a slot below which no context is advised: hardly a prompt fits into it."""
_HOST: Final = OF_FAILURES[FailureClass.OUT_OF_MEMORY_HOST]
_KV_KNOBS: Final = ("contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV")
_ONCE: Final = "Start it once with -lv 4: its log then says how much each takes."


@dataclass(frozen=True, slots=True)
class Eater:
    """What took the memory."""

    words: str
    """Behind the sentence of a finding: ``: the KV cache takes 720 MiB``; empty where nobody can tell."""
    first: str
    knobs: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()

    @property
    def entry(self) -> Entry:
        """That of a server that ran out of host memory, with the settings that help this one."""
        return replace(_HOST, knobs=self.knobs)


def eater_of(symptoms: Symptoms) -> Eater:
    """What takes the memory of a server that ran out of it."""
    limit, cache, parts = limit_of(symptoms), cache_ram(symptoms), parts_of(symptoms)
    may_use = None if limit is None else limit[0]
    if parts is None:
        return _unknown(symptoms, may_use, cache)
    if (grown := _too_much(symptoms, parts, may_use, cache)) is not None:
        return grown
    if parts.unsaid or may_use is None:
        return _open(parts, cache)
    return _something_else(symptoms, parts, may_use, None if cache is None else cache[0])


def _too_much(
    symptoms: Symptoms, parts: HostParts, may_use: int | None, cache: tuple[int, Evidence] | None
) -> Eater | None:
    """What is known not to fit; what the kernel can't drop goes first, and then the cache, which grows."""
    size = None if cache is None else cache[0]
    if may_use is not None and parts.fixed > may_use:
        return _largest(symptoms, parts, may_use, size)
    if KV_AND_BUFFERS in parts.unsaid and _died_early(symptoms):
        return _while_it_started(symptoms, parts, size)
    if cache is not None and size and (may_use is None or not fits(may_use, parts.fixed - PROCESS_BYTES, size)):
        return _cache(parts, may_use, cache)
    if may_use is not None and parts.taken + PROCESS_BYTES > may_use:
        return _largest(symptoms, parts, may_use, size)
    return None


def _died_early(symptoms: Symptoms) -> bool:
    """Whether the log ends before its model was loaded: no prompt was there to keep."""
    log, pod = symptoms.log, symptoms.pod
    is_up = pod is not None and pod.ready is True
    return log is not None and log.starts >= 1 and not log.facts.ready and log.requests is None and not is_up


def _largest(symptoms: Symptoms, parts: HostParts, may_use: int, cache: int | None) -> Eater:
    """By the largest of the parts that are too much together."""
    log = symptoms.log
    weights = max(parts.held, parts.weights)
    if parts.kv >= max(weights, parts.buffers):
        told = _told(log, "kv_buffers")
        return Eater(f": {parts.sizes}", _smaller_context(symptoms, parts, may_use, cache), _KV_KNOBS, told)
    larger = limit_words(parts, cache)
    if weights >= parts.buffers:
        return Eater(
            f": {parts.sizes}", f"Take smaller weights, or {larger}.", ("variant",), _told(log, "model_buffers")
        )
    return Eater(f": {parts.sizes}", f"Lower -ub, or {larger}.", ("uBatchSize",), _told(log, "compute_buffers"))


def _smaller_context(symptoms: Symptoms, parts: HostParts, may_use: int, cache: int | None) -> str:
    larger = limit_words(parts, cache)
    known = _context(symptoms, parts)
    if known is None:
        return f"Lower -c (the context of all slots together), or {larger}."
    context, slots, growing = known
    step = STEP_MIB * slots
    left = CACHE_ROOM * (may_use - PROCESS_BYTES) - (parts.reserved - growing)
    fitting = int(context * left / growing) // step * step
    if fitting < LEAST_CONTEXT * slots or fitting >= context:
        return f"{larger[:1].upper()}{larger[1:]}: no smaller context makes it fit."
    left_for_cache = replace(parts, kv=parts.kv - growing + growing * fitting // context).reserved
    off = "" if cache == 0 or (cache is not None and fits(may_use, left_for_cache, cache)) else " and --cache-ram 0"
    share = "" if slots == 1 else f" ({fitting // slots:,} for each of {slots} slots)"
    kept = fitting // (context // slots)
    fewer = f"; with -np {kept} as well each keeps its {context // slots:,}" if slots > 1 and 0 < kept < slots else ""
    return f"Set -c {fitting}{share} instead of {_stated_context(symptoms, context)}{off}{fewer}; or {larger}."


def _stated_context(symptoms: Symptoms, context: int) -> str:
    setting = stated(symptoms).get("-c")
    asked = "" if setting is None or not setting.values else setting.values[0]
    return f"{context}" if asked not in ("", "0") else f"the {context} that the model was trained for"


def _context(symptoms: Symptoms, parts: HostParts) -> tuple[int, int, int] | None:
    """(Tokens of all slots, slots that divide them, bytes of the KV cache that grow with them)."""
    log = symptoms.log
    if log is None or not log.facts.context_total or not parts.kv:
        return None
    facts = log.facts
    slots = 1 if facts.kv_unified in (None, True) or not facts.slots else facts.slots
    caches = facts.shape.caches
    # A window and the states of recurrent layers are as large with any context.
    growing = sum(one.size_bytes for one in caches if not one.sliding and not one.recurrent) if caches else parts.kv
    growing = min(growing, parts.kv)
    return (facts.context_total or 0, slots, growing) if growing else None


def _while_it_started(symptoms: Symptoms, parts: HostParts, cache: int | None) -> Eater:
    setting = stated(symptoms).get("-c")
    told = _told(symptoms.log, "model_buffers")
    context = "-c (it is not stated: the context that the model was trained for)"
    if setting is not None:
        context, told = f"-c (now {setting.values[0] if setting.values else ''})", (shown(setting), *told)
    return Eater(
        f": {parts.sizes}, and its log ends before it says how much the KV cache takes: no prompt was kept yet",
        f"Lower {context}, or {limit_words(parts, cache)}. {_ONCE}",
        (*_KV_KNOBS, "variant"),
        told,
    )


def _cache(parts: HostParts, may_use: int | None, cache: tuple[int, Evidence]) -> Eater:
    size = cache[0]
    beside = f" beside {parts.sizes}" if parts.sizes else ""
    larger = "" if size < 0 else f", or {limit_words(parts, size)}"
    first = f"Set --cache-ram 0{larger}." if may_use is None else cache_words(parts, may_use, size)
    return Eater(f": its prompt cache may grow {growth(size)}{beside}", first, ("cacheRAMMiB",), (cache[1],))


def _open(parts: HostParts, cache: tuple[int, Evidence] | None) -> Eater:
    """Not all sizes are known, and the known ones fit."""
    size = None if cache is None else cache[0]
    off = ", and there is no prompt cache" if size == 0 else ""
    knobs = (*_KV_KNOBS, "variant") if size == 0 else (*_HOST.knobs,)
    rest = " and ".join(parts.unsaid)
    said = f": {parts.sizes or 'the model'}{off}" + (f", and what {rest} take" if rest else "")
    first = f"{'Lower -c' if size == 0 else 'Lower --cache-ram or -c'}, or {limit_words(parts, size)}. {_ONCE}"
    return Eater(said, first, knobs, () if cache is None else (cache[1],))


def _unknown(symptoms: Symptoms, may_use: int | None, cache: tuple[int, Evidence] | None) -> Eater:
    """Nobody said how large the model is."""
    if cache is None:
        return Eater("", f"{_HOST.first} {_ONCE}", _HOST.knobs)
    size, told = cache
    if size == 0 or _died_early(symptoms):
        why = "there is no prompt cache" if size == 0 else "its log ends before a prompt could be kept"
        first = f"Lower -c, take smaller weights, or raise the memory limit. {_ONCE}"
        return Eater(f"; {why}, so the weights or the KV cache take it", first, (*_KV_KNOBS, "variant"), (told,))
    if may_use is not None and (size < 0 or size * MIB > may_use):
        first = f"Set --cache-ram 0{limit_beside_model(size)}."
        return Eater(f": its prompt cache alone may grow {growth(size)}", first, ("cacheRAMMiB",), (told,))
    return Eater("", f"{_HOST.first} {_ONCE}", _HOST.knobs, (told,))


def _something_else(symptoms: Symptoms, parts: HostParts, may_use: int, cache: int | None) -> Eater:
    """All that is counted fits: context checkpoints, images, or another process in its container."""
    log = symptoms.log
    copies = 0 if log is None else log.count(Topic.CHECKPOINT)
    larger = max(limit_mib(parts.reserved, cache or 0), -int(-may_use * 5 / 4 / MIB // STEP_MIB) * STEP_MIB)
    fewer = "Lower --ctx-checkpoints, or raise" if copies else "Raise"
    also = f", and {copies:,} lines about context checkpoints, which are memory too" if copies else ""
    return Eater(
        f": {parts.sizes or 'what its log counts'} would fit{also}",
        f"{fewer} the memory limit to {larger:,} MiB, and see whether anything else runs in its container.",
        (),
        _told(log, "kv_buffers"),
    )


def _told(log: LogStory | None, name: str) -> tuple[Evidence, ...]:
    """The line that says how large a part is, where there is one."""
    if log is None or name not in log.fact_lines:
        return ()
    line = fact(log, name, "")
    return (Evidence(Source.LOG, line.text, line.line),)
