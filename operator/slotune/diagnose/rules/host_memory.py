"""Is there enough host memory for the prompt cache and for weights on the CPU?"""

from __future__ import annotations

import re
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import (
    NEEDS_START,
    Backend,
    backend_of,
    build_of,
    fact,
    heard,
    host_bytes,
    shown,
    stated,
    weights_bytes,
)
from slotune.diagnose.rules.settings import has_defaults
from slotune.diagnose.rules.weights_file import read_whole
from slotune.diagnose.symptoms import PodFacts, Symptoms
from slotune.llama.build_defaults import defaults_of
from slotune.llama.failure_words import in_flags
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import Topic

__all__ = [
    "CACHE_RAM_BEYOND_LIMIT",
    "HOST_MEMORY_PRESSURE",
    "cache_ram_beyond_limit",
    "cure_of",
    "host_memory_pressure",
    "is_about_prompt_cache",
    "ran_out_on_host",
]

MIB: Final = 2**20
CACHE_ROOM: Final = 0.9
"""Part of what is left of a memory limit that a cache may be given: the rest is for buffers that grow."""
STEP_MIB: Final = 256
"""Suggested sizes are multiples of this."""
KILLED: Final = 137
"""Exit code of a process that the kernel killed."""
RECENT_S: Final = 86_400
"""A kill within a day may come again today: a cache takes about so long to grow (rwlove/home-ops#13936: 1.5 days)."""
LONG_AGO_S: Final = 7 * RECENT_S
"""Whoever served well for a week since then was given what it needs, or something else changed."""
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

HOST_MEMORY_PRESSURE: Final = Entry(
    id="SLT034",
    code="HostMemoryPressure",
    item=Item.MEMORY,
    title="Host memory runs short",
    cause="Weights on the CPU, the host prompt cache, context checkpoints and buffers count against the container's "
    "limit. Before the kernel kills the server for it, mapped weights are dropped and read from disk again at every "
    "step, and the host cache gets no memory.",
    first="Raise the memory limit to the weights that stay on the host, plus --cache-ram, plus 2 GiB; or lower "
    "--cache-ram.",
    avoid="Do not take the limit away on a node that others use: then the node picks its victim.",
    verify="The pod has no OOMKilled, and the node no MemoryPressure.",
    knobs=("cacheRAMMiB", "variant"),
)


