"""Was memory locked that was to be locked? A server that may not lock it says so once, and serves on without."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.entry import Entry, Item
from slotune.diagnose.evidence import Evidence
from slotune.diagnose.finding import Clear, Finding, Severity, Undecided
from slotune.diagnose.rules.placement import NEEDS_START, heard, said, shown, stated
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Topic

__all__ = ["MEMORY_NOT_LOCKED", "memory_not_locked"]

MEMORY_NOT_LOCKED: Final = Entry(
    id="SLT039",
    code="MemoryNotLocked",
    item=Item.MEMORY,
    title="Memory could not be locked as asked",
    cause="Locking keeps pages from being put out to swap or dropped, and needs a right that a container mostly does "
    "not have (IPC_LOCK, or a memlock limit above the weights). Where it is refused, llama-server warns once and "
    "serves without it, so its pages may go when memory is short.",
    first="Raise the memlock limit (ulimit -l unlimited), or give the container IPC_LOCK; or leave mlock out where "
    "memory is not short.",
    avoid="Do not lock more than the memory limit holds: the server is then killed.",
    verify="The log has no line about mlock, and VmLck in /proc/PID/status is as large as the weights.",
    knobs=("extraArgs",),
)
_MODES: Final = ("mlock", "mmap+mlock")


def memory_not_locked(symptoms: Symptoms) -> Finding | Clear | Undecided:
    """Whether locking was asked for and refused; that alone costs nothing: what it is to prevent has its own rules."""
    log, asked = symptoms.log, _asked(symptoms)
    lines = () if log is None else heard(log, Topic.MEMORY_NOT_LOCKED)
    if lines:
        return Finding(MEMORY_NOT_LOCKED, "memory was to be locked, and is not", lines[:1], Severity.INFO)
    if said(log):
        return Clear("nothing says that memory could not be locked", () if asked is None else (asked,))
    if asked is None and _knows(symptoms):
        return Clear("nobody asked for memory to be locked")
    return Undecided(NEEDS_START)


def _asked(symptoms: Symptoms) -> Evidence | None:
    settings = stated(symptoms)
    mode = settings.get("-lm")
    if mode is not None:
        return shown(mode) if mode.values[:1] and mode.values[0] in _MODES else None
    return shown(settings["--mlock"]) if "--mlock" in settings else None


def _knows(symptoms: Symptoms) -> bool:
    """Whether its arguments are known."""
    return bool(stated(symptoms))
