"""Do other programs on the same machine take the processors that the server waits for?"""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.finding import Clear, Confidence, Cost, Finding, Severity, Undecided
from slotune.diagnose.processors import ProcessorUse, processor_use
from slotune.diagnose.rules.waiting_process import needs_look
from slotune.diagnose.symptoms import Symptoms

__all__ = ["CPU_TAKEN", "cpu_taken", "looks"]

CPU_TAKEN: Final = Entry(
    id="SLT062",
    code="CPUTakenByOthers",
    item=Item.THREADS,
    title="Other programs take the cores that the server waits for",
    cause="A step on the CPU is over when its slowest thread is, so one thread that waits for a core holds all others; "
    "and with the model on a GPU the thread that feeds it needs a core at every token.",
    first="Move the other programs away, or give the server cores of its own: a cpuset or static CPU manager, else a "
    "higher weight (requests.cpu, CPUWeight, nice).",
    avoid="Do not raise -t: more threads wait for the same cores, and the slowest decides.",
    verify="Two looks at it under the same load: its threads wait for a core in less than a tenth of their time.",
    knobs=("threads",),
)

FEW: Final = 0.05
"""Of the cores: others that take less cannot be what a server waits for."""
WAITS: Final = 0.1
"""Of the time in which its threads could run: a server that waits for a tenth of it has lost as much of its speed."""
MUCH: Final = 0.25
"""Of that time, from which it is wrong: on a machine of two cores a client that sends it work makes it wait a tenth."""
LONG_S: Final = 2.0
"""Seconds between looks from which other programs are no chance of one moment."""
HELD_BACK: Final = 0.05
"""Seconds a second that a limit of its own holds it back, which the kernel counts as waiting too."""


def cpu_taken(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether its threads wait for cores while others have them."""
    use = processor_use(symptoms.host)
    if use is None:
        return Undecided(needs_look(symptoms))
    seen = looks(use)
    taken = use.other_cores + use.stolen_cores
    if taken < FEW * use.cpus:
        return Clear(f"other programs had {taken:.2g} of {_cores(use.cpus)}", seen)
    if not use.was_at_work:
        is_asked = symptoms.server is not None
        return Undecided("--watch 60 while requests come in" if is_asked else needs_look(symptoms))
    if (use.throttled_s or 0.0) >= HELD_BACK:
        return Clear("it is its own CPU limit that holds it back", seen)
    return _by_waiting(use, seen) or _by_idle_cores(use, taken, seen)


def _by_waiting(use: ProcessorUse, seen: tuple[Evidence, ...]) -> Finding | Clear | None:
    """What its threads waited beyond what they make each other wait; None: nobody showed it."""
    if use.waited_share is None:
        return None
    waited = use.waited_share - use.own_waiting
    if waited < WAITS:
        return Clear(f"its threads waited for a core in {100 * max(0.0, waited):.0f} % of their time", seen)
    is_long = use.between_s >= LONG_S
    return Finding(
        CPU_TAKEN,
        f"{_takers(use)} of {_cores(use.cpus)}, and its threads waited for one in {100 * use.waited_share:.0f} % of "
        "the time in which they could run",
        seen,
        Severity.WARNING if is_long and waited >= MUCH else Severity.INFO,
        Confidence.LIKELY if is_long else Confidence.POSSIBLE,
        Cost(speed_share=waited),
    )


def _by_idle_cores(use: ProcessorUse, taken: float, seen: tuple[Evidence, ...]) -> Finding | Clear | Undecided:
    """Nobody showed how long its threads waited; where a core is idle none has to."""
    if use.idle_cores >= 1:
        return Clear(f"{use.idle_cores:.1f} of {_cores(use.cpus)} were idle beside it", seen)
    if taken < use.cpus / 4:
        return Undecided("how long its threads wait: --proc FILE with /proc/PID/task/*/schedstat")
    words = f"{_takers(use)} of {_cores(use.cpus)}, none was idle, and the server had {use.own_cores:.1f}"
    return Finding(CPU_TAKEN, words, seen, Severity.INFO, Confidence.POSSIBLE)


def looks(use: ProcessorUse) -> tuple[Evidence, ...]:
    """What was seen between the two."""
    words = f"{use.between_s:.1f} s: the server {use.own_cores:.2f} cores, others {use.other_cores:.2f} of {use.cpus}"
    if use.stolen_cores >= FEW:
        words += f", stolen {use.stolen_cores:.2f}"
    found = [Evidence(Source.PROC, f"stat over {words}")]
    if use.waited_share is not None:
        threads = "1 thread" if use.working_threads == 1 else f"{use.working_threads} threads"
        words = f"schedstat: {threads} at work, {100 * use.waited_share:.0f} % of their time waiting"
        found.append(Evidence(Source.PROC, words))
    return tuple(found)


def _takers(use: ProcessorUse) -> str:
    """``other programs took 3.1`` and, of a virtual machine, what its host kept."""
    own = f"other programs took {use.other_cores:.1f}"
    if use.stolen_cores < FEW * use.cpus:
        return own
    other_machines = f"other virtual machines took {use.stolen_cores:.1f}"
    return other_machines if use.other_cores < FEW * use.cpus else f"{own} and {other_machines}"


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"
