"""Are weights that the CPU computes with dropped from the page cache, and read from their file again?

From outside it looks like any slow step. What decides is what the kernel counts for the process; without that a limit
that is smaller than the weights on the host tells enough.
"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.rules.host_parts import cache_ram, limit_mib, parts_of, projection
from slotune.diagnose.rules.placement import Backend, backend_of, host_bytes, weights_bytes
from slotune.diagnose.rules.swap import LITTLE_BYTES
from slotune.diagnose.rules.waiting_process import fetched, needs_look, waits_for
from slotune.diagnose.rules.weights_file import read_whole
from slotune.diagnose.symptoms import Symptoms

__all__ = ["WEIGHTS_READ_AGAIN", "weights_read_again"]

MIB: Final = 2**20
ON_GPU: Final = 0.15
"""Part of the weights that stays on the host with all layers on a GPU: the token embeddings, a row of which is read for
each token; of a small model with a large vocabulary it is about this much."""
ALL_THERE: Final = 0.95
"""Part of the mapped weights in memory from which all that is used is taken to be there."""
STALLED_PERCENT: Final = 5.0
"""Of the time, in which everything waited for memory: below it, it is noise of the kernel's own tidying."""

WEIGHTS_READ_AGAIN: Final = Entry(
    id="SLT038",
    code="WeightsReadAgain",
    item=Item.MEMORY,
    title="The page cache is too small for the weights on the CPU",
    cause="Weights that the CPU computes with are mapped from their file, and lie in the page cache, which counts "
    "against the container's memory limit. Every step touches all of them; those for which there is no room are "
    "dropped and read from the file again, so a token takes as long as the disk or the share needs.",
    first="Raise the memory limit to the weights on the host, plus KV cache, buffers and --cache-ram, plus 2 GiB; or "
    "take smaller weights, or more layers on the GPU.",
    avoid="Do not read them whole instead of mapping them: without room for them the server is then killed, or swaps.",
    verify="read_bytes in /proc/PID/io stands still while it answers, and so do the major page faults (the tenth "
    "number behind the name in /proc/PID/stat).",
    knobs=("variant", "gpuLayers", "cacheRAMMiB"),
)


