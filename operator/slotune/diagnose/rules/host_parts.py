"""What takes the host memory of a server, part by part, and what a limit must have for it: all rules count it once.

A number that somebody is told to type has to work, so each leaves room: for the process itself, and for what grows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.rules.placement import (
    Backend,
    backend_of,
    backend_of_device,
    build_of,
    fact,
    gpu_given,
    heard,
    host_bytes,
    shown,
    stated,
    weights_bytes,
)
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.log_story import LogStory, Topic

__all__ = [
    "CACHE_ROOM",
    "KV_AND_BUFFERS",
    "PROCESS_BYTES",
    "STEP_MIB",
    "HostParts",
    "cache_ram",
    "cache_words",
    "fits",
    "growth",
    "limit_beside_model",
    "limit_mib",
    "limit_of",
    "limit_words",
    "parts_of",
    "projection",
]

MIB: Final = 2**20
CACHE_ROOM: Final = 0.9
"""Part of what is left of a memory limit that a cache may be given: the rest is for buffers that grow."""
STEP_MIB: Final = 256
"""Suggested sizes are multiples of this."""
PROCESS_BYTES: Final = 64 * MIB
"""Of the program itself beside what its log counts: b11549 had 50 MiB more than its buffers before any request."""
UNSAID_BYTES: Final = 2048 * MIB
"""Kept free for what nobody said the size of."""
KV_AND_BUFFERS: Final = "the KV cache and buffers"
WIDTHS: Final = 24
"""Values of the model's width that a token of a step needs at most: b11549 took 13 for SmolLM2; gates of eight widths
and their neighbours are the widest that are usual."""
_HOST_PROJECTED: Final = re.compile(r"projected to use (\d+) MiB of host memory vs\. (\d+) MiB of total host memory")


@dataclass(frozen=True, slots=True)
class HostParts:
    """Bytes in host memory that the model takes for good; without the prompt cache."""

    weights: int = 0
    held: int = 0
    """The part of ``weights`` that is no mapped file: the kernel can't drop it."""
    kv: int = 0
    buffers: int = 0
    unsaid: tuple[str, ...] = ()
    """What is there as well, and nobody said how large it is."""
    unsaid_bytes: int = UNSAID_BYTES
    """What has to be kept free for it."""

    @property
    def taken(self) -> int:
        """All whose size is known."""
        return self.weights + self.kv + self.buffers

    @property
    def fixed(self) -> int:
        """What the kernel can't drop, with the process itself."""
        return self.held + self.kv + self.buffers + PROCESS_BYTES

    @property
    def reserved(self) -> int:
        """What a number that is advised has to leave for it."""
        return self.taken + (self.unsaid_bytes if self.unsaid else 0)

    @property
    def sizes(self) -> str:
        """``weights 90 MiB, KV cache 720 MiB``."""
        named = {"weights": self.weights, "KV cache": self.kv, "buffers": self.buffers}
        return ", ".join(f"{name} {size / MIB:,.0f} MiB" for name, size in named.items() if size >= MIB)


def parts_of(symptoms: Symptoms) -> HostParts | None:
    """By the log's buffers, by what -fit projects, by the size of the weights; None when nobody knows where they lie,
    or how large they are."""
    log, unsaid = symptoms.log, _unsaid(symptoms)
    if log is not None and log.facts.model_buffers:
        return _of_buffers(log, tuple(one for one in unsaid if one != "the draft model"))
    weights = weights_bytes(symptoms)
    if (said := projection(symptoms)) is not None:
        # All of a server without a GPU; how it divides is known where its weights are.
        total = said[0] * MIB
        known = total if weights is None else min(weights, total)
        return HostParts(weights=known, kv=total - known, unsaid=unsaid)
    backend = backend_of(symptoms)
    if backend is not None and backend.is_gpu:
        return HostParts()
    if weights is not None and (backend is Backend.CPU or _has_no_gpu(symptoms)):
        return HostParts(weights=weights, unsaid=(KV_AND_BUFFERS, *unsaid))
    return None


def _of_buffers(log: LogStory, unsaid: tuple[str, ...]) -> HostParts:
    facts = log.facts
    mapped = host_bytes({name: size for name, size in facts.model_buffers.items() if name.endswith("_Mapped")})
    held = host_bytes(facts.model_buffers) - mapped
    parts = HostParts(
        # What was repacked for the CPU is mapped as well, and its pages of the file are not needed any more.
        weights=max(mapped, held),
        held=held,
        kv=host_bytes(facts.kv_buffers),
        buffers=host_bytes(facts.compute_buffers),
        unsaid=unsaid,
    )
    if not facts.kv_buffers:
        return replace(parts, unsaid=(KV_AND_BUFFERS, *unsaid))
    # The output buffer is said before the KV cache is made, the compute buffer after it.
    if "compute_buffers" in log.fact_lines or (facts.compute_buffers and not log.fact_lines):
        return parts
    guess = _step_bytes(log) + (UNSAID_BYTES if unsaid else 0)
    return replace(parts, unsaid=("the compute buffer", *unsaid), unsaid_bytes=guess)


def _step_bytes(log: LogStory) -> int:
    """Room for one step on the CPU: what a token needs on its way, and its mask over the context (f16)."""
    facts = log.facts
    if backend_of_device(next(iter(facts.kv_buffers))) is not Backend.CPU:
        return PROCESS_BYTES
    if facts.shape.embedding is None or facts.flash_attention is False:
        return UNSAID_BYTES
    tokens = facts.ubatch_size or defaults_of(log.build).ubatch_size
    return tokens * (4 * WIDTHS * facts.shape.embedding + 2 * (facts.context_total or 0))


