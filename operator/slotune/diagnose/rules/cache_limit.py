"""May the host prompt cache, as it is set or by default, outgrow the memory limit of its pod?"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.host_parts import (
    KV_AND_BUFFERS,
    HostParts,
    cache_ram,
    cache_words,
    fits,
    growth,
    limit_beside_model,
    limit_of,
    parts_of,
)
from slotune.diagnose.rules.placement import NEEDS_START, shown, stated
from slotune.diagnose.symptoms import Symptoms

__all__ = ["CACHE_RAM_BEYOND_LIMIT", "cache_ram_beyond_limit"]

MIB: Final = 2**20
_NEEDS_SIZES: Final = "the size of the weights: --url, --model FILE, or a log with -lv 4"
_NEEDS_KV: Final = "a log with -lv 4 that holds the server's start: how much the KV cache leaves to the prompt cache"

CACHE_RAM_BEYOND_LIMIT: Final = Entry(
    id="SLT033",
    code="CacheRAMBeyondLimit",
    item=Item.MEMORY,
    title="The host prompt cache may grow beyond the pod's memory limit",
    cause="--cache-ram is 8,192 MiB where nothing is stated, whatever the container may use: the cache grows with "
    "every prompt until the kernel kills the server (ggml-org/llama.cpp#22629, #27725; rwlove/home-ops#13936: every "
    "day and a half).",
    first="Set --cache-ram to what the limit leaves, or to 0 where prompts share nothing; or raise the memory limit.",
    avoid="Do not set it to -1: then it has no limit at all.",
    verify="The container's memory stays below its limit for days, and the pod has no OOMKilled.",
    knobs=("cacheRAMMiB",),
)


def cache_ram_beyond_limit(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the cache can grow beyond what its pod may use, beside all else that lies in host memory."""
    pod, cache, limit = symptoms.pod, cache_ram(symptoms), limit_of(symptoms)
    if (never := _never_filled(symptoms, cache)) is not None:
        return never
    if pod is not None and pod.memory_limit_bytes is None:
        return Clear("the pod has no memory limit")
    if limit is None:
        return Undecided("--deployment: the memory limit of its pods")
    return Undecided(NEEDS_START) if cache is None else _fits(limit, parts_of(symptoms), cache)


def _never_filled(symptoms: Symptoms, cache: tuple[int, Evidence] | None) -> Clear | None:
    if cache is not None and cache[0] == 0:
        return Clear("there is no host prompt cache", (cache[1],))
    known = stated(symptoms)
    other = next((known[flag] for flag in ("--embedding", "--rerank") if flag in known and known[flag].on), None)
    return None if other is None else Clear("it answers no chats, and keeps no other prompts", (shown(other),))


def _fits(
    limit: tuple[int, Evidence], parts: HostParts | None, cache: tuple[int, Evidence]
) -> Finding | Clear | Undecided:
    size = cache[0]
    if parts is None:
        # A cache that is larger than the limit by itself does not fit, whatever the weights take.
        return Undecided(_NEEDS_SIZES) if 0 < size * MIB <= limit[0] else _beyond(limit, None, cache)
    if not fits(limit[0], parts.taken, size):
        return _beyond(limit, parts, cache)
    if KV_AND_BUFFERS in parts.unsaid and not fits(limit[0], parts.reserved, size):
        return Undecided(_NEEDS_KV)
    return Clear(f"a cache of {size:,} MiB fits into the memory limit", (cache[1], limit[1]))


def _beyond(limit: tuple[int, Evidence], parts: HostParts | None, cache: tuple[int, Evidence]) -> Finding:
    """What does not fit, or only just: then it is worth knowing, for a cache is seldom full to the last byte."""
    may_use, size, taken = limit[0], cache[0], 0 if parts is None else parts.taken
    rest = "" if not taken else f", of which the model takes {taken / MIB:,.0f}"
    whose = "pod" if limit[1].source is Source.POD else "container"
    is_tight = parts is not None and 0 < size * MIB <= may_use - taken
    room = ", so next to nothing is left for what grows beside it" if is_tight else ""
    return Finding(
        CACHE_RAM_BEYOND_LIMIT,
        f"the host prompt cache may grow {growth(size)}, the {whose} may use {may_use / MIB:,.0f} MiB{rest}{room}",
        (cache[1], limit[1]),
        Severity.INFO if is_tight else Severity.WARNING,
        Confidence.LIKELY,
        first=_first(may_use, parts, size),
    )


def _first(may_use: int, parts: HostParts | None, size: int) -> str:
    if parts is not None:
        return cache_words(parts, may_use, size)
    off = f"Set --cache-ram 0{limit_beside_model(size)}"
    return f"{off}: nobody said yet how much the weights and the KV cache leave to it."
