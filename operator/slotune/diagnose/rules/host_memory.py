"""Was a server killed for want of host memory, or is it about to be?"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.rules.host_cures import eater_of
from slotune.diagnose.rules.host_parts import HostParts, cache_ram, limit_of, limit_words, parts_of
from slotune.diagnose.rules.placement import Backend, backend_of, heard, weights_bytes
from slotune.diagnose.rules.probes import probe_that_killed
from slotune.diagnose.rules.told_failures import cure_of, quoted_end
from slotune.diagnose.rules.weights_file import read_whole
from slotune.diagnose.symptoms import PodFacts, Symptoms
from slotune.llama.failure_words import in_flags
from slotune.llama.failures import FailureClass
from slotune.llama.log_story import Topic

__all__ = [
    "HOST_MEMORY_PRESSURE",
    "host_memory_pressure",
    "is_about_prompt_cache",
    "ran_out_on_host",
]

MIB: Final = 2**20
KILLED: Final = 137
"""Exit code of a process that the kernel killed."""
RECENT_S: Final = 86_400
"""A kill within a day may come again today: a cache takes about so long to grow (rwlove/home-ops#13936: 1.5 days)."""
LONG_AGO_S: Final = 7 * RECENT_S
"""Whoever served well for a week since then was given what it needs, or something else changed."""

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
    sentence, told = in_flags(log.failure.sentence), quoted_end(log.failure, log.failure_line)
    # The process that it happened to may have been followed by one that came up.
    severity = Severity.WARNING if log.starts > 1 and log.facts.ready else Severity.CRITICAL
    kind = log.failure.failure_class
    if kind is not FailureClass.OUT_OF_MEMORY_HOST:
        first = _smaller_weights(symptoms) if kind is FailureClass.OUT_OF_MEMORY_WEIGHTS else cure_of(sentence)
        return Finding(OF_FAILURES[kind], f"host memory ran out: {sentence}", (told,), severity, first=first)
    # The sentence of the class can't know what took the memory, so its cure is not repeated.
    eater, what = eater_of(symptoms), sentence.rpartition(": ")[0] or sentence
    said = f"{'' if what.startswith('host memory') else 'host memory ran out: '}{what}{eater.words}"
    return Finding(eater.entry, said, (told, *eater.evidence), severity, first=eater.first)


def _smaller_weights(symptoms: Symptoms) -> str:
    return f"Take smaller weights, or {_larger(symptoms)}."


def _larger(symptoms: Symptoms) -> str:
    """The limit that all of it needs."""
    parts, cache = parts_of(symptoms), cache_ram(symptoms)
    weights = weights_bytes(symptoms)
    if parts is None and weights is None:
        return "give it more memory"
    return limit_words(parts or HostParts(weights=weights or 0), None if cache is None else cache[0])


def ran_out_on_host(symptoms: Symptoms) -> bool:
    """Whether the log ends for want of memory that is the host's: also weights, caches and buffers of a CPU server."""
    log = symptoms.log
    if log is None or log.failure is None or not log.failure.failure_class.is_memory:
        return False
    line = "" if log.failure_line is None else log.failure_line.text
    is_host = log.failure.failure_class is FailureClass.OUT_OF_MEMORY_HOST or "mmap failed" in line
    return is_host or backend_of(symptoms) is Backend.CPU


def _killed(symptoms: Symptoms) -> Finding | None:
    pod = symptoms.pod
    reason, code = (pod.last_exit if pod is not None else None) or ("", 0)
    if pod is None or (reason != "OOMKilled" and code != KILLED):
        return None
    if reason != "OOMKilled":
        if probe_that_killed(symptoms) is not None:
            return None  # which is a finding of its own
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
    eater = eater_of(symptoms)
    return Finding(
        eater.entry,
        f"its container was killed with {reason} (exit code {code}){ago}{limit}{eater.words}",
        (Evidence(Source.POD, f"last exit {reason} {code}"), *eater.evidence, *_memory_events(symptoms)),
        _weight_of(pod),
        first=eater.first,
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
    """What the kernel can't drop, and the limit has no room for. Of mapped weights SLT038 tells."""
    limit, parts, whole = limit_of(symptoms), parts_of(symptoms), read_whole(symptoms)
    if limit is None or parts is None or _came_up(symptoms):
        return None
    held = parts.weights if whole is not None else parts.held
    may_use, kept = f"{limit[0] / MIB:,.0f}", held + parts.kv + parts.buffers
    if kept <= limit[0]:
        return None
    if whole is not None and parts.weights > limit[0]:
        sentence = (
            f"the weights take {parts.weights / MIB:,.0f} MiB and are to lie in memory as a whole, the pod may use "
        )
        told: tuple[Evidence, ...] = (whole, limit[1])
        return Finding(
            HOST_MEMORY_PRESSURE,
            f"{sentence}{may_use}: it is killed while it loads them",
            told,
            Severity.CRITICAL,
            Confidence.LIKELY,
            first=_smaller_weights(symptoms),
        )
    eater = eater_of(symptoms)
    return Finding(
        replace(HOST_MEMORY_PRESSURE, knobs=eater.knobs),
        f"it needs {kept / MIB:,.0f} MiB that cannot be dropped ({parts.sizes}), and may use {may_use}: it is killed "
        "while it starts",
        (*eater.evidence, limit[1]),
        Severity.CRITICAL,
        Confidence.LIKELY,
        first=eater.first,
    )


def _came_up(symptoms: Symptoms) -> bool:
    """Whether it is known to have loaded its weights, whatever they were thought to take."""
    server, log, pod = symptoms.server, symptoms.log, symptoms.pod
    is_ready = (log is not None and log.facts.ready) or (pod is not None and pod.ready is True)
    return is_ready or (server is not None and server.props is not None)