def weights_read_again(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether mapped weights are dropped from the page cache and read again."""
    host = symptoms.host
    seen = None if host is None else _watched(symptoms, host)
    if seen is None and (whole := read_whole(symptoms)) is not None:
        return Clear("its weights are memory of its own, no pages of a file", (whole,))
    if seen is None:
        seen = _beyond_room(symptoms)
    if seen is None and host is not None:
        seen = _all_there(host)
    return seen or _on_gpu(symptoms) or Undecided(needs_look(symptoms))


def _watched(symptoms: Symptoms, host: HostFacts) -> Finding | Clear | None:
    """By what the process waited for between two looks."""
    waits, last = waits_for(host), host.last
    if last.mapped_weights_bytes == 0:
        return Clear(
            "it maps no weights: all of them are memory of its own", (Evidence(Source.PROC, "smaps: no weights"),)
        )
    if waits is None or (not waits and not host.was_at_work):
        return None
    told = (fetched(host), *_weights_told(host))
    if not waits:
        return Clear("while it worked it read none of its weights again", told)
    if last.swapped_bytes and last.swapped_bytes >= LITTLE_BYTES:
        return None  # SLT037 has those pages
    if not _is_short(host):
        return Finding(
            WEIGHTS_READ_AGAIN,
            f"{waits} of files, though memory is not short: it reads its weights for the first time, or a part of "
            "them that it had not used yet",
            told,
            Severity.INFO,
            Confidence.POSSIBLE,
            first="Look again in a minute: pages that are read for the first time are soon all there.",
        )
    return Finding(
        WEIGHTS_READ_AGAIN,
        f"{waits} of its weights{_of_room(host)}",
        told,
        first=_larger(symptoms, _needed(host)) if _is_beyond_room(host) else None,
    )


def _is_short(host: HostFacts) -> bool:
    """Whether there is no room for its mapped weights, or pages are dropped that are needed soon after."""
    refaults, stalled = host.refaults_per_s, host.last.stalled_percent
    return (
        _is_beyond_room(host)
        or (refaults is not None and refaults >= MIB)
        or (stalled is not None and stalled >= STALLED_PERCENT)
    )


def _is_beyond_room(host: HostFacts) -> bool:
    room = _room(host)
    return room is not None and _needed(host) > ALL_THERE * room


def _needed(host: HostFacts) -> int:
    return (host.last.mapped_weights_bytes or 0) + (host.last.anonymous_bytes or 0)


def _room(host: HostFacts) -> int | None:
    limits = [size for size in (host.last.limit_bytes, host.last.machine_bytes) if size]
    return min(limits) if limits else None


def _of_room(host: HostFacts) -> str:
    mapped, room = host.last.mapped_weights_bytes, _room(host)
    if not mapped or not room:
        return ""
    if not _is_beyond_room(host):
        return ", which were dropped shortly before: others need the memory"
    return f": they take {mapped / MIB:,.0f} MiB, and it may use {room / MIB:,.0f}"


def _weights_told(host: HostFacts) -> tuple[Evidence, ...]:
    mapped, resident = host.last.mapped_weights_bytes, host.last.resident_weights_bytes
    if mapped is None or resident is None:
        return ()
    text = f"weights mapped {mapped // 1024} kB, of which in memory {resident // 1024} kB"
    limit = host.last.limit_bytes
    more = () if limit is None else (Evidence(Source.PROC, f"memory.max {limit}"),)
    return (Evidence(Source.PROC, text), *more)


def _all_there(host: HostFacts) -> Clear | None:
    mapped, resident = host.last.mapped_weights_bytes, host.last.resident_weights_bytes
    if not mapped or resident is None or resident < ALL_THERE * mapped:
        return None
    return Clear("all mapped weights are in memory", _weights_told(host))


def _beyond_room(symptoms: Symptoms) -> Finding | Clear | None:
    """By the room that a limit, the node or the machine has for what the CPU computes with."""
    weights, others = _on_host(symptoms)
    if weights is None:
        return _projected(symptoms)
    for room, told in _rooms(symptoms):
        if others > room:
            return Clear("what it keeps beside its weights does not fit: that ends a server, and slows none", (told,))
        if weights + others > room:
            beside = f" and its caches and buffers {others / MIB:,.0f}" if others else ""
            return Finding(
                WEIGHTS_READ_AGAIN,
                f"the weights on the host take {weights / MIB:,.0f} MiB{beside}, the server may use "
                f"{room / MIB:,.0f}: the rest is read from its file again at every step",
                (told,),
                confidence=Confidence.LIKELY,
                first=_larger(symptoms),
            )
    limit = None if symptoms.pod is None else symptoms.pod.memory_limit_bytes
    if limit is not None and backend_of(symptoms) is Backend.CPU:
        told = Evidence(Source.POD, f"limits.memory {limit / MIB:,.0f} MiB")
        return Clear(f"{weights / MIB:,.0f} MiB of weights fit into the memory limit", (told,))
    return None


def _larger(symptoms: Symptoms, measured: int = 0) -> str:
    """What all of it needs: by its parts, by what its process has (bytes), whichever is more."""
    parts, cache = parts_of(symptoms), cache_ram(symptoms)
    by_parts = 0 if parts is None else limit_mib(parts.reserved, max(0, 0 if cache is None else cache[0]))
    return f"Give it {max(by_parts, limit_mib(measured, 0)):,} MiB or more, or take smaller weights."


def _on_host(symptoms: Symptoms) -> tuple[int | None, int]:
    """(Bytes of weights that the CPU computes with, bytes that its caches and buffers take beside them)."""
    log, parts = symptoms.log, parts_of(symptoms)
    if parts is not None and log is not None and log.facts.model_buffers:
        return parts.weights, parts.kv + parts.buffers
    if backend_of(symptoms) is not Backend.CPU:
        return None, 0
    return weights_bytes(symptoms), 0


def _rooms(symptoms: Symptoms) -> list[tuple[int, Evidence]]:
    """Upper bounds of the memory that it may use, and who says so."""
    pod, node, host = symptoms.pod, symptoms.node, symptoms.host
    found = []
    if pod is not None and pod.memory_limit_bytes:
        size = pod.memory_limit_bytes
        found.append((size, Evidence(Source.POD, f"limits.memory {size / MIB:,.0f} MiB")))
    if node is not None and node.memory_bytes:
        found.append(
            (node.memory_bytes, Evidence(Source.NODE, f"{node.name} memory {node.memory_bytes / MIB:,.0f} MiB"))
        )
    if host is not None and (room := _room(host)) is not None:
        found.append((room, Evidence(Source.PROC, f"memory {room / MIB:,.0f} MiB")))
    if (said := projection(symptoms)) is not None:
        found.append((said[1] * MIB, said[2]))
    return sorted(found, key=lambda one: one[0])


def _projected(symptoms: Symptoms) -> Finding | None:
    said = projection(symptoms)
    if said is None or said[0] <= said[1]:
        return None
    return Finding(
        WEIGHTS_READ_AGAIN,
        f"it needs {said[0]:,} MiB of host memory, and the machine has {said[1]:,}: the rest of its weights is read "
        "from their file again at every step",
        (said[2],),
        confidence=Confidence.LIKELY,
        first=_larger(symptoms, said[0] * MIB),
    )


def _on_gpu(symptoms: Symptoms) -> Clear | None:
    """With all layers on a GPU the CPU reads a row of the embeddings for each token."""
    log = symptoms.log
    if log is None or not log.facts.model_buffers or log.facts.layers_offloaded is None:
        return None
    facts = log.facts
    on_host, all_of_them = host_bytes(facts.model_buffers), facts.model_bytes
    if facts.layers_offloaded != facts.layers or backend_of(symptoms) is Backend.CPU or on_host > ON_GPU * all_of_them:
        return None
    told = Evidence(Source.LOG, f"host buffers {on_host / MIB:,.0f} MiB of {all_of_them / MIB:,.0f}")
    return Clear("all layers lie on a GPU: the CPU reads only a row of the embeddings for each token", (told,))
