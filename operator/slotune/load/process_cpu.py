"""What Linux says of a process's share of the processors: what it got, what others took, what it waited for.

Read from the text of files below /proc and /sys/fs/cgroup, given by path, whoever brought them. A field that nobody
showed, or that makes no sense, is None. Formats: proc(5), and the kernel's sched-stats.rst, cgroup-v2.rst and
cgroup-v1/cpuacct.rst.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

__all__ = ["TICKS_PER_S", "CPULook", "cpu_look"]

TICKS_PER_S: Final = 100
"""USER_HZ, which the kernel keeps at this for programs."""
_MOST_CPUS: Final = 8192
_FEWEST_WORDS: Final = 3
"""Of a server: its name, a flag, the model."""
_THREADS: Final = ("-t", "--threads", "LLAMA_ARG_THREADS")
_THREADS_BATCH: Final = ("-tb", "--threads-batch", "LLAMA_ARG_THREADS_BATCH")
_BUSY: Final = (0, 1, 2, 5, 6)
"""Fields of a processor's line: user, nice, system, irq, softirq. Idle and iowait are left; guests are in user."""
_STOLEN: Final = 7
_PROCESSOR: Final = re.compile(r"^cpu(\d{1,5}) +([\d ]+)$", re.MULTILINE)
_THREAD: Final = re.compile(r"/proc/\d+/task/(\d+)/schedstat$")
_PROCESS: Final = re.compile(r"/proc/\d+/stat$")


@dataclass(frozen=True, slots=True)
class CPULook:
    """One process at one moment. Counters count from the start of the machine, the thread or the container."""

    cpus: int | None = None
    """Processors that it may run on."""
    machine_cpus: int | None = None
    busy_s: float | None = None
    """That these worked, for whomever."""
    stolen_s: float | None = None
    """That they stood still for another virtual machine."""
    own_s: float | None = None
    """That they worked for the process."""
    looking_s: float = 0.0
    """That they worked for the program that looks."""
    threads: Mapping[int, tuple[float, float]] = field(default_factory=lambda: MappingProxyType({}))
    """Thread to the seconds that it ran, and those that it was ready to and waited for a processor."""
    limit_cores: float | None = None
    """Of its container, or of the group that it is in; None where there is none, or nobody says."""
    knows_limit: bool = False
    """Whether somebody said that there is one, or none."""
    stated_threads: int | None = None
    """Of its arguments, the larger of both pools; 0 where they state none, None where nobody showed them."""
    throttled_s: float | None = None
    """That the limit held it back, as the kernel counts: of version 2 the sum over processors."""


def cpu_look(files: Mapping[str, str]) -> CPULook:
    """The look that the text of some files, by path, comes to."""
    by_name = {path.rstrip("/").rpartition("/")[2]: text for path, text in files.items()}
    cpus, busy_s, stolen_s = _processors(files.get("/proc/stat", ""), _allowed(by_name.get("status", "")))
    limit, knows = _limit(by_name)
    own = next((text for path, text in files.items() if _PROCESS.search(path)), "")
    return CPULook(
        cpus=cpus,
        machine_cpus=len(_PROCESSOR.findall(files.get("/proc/stat", ""))) or None,
        busy_s=busy_s,
        stolen_s=stolen_s,
        own_s=_own(own),
        looking_s=_own(files.get("/proc/self/stat", "")) or 0.0,
        threads=MappingProxyType(_threads(files)),
        limit_cores=limit,
        knows_limit=knows,
        stated_threads=_stated(by_name.get("cmdline", ""), by_name.get("environ", "")),
        throttled_s=_throttled(by_name.get("cpu.stat", "")),
    )


def _allowed(status: str) -> frozenset[int] | None:
    """Numbers of the processors that it may run on: ``0-3,8``."""
    found = re.search(r"^Cpus_allowed_list:\s*([\d,-]+)\s*$", status, re.MULTILINE)
    if found is None:
        return None
    numbers: set[int] = set()
    for part in found[1].split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            return None
        numbers.update(range(int(first), min(int(last or first), _MOST_CPUS) + 1))
    return frozenset(numbers)


def _processors(text: str, allowed: frozenset[int] | None) -> tuple[int | None, float | None, float | None]:
    """(How many of them, seconds at work, seconds stolen), of those that are allowed; None: of all."""
    lines = [
        [int(word) for word in counters.split()]
        for number, counters in _PROCESSOR.findall(text)
        if allowed is None or int(number) in allowed
    ]
    if not lines or any(len(line) <= max(_BUSY) for line in lines):
        return None, None, None
    busy = sum(line[index] for line in lines for index in _BUSY)
    stolen = sum(line[_STOLEN] for line in lines if len(line) > _STOLEN)
    return len(lines), busy / TICKS_PER_S, stolen / TICKS_PER_S


def _own(stat: str) -> float | None:
    """Seconds of all threads of a process; its name may hold blanks and brackets."""
    words = stat.rpartition(") ")[2].split()
    if len(words) < 13 or not (words[11].isdecimal() and words[12].isdecimal()):
        return None
    return (int(words[11]) + int(words[12])) / TICKS_PER_S


def _threads(files: Mapping[str, str]) -> dict[int, tuple[float, float]]:
    found = {}
    for path, text in files.items():
        thread, words = _THREAD.search(path), text.split()
        if thread is not None and len(words) >= 2 and words[0].isdecimal() and words[1].isdecimal():
            found[int(thread[1])] = int(words[0]) / 1e9, int(words[1]) / 1e9
    return found


def _stated(arguments: str, variables: str) -> int | None:
    """Threads by flag, else by variable; everything else in either is passed over, secrets too."""
    words = arguments.split("\0")
    if len(words) < _FEWEST_WORDS:
        return None
    pairs = [word.partition("=")[::2] for word in variables.split("\0") if word.startswith("LLAMA_ARG_THREADS")]
    named = dict([*pairs, *itertools.pairwise(words)])
    pools = [
        next((value for name in names if (value := named.get(name, "")).isdecimal() and int(value)), "0")
        for names in (_THREADS, _THREADS_BATCH)
    ]
    return max(map(int, pools))


def _limit(by_name: Mapping[str, str]) -> tuple[float | None, bool]:
    """(Cores, whether somebody said): ``cpu.max`` of version 2, else the quota and period of version 1."""
    words = by_name.get("cpu.max", "").split()
    if not words:
        words = [by_name.get(f"cpu.cfs_{name}_us", "").strip() for name in ("quota", "period")]
    if words[0] in ("max", "-1"):
        return None, True
    if len(words) == 2 and all(word.isdecimal() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1]), True
    return None, False


def _throttled(stat: str) -> float | None:
    found = re.search(r"^throttled_(usec|time) (\d{1,20})$", stat, re.MULTILINE)
    return None if found is None else int(found[2]) / (1e6 if found[1] == "usec" else 1e9)
