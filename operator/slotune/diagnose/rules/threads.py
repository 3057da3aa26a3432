"""CPU threads against the CPU limit: threads that the quota does not let run make all the others wait for them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.host import HostFacts
from slotune.diagnose.processors import processor_use
from slotune.diagnose.rules import settings, work
from slotune.diagnose.rules.cpu_others import CPU_TAKEN, cpu_taken, looks
from slotune.diagnose.rules.placement import Backend, backend_of
from slotune.diagnose.rules.settings import Number
from slotune.diagnose.symptoms import Symptoms
from slotune.load.process_cpu import CPULook

__all__ = ["ENTRIES", "RULES"]

THREADS_ABOVE_QUOTA: Final = Entry(
    id="SLT060",
    code="ThreadsAboveQuota",
    item=Item.THREADS,
    title="More CPU threads than the CPU limit lets run",
    cause="Without -t llama-server starts as many threads as the host has physical cores, whatever the container's CPU "
    "limit; the quota then stops threads in the middle of a step, and all others wait for them "
    "(ollama/ollama#17916: 45 times slower).",
    first="Set -t and -tb to the CPU limit, rounded down.",
    avoid="Do not add threads: those beyond the limit only take the quota from the others.",
    verify="Decode speed of one request rises, and the container's nr_throttled stops growing.",
    knobs=("threads",),
)

CPU_LIMIT_BELOW_ONE: Final = Entry(
    id="SLT061",
    code="CPULimitBelowOneCore",
    item=Item.THREADS,
    title="The CPU limit is less than one core",
    cause="A limit below one core stops even a single thread for a part of every 100 ms, in the middle of a step: with "
    "50m a server that computes on the CPU wrote 5.9 tokens/s, with one core 79.8.",
    first="Raise limits.cpu to at least 1, better to as many whole cores as -t says.",
    avoid="Do not lower -t: one thread is the fewest there are, and the limit stops it all the same.",
    verify="Decode speed of one request rises, and the container's nr_throttled stops growing.",
)

ENTRIES: Final = (THREADS_ABOVE_QUOTA, CPU_LIMIT_BELOW_ONE, CPU_TAKEN)

_OF_CORES = re.compile(r"n_threads = \d+ \(n_threads_batch = \d+\) / (\d+)")
"""``system_info``: the threads, and after the slash the cores that the process may use."""


STATED: Final = "cmdline"
"""How evidence begins of threads that were asked for, and not seen at work."""
_NO_LIMIT: Final = "the CPU limit of its container: --deployment NAME, --proc FILE, or --url on its machine"

ENOUGH: Final = 0.75
"""A limit of 3.5 lets four threads run, a little slower; one of 1.1 stops two of them half of the time."""


def _above_quota(symptoms: Symptoms) -> Finding | Clear | Undecided:
    threads, limit = _threads(symptoms), _limit(symptoms)
    if isinstance(limit, Clear):
        return limit
    if threads is None:
        return _by_default(symptoms, limit)
    if limit is None:
        return Undecided(_NO_LIMIT)
    cores, seen, _ = limit
    if threads.value <= math.ceil(cores):
        return _within(symptoms, threads, limit)
    said = _finding(symptoms, threads.value, cores, (threads.evidence, seen), Confidence.CERTAIN)
    if threads.evidence.text.startswith(STATED) and backend_of(symptoms) is not Backend.CPU:
        return replace(said, severity=Severity.INFO, confidence=Confidence.POSSIBLE)  # a GPU may do the work
    return said


def _within(symptoms: Symptoms, threads: Number, limit: tuple[float, Evidence, bool]) -> Finding | Clear | Undecided:
    """As many threads as the limit rounded up, of which the last may be stopped for a part of the time."""
    cores, seen, is_quota = limit
    if not is_quota:
        return Undecided(_NO_LIMIT)
    if threads.value == 1 and cores < 1:
        words = "one thread is the fewest there are; that the limit stops it is a finding of its own"
        return Clear(words, (threads.evidence, seen))
    if threads.value * ENOUGH <= cores or threads.value == 1:
        return Clear(f"{_counted(threads.value, 'thread')}, {_counted(cores, 'core')}", (threads.evidence, seen))
    squeezed = _finding(symptoms, threads.value, cores, (threads.evidence, seen), Confidence.POSSIBLE)
    return replace(squeezed, severity=Severity.INFO)


def _by_default(symptoms: Symptoms, limit: tuple[float, Evidence, bool] | None) -> Finding | Clear | Undecided:
    """Without -t the threads are the node's physical cores, at least half of those that the node counts."""
    cores = None if symptoms.node is None else symptoms.node.cores
    host = symptoms.host
    if cores is None and host is not None and host.last.cpu.stated_threads == 0:
        cores = host.last.cpu.machine_cpus
    elif not settings.has_defaults(symptoms):
        cores = None
    if limit is None or cores is None:
        return Undecided(f"a log with -lv 4 that holds the start, {settings.ITS_ARGUMENTS}, or a look while it answers")
    least, most = math.floor(cores / 2), cores
    seen = Evidence(Source.NODE if symptoms.node is not None else Source.PROC, f"cpu: {cores:g}")
    if most <= math.ceil(limit[0]):
        return Clear(f"the machine has {_counted(cores, 'core')}, and the limit is {limit[0]:g}", (seen, limit[1]))
    if least <= math.ceil(limit[0]):
        return Undecided("a log with -lv 4 that holds the start: how many threads there are")
    unstated = Evidence(Source.FLAGS, "-t is not stated")
    return _finding(symptoms, least, limit[0], (unstated, limit[1], seen), Confidence.LIKELY)