def _unsaid(symptoms: Symptoms) -> tuple[str, ...]:
    """Models beside the one that is served, by its arguments."""
    known = stated(symptoms)
    beside = (
        ("-mm", "the projector of --mmproj"),
        ("-mmu", "the projector of --mmproj-url"),
        ("-md", "the draft model"),
    )
    return tuple(words for flag, words in beside if flag in known)


def _has_no_gpu(symptoms: Symptoms) -> bool:
    """Whether its pod has none and nothing else speaks of one."""
    pod = symptoms.pod
    return pod is not None and not pod.gpus and not pod.gpu_parts and gpu_given(symptoms) is None


def projection(symptoms: Symptoms) -> tuple[int, int, Evidence] | None:
    """(MiB that -fit thinks it needs on the host, MiB that the machine has, its line); of servers without a GPU."""
    lines = () if symptoms.log is None else heard(symptoms.log, Topic.HOST_PROJECTED)
    found = [(match, line) for line in lines if (match := _HOST_PROJECTED.search(line.text))]
    if not found:
        return None
    match, line = found[-1]
    return int(match[1]), int(match[2]), Evidence(line.source, line.text[:LONGEST], line.line)


def limit_of(symptoms: Symptoms) -> tuple[int, Evidence] | None:
    """(Bytes that it may use, who says so): by its pod, or by the cgroup that its process is in."""
    pod, host = symptoms.pod, symptoms.host
    if pod is not None and pod.memory_limit_bytes is not None:
        size = pod.memory_limit_bytes
        return size, Evidence(Source.POD, f"limits.memory {size / MIB:,.0f} MiB")
    if host is None or host.last.limit_bytes is None:
        return None
    return host.last.limit_bytes, Evidence(Source.PROC, f"memory.max {host.last.limit_bytes}")


def cache_ram(symptoms: Symptoms) -> tuple[int, Evidence] | None:
    """(MiB, who says so); -1 has no limit. The default counts only where the arguments are known."""
    log = symptoms.log
    if log is not None and log.facts.cache_ram_mib is not None:
        size = log.facts.cache_ram_mib
        words = "prompt cache is disabled" if size == 0 else f"prompt cache is enabled, size limit: {size} MiB"
        return size, fact(log, "cache_ram_mib", words)
    setting = stated(symptoms).get("-cram")
    if setting is not None and setting.values and re.fullmatch(r"-?\d+", setting.values[0]):
        return int(setting.values[0]), shown(setting)
    build = build_of(symptoms)
    if not has_defaults(symptoms) or build is None:
        return None
    defaults = defaults_of(build[0])
    if "-cram" in defaults.unsure:
        return None
    return defaults.cache_ram_mib, Evidence(Source.FLAGS, f"no --cache-ram: {defaults.cache_ram_mib} MiB by default")


def growth(cache_mib: int) -> str:
    """How far a prompt cache may grow."""
    return "without limit" if cache_mib < 0 else f"to {cache_mib:,} MiB"


def limit_beside_model(cache_mib: int) -> str:
    """``, or raise the memory limit to 8,960 MiB and what the model takes``; nothing fits a cache without a limit."""
    if cache_mib < 0:
        return ""
    return f", or raise the memory limit to {limit_mib(0, cache_mib):,} MiB and what the model takes"


def fits(limit: int, taken: int, cache_mib: int) -> bool:
    """Whether a prompt cache of so many MiB has room in a limit beside the bytes that are taken; -1 never does."""
    return cache_mib >= 0 and cache_mib * MIB <= CACHE_ROOM * (limit - taken - PROCESS_BYTES)


def fitting_mib(limit: int, taken: int) -> int:
    """The largest prompt cache to advise for a limit; 0 where nothing is left."""
    return max(0, int(CACHE_ROOM * (limit - taken - PROCESS_BYTES) / MIB) // STEP_MIB * STEP_MIB)


def limit_mib(taken: int, cache_mib: int) -> int:
    """The memory limit to advise for what is taken and a prompt cache beside it."""
    needed = (taken / MIB + cache_mib) / CACHE_ROOM + PROCESS_BYTES / MIB
    return -int(-needed // STEP_MIB) * STEP_MIB


def limit_words(parts: HostParts, cache_mib: int | None) -> str:
    """``raise the memory limit to 10,240 MiB (1,024 with --cache-ram 0)``, and what of it is a guess."""
    without = f"{limit_mib(parts.reserved, 0):,}"
    if cache_mib is None:
        size = f"{without} MiB and what --cache-ram allows"
    elif cache_mib < 0:
        size = f"{without} MiB and set --cache-ram 0"
    elif cache_mib == 0:
        size = f"{without} MiB"
    else:
        size = f"{limit_mib(parts.reserved, cache_mib):,} MiB ({without} with --cache-ram 0)"
    if parts.unsaid:
        reserve, what = -(-parts.unsaid_bytes // MIB), " and ".join(parts.unsaid)
        size += f", of which {reserve:,} are for {what}: nobody said how much that takes"
    return f"raise the memory limit to {size}"


def cache_words(parts: HostParts, limit: int, cache_mib: int) -> str:
    """What to do about a prompt cache that has no room in a limit; where nothing else has either, it is too small."""
    larger = limit_words(parts, cache_mib)
    if parts.taken + PROCESS_BYTES > limit:
        return f"{larger[:1].upper()}{larger[1:]}."
    smaller = f"Set --cache-ram {fitting_mib(limit, parts.reserved)}"
    return f"{smaller}." if cache_mib < 0 else f"{smaller}, or {larger}."