def cache_ram_beyond_limit(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the cache, as it is set or by default, can outgrow the memory limit of its pod."""
    pod, cache, taken = symptoms.pod, _cache_ram(symptoms), _host_taken(symptoms)
    if cache is not None and cache[0] == 0:
        return Clear("there is no host prompt cache", (cache[1],))
    if pod is not None and pod.memory_limit_bytes is None:
        return Clear("the pod has no memory limit")
    limit = _limit(symptoms)
    if limit is None:
        return Undecided("--deployment: the memory limit of its pods")
    if cache is None or taken is None:
        sizes = "the size of the weights: --url, --model FILE, or a log with -lv 4"
        return Undecided(NEEDS_START if cache is None else sizes)
    return _fits(*limit, taken, *cache)


def _limit(symptoms: Symptoms) -> tuple[int, Evidence] | None:
    """(Bytes that it may use, who says so): by its pod, or by the cgroup that its process is in."""
    pod, host = symptoms.pod, symptoms.host
    if pod is not None and pod.memory_limit_bytes is not None:
        size = pod.memory_limit_bytes
        return size, Evidence(Source.POD, f"limits.memory {size / MIB:,.0f} MiB")
    if host is None or host.last.limit_bytes is None:
        return None
    return host.last.limit_bytes, Evidence(Source.PROC, f"memory.max {host.last.limit_bytes}")


def _fits(limit_bytes: int, limit: Evidence, taken: int, size: int, told: Evidence) -> Finding | Clear:
    """Whether a cache of ``size`` MiB fits beside the bytes that are taken; -1 never does."""
    left = max(0, limit_bytes - taken)
    if 0 < size * MIB <= left:
        return Clear(f"a cache of {size:,} MiB fits into the memory limit", (told, limit))
    rest = "" if not taken else f", of which the model takes {taken / MIB:,.0f}"
    whose = "pod" if limit.source is Source.POD else "container"
    grows = "without limit" if size < 0 else f"to {size:,} MiB"
    fitting = int(CACHE_ROOM * left / MIB) // STEP_MIB * STEP_MIB
    return Finding(
        CACHE_RAM_BEYOND_LIMIT,
        f"the host prompt cache may grow {grows}, the {whose} may use {limit_bytes / MIB:,.0f} MiB{rest}",
        (told, limit),
        confidence=Confidence.LIKELY,
        first=f"Set --cache-ram {fitting}, or raise the memory limit"
        + (f" by {size - left / MIB:,.0f} MiB." if size > 0 else "."),
    )


def _cache_ram(symptoms: Symptoms) -> tuple[int, Evidence] | None:
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


def _host_taken(symptoms: Symptoms) -> int | None:
    """Bytes of host memory that the model takes for good; None when nobody knows where it lies, or how large it is."""
    log = symptoms.log
    if log is not None and log.facts.model_buffers:
        facts = log.facts
        return sum(host_bytes(one) for one in (facts.model_buffers, facts.kv_buffers, facts.compute_buffers))
    backend = backend_of(symptoms)
    if backend is None:
        return None
    return 0 if backend.is_gpu else weights_bytes(symptoms)


def host_memory_pressure(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether the server was killed for memory, or is about to be."""
    pod, node = symptoms.pod, symptoms.node
    found = (check(symptoms) for check in (_log_ended, _killed, _node_is_short, _beyond_limit, _refused, _events_tell))
    if heaviest := sorted((one for one in found if one is not None), key=lambda one: one.severity is Severity.INFO):
        return heaviest[0]
    if pod is None or node is None:
        return Undecided("--deployment: exit codes of its containers, and the state of the node")
    return Clear(f"nothing was killed for memory, and {node.name} has enough")


def _log_ended(symptoms: Symptoms) -> Finding | None:
    log = symptoms.log
    if log is None or log.failure is None or not ran_out_on_host(symptoms):
        return None
    line, sentence = log.failure_line, in_flags(log.failure.sentence)
    told = Evidence(
        Source.LOG, (sentence if line is None else line.text)[:LONGEST], None if line is None else line.number
    )
    # The process that it happened to may have been followed by one that came up.
    severity = Severity.WARNING if log.starts > 1 and log.facts.ready else Severity.CRITICAL
    entry = OF_FAILURES[log.failure.failure_class]
    return Finding(entry, f"host memory ran out: {sentence}", (told,), severity, first=cure_of(sentence))


def ran_out_on_host(symptoms: Symptoms) -> bool:
    """Whether the log ends for want of memory that is the host's: also weights, caches and buffers of a CPU server."""
    log = symptoms.log
    if log is None or log.failure is None or not log.failure.failure_class.is_memory:
        return False
    line = "" if log.failure_line is None else log.failure_line.text
    is_host = log.failure.failure_class is FailureClass.OUT_OF_MEMORY_HOST or "mmap failed" in line
    return is_host or backend_of(symptoms) is Backend.CPU


def cure_of(sentence: str) -> str | None:
    """What a failure's sentence says to do, as a sentence of its own."""
    _, found, cure = sentence.rpartition(": ")
    return f"{cure[:1].upper()}{cure[1:]}." if found else None


def _killed(symptoms: Symptoms) -> Finding | None:
    pod = symptoms.pod
    reason, code = (pod.last_exit if pod is not None else None) or ("", 0)
    if pod is None or (reason != "OOMKilled" and code != KILLED):
        return None
    if reason != "OOMKilled":
        return Finding(
            HOST_MEMORY_PRESSURE,
            f"its container was killed (exit code {code}), and nobody says what for",
            (Evidence(Source.POD, f"last exit {reason} {code}"),),
            # A probe that failed, an eviction and an end that took too long look the same.
            Severity.INFO,
            Confidence.POSSIBLE,
            first="Look at kubectl describe pod for what killed it: a failed liveness probe, an eviction, or memory.",
        )
    ago = "" if pod.last_exit_ago_s is None else f" {_ago(pod.last_exit_ago_s)}"
    limit = "" if pod.memory_limit_bytes is None else f", its limit is {pod.memory_limit_bytes / MIB:,.0f} MiB"
    return Finding(
        OF_FAILURES[FailureClass.OUT_OF_MEMORY_HOST],
        f"its container was killed with {reason} (exit code {code}){ago}{limit}",
        (Evidence(Source.POD, f"last exit {reason} {code}"), *_memory_events(symptoms)),
        _weight_of(pod),
    )


def _weight_of(pod: PodFacts) -> Severity:
    """Of a kill for memory: a server that has run well for days since then is no emergency."""
    if pod.last_exit_ago_s is None or pod.ready is not True or pod.last_exit_ago_s < RECENT_S:
        return Severity.CRITICAL
    return Severity.WARNING if pod.last_exit_ago_s < LONG_AGO_S else Severity.INFO


def _ago(passed_s: float) -> str:
    hours = passed_s / 3600
    if hours < 1:
        return "less than an hour ago"
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"


def _node_is_short(symptoms: Symptoms) -> Finding | None:
    node = symptoms.node
    if node is None or "MemoryPressure" not in node.pressures:
        return None
    told = Evidence(Source.NODE, f"{node.name} MemoryPressure")
    return Finding(HOST_MEMORY_PRESSURE, f"the node {node.name} is short of memory", (told, *_memory_events(symptoms)))


def _refused(symptoms: Symptoms) -> Finding | None:
    log = symptoms.log
    heard_of = () if log is None else heard(log, Topic.OUT_OF_MEMORY)
    lines = tuple(line for line in heard_of if is_about_prompt_cache(line))
    if not lines:
        return None
    return Finding(HOST_MEMORY_PRESSURE, "the host prompt cache did not get the memory that it asked for", lines)


def _events_tell(symptoms: Symptoms) -> Finding | None:
    events = _memory_events(symptoms)
    if not events:
        return None
    return Finding(HOST_MEMORY_PRESSURE, "events tell of too little memory", events, confidence=Confidence.LIKELY)


def is_about_prompt_cache(line: Evidence) -> bool:
    """Whether a failed allocation is one of the host prompt cache, after which the server goes on without it."""
    return "memory for prompt" in line.text


def _memory_events(symptoms: Symptoms) -> tuple[Evidence, ...]:
    events = () if symptoms.pod is None else symptoms.pod.events
    return tuple(
        one for one in events if re.search(r"OOM|[Mm]emory(?: was low|Pressure)|low on resource: memory", one.text)
    )


def _beyond_limit(symptoms: Symptoms) -> Finding | None:
    """Weights that are to lie in memory as a whole, and that the limit has no room for. Of mapped ones SLT038 tells."""
    pod, weights = symptoms.pod, weights_bytes(symptoms)
    limit = None if pod is None else pod.memory_limit_bytes
    if limit is None or weights is None or weights <= limit or backend_of(symptoms) is not Backend.CPU:
        return None
    whole = read_whole(symptoms)
    if whole is None or _came_up(symptoms):
        return None
    return Finding(
        HOST_MEMORY_PRESSURE,
        f"the weights take {weights / MIB:,.0f} MiB and are to lie in memory as a whole, the pod may use "
        f"{limit / MIB:,.0f}: it is killed while it loads them",
        (whole, Evidence(Source.POD, f"limits.memory {limit / MIB:,.0f} MiB")),
        Severity.CRITICAL,
        Confidence.LIKELY,
        first=f"Raise the memory limit to {(weights / MIB + 2048):,.0f} MiB or more, or take smaller weights.",
    )


def _came_up(symptoms: Symptoms) -> bool:
    """Whether it is known to have loaded its weights, whatever they were thought to take."""
    server, log, pod = symptoms.server, symptoms.log, symptoms.pod
    is_ready = (log is not None and log.facts.ready) or (pod is not None and pod.ready is True)
    return is_ready or (server is not None and server.props is not None)