def _finding(
    symptoms: Symptoms, threads: int, cores: float, evidence: tuple[Evidence, ...], confidence: Confidence
) -> Finding:
    speed = work.user_speed(symptoms)
    is_on_gpu = _is_on_gpu(symptoms)
    fit = max(1, math.floor(cores))
    least = "at least " if confidence is Confidence.LIKELY else ""
    words = f"{least}{threads} threads share {_counted(cores, 'core')}"
    if is_on_gpu:
        words += "; all layers are on the GPU, so only sampling feels it"
    elif speed is not None:
        words += f", and one request gets {speed.value:.1f} tok/s"
    return Finding(
        THREADS_ABOVE_QUOTA,
        words,
        evidence if speed is None else (*evidence, speed.evidence),
        Severity.INFO if is_on_gpu else Severity.WARNING,
        confidence,
        first=f"set -t {fit} and -tb {fit}",
    )


def _below_one(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """A limit that no number of threads makes up for; what a log says of cores is a count of whole ones."""
    pod, host = symptoms.pod, symptoms.host
    if pod is not None:
        limit, seen = pod.cpu_limit, Evidence(Source.POD, f"limits.cpu: {pod.cpu_limit or 0:g}")
    elif host is not None and host.last.cpu.knows_limit:
        limit, seen = host.last.cpu.limit_cores, _of_cgroup(host.last.cpu)
    else:
        return Undecided(_NO_LIMIT)
    if limit is None:
        return Clear("the container has no CPU limit" if pod is not None else "no CPU limit holds it")
    if limit >= 1:
        return Clear(f"the CPU limit is {_counted(limit, 'core')}", (seen,))
    speed = work.user_speed(symptoms)
    words = f"the CPU limit is {limit:g} of a core"
    backend = backend_of(symptoms)
    holds_gpu = pod is not None and bool(pod.gpus or pod.gpu_parts)
    if _is_on_gpu(symptoms) or (backend is not None and backend.is_gpu) or holds_gpu:
        words = f"{words}: what computes is the GPU, and only sampling and reading requests wait for it"
        return Finding(CPU_LIMIT_BELOW_ONE, words, (seen,), Severity.INFO, Confidence.LIKELY)
    words += "" if speed is None else f", and one request gets {speed.value:.1f} tok/s"
    is_sure = backend is Backend.CPU
    return Finding(
        CPU_LIMIT_BELOW_ONE,
        words,
        (seen,) if speed is None else (seen, speed.evidence),
        confidence=Confidence.LIKELY if is_sure else Confidence.POSSIBLE,
        cost=Cost(speed_share=1 - limit) if is_sure else Cost(),
    )


def _is_on_gpu(symptoms: Symptoms) -> bool:
    """Whether all layers are known to be there."""
    facts = None if symptoms.log is None else symptoms.log.facts
    return facts is not None and facts.on_gpu and facts.layers_offloaded == facts.layers is not None


def _counted(amount: float, what: str) -> str:
    """``1 core``, ``0.5 cores``."""
    return f"{amount:g} {what}" if amount == 1 else f"{amount:g} {what}s"


def _threads(symptoms: Symptoms) -> Number | None:
    """The larger of the two pools; None: not known."""
    found = [
        one
        for one in (
            settings.number(symptoms, "-t", fact="threads"),
            settings.number(symptoms, "-tb", fact="threads_batch"),
        )
        if one is not None and one.value > 0  # -1 asks for the default
    ]
    if not found and symptoms.host is not None:
        return _threads_of_host(symptoms.host)
    return max(found, key=lambda one: one.value, default=None)


def _limit(symptoms: Symptoms) -> tuple[float, Evidence, bool] | Clear | None:
    """(Cores, who says so, whether that is the container's limit), Clear where there is none, None: nobody said."""
    pod, log, host = symptoms.pod, symptoms.log, symptoms.host
    if pod is not None and pod.cpu_limit is not None:
        return pod.cpu_limit, Evidence(Source.POD, f"limits.cpu: {pod.cpu_limit:g}"), True
    if pod is None and host is not None and host.last.cpu.knows_limit:
        return _of_host(host)
    line = None if log is None else log.fact_lines.get("threads")
    match = None if line is None else _OF_CORES.search(line.text)
    if line is not None and match is not None:
        return float(match[1]), Evidence(Source.LOG, line.text, line.number), pod is not None
    if pod is None:
        return _of_host(symptoms.host)
    cores = None if symptoms.node is None else symptoms.node.cores
    if cores is None:
        return Clear("the container has no CPU limit")
    return cores, Evidence(Source.NODE, f"cpu: {cores:g}"), True


def _threads_of_host(host: HostFacts) -> Number | None:
    """Those that were seen at work, else what its command line says: which compute shows only while they do."""
    use, stated = processor_use(host), host.last.cpu.stated_threads
    if use is not None and use.was_at_work and use.working_threads:
        return Number(use.working_threads, looks(use)[-1])
    return Number(stated, Evidence(Source.PROC, f"{STATED}: {stated} threads")) if stated else None


def _of_host(host: HostFacts | None) -> tuple[float, Evidence, bool] | None:
    """The lesser of the limit and the processors that the process may run on."""
    look = None if host is None else host.last.cpu
    if look is None or look.cpus is None:
        return None
    if look.limit_cores is not None and look.limit_cores < look.cpus:
        return look.limit_cores, _of_cgroup(look), True
    return float(look.cpus), Evidence(Source.PROC, f"stat: {look.cpus} processors to run on"), look.knows_limit


def _of_cgroup(look: CPULook) -> Evidence:
    return Evidence(Source.PROC, f"cpu.max: {look.limit_cores or 0:g} cores")


RULES: Final = (
    Rule(THREADS_ABOVE_QUOTA.id, Item.THREADS, _above_quota),
    Rule(CPU_LIMIT_BELOW_ONE.id, Item.THREADS, _below_one),
    Rule(CPU_TAKEN.id, Item.THREADS, cpu_taken),
)
