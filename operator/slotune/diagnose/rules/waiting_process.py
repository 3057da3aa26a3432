"""What a process waits for, by two looks at what the kernel counts of it, and how to bring them."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.host import HostFacts
from slotune.diagnose.symptoms import Symptoms

__all__ = ["fetched", "needs_look", "waits_for"]

MIB: Final = 2**20
FEW_FAULTS: Final = 20.0
"""Pages a second that a server may wait for: at 0.1 ms each, a disk's, they cost 0.2 % of its time."""
FEW_BYTES: Final = 4 * MIB
"""Bytes a second that may be fetched for a server that has all it needs: it has nothing to read but small files. One
fault reads megabytes ahead, so faults alone say little."""
_LOOK: Final = (
    'for n in 1 2; do grep -s "" /proc/uptime /proc/meminfo /proc/stat /proc/{pid}/stat /proc/{pid}/status '
    "/proc/{pid}/io /proc/{pid}/smaps /proc/{pid}/task/*/schedstat /sys/fs/cgroup/memory.* /sys/fs/cgroup/cpu.* "
    "/sys/fs/cgroup/memory/memory.* /sys/fs/cgroup/cpu/cpu.*; sleep 5; done"
)


def needs_look(symptoms: Symptoms) -> str:
    """How to bring what decides."""
    if symptoms.pod is None:
        look = _LOOK.format(pid="PID")
        here = "" if symptoms.server is not None else " (or --url by 127.0.0.1 on its machine)"
        return f"--proc FILE{here}, with what this prints where the server (PID) runs, while it works: {look}"
    look = _LOOK.format(pid=1)
    return (
        f"--proc FILE, with what this prints while it works: kubectl exec {symptoms.pod.name} -- sh -c '{look}' "
        "(in the server's container, of which 1 is the process)"
    )


def waits_for(host: HostFacts) -> str | None:
    """What the process waited for between the looks, in words; empty: nothing to speak of; None: not known."""
    faults, read = host.faults_per_s, host.reads_per_s
    if read is not None and read >= FEW_BYTES:
        return f"it waited for {read / MIB:,.0f} MiB a second"
    if faults is not None and faults >= FEW_FAULTS:
        return f"it waited for {faults:,.0f} pages a second"
    return None if faults is None and read is None else ""


def fetched(host: HostFacts) -> Evidence:
    """The counters that say so."""
    first, last = host.first, host.last
    of_disks = "" if last.read_bytes is None else f", read_bytes {first.read_bytes} → {last.read_bytes}"
    return Evidence(
        Source.PROC, f"major faults {first.major_faults} → {last.major_faults}{of_disks} in {host.between_s or 0:.1f} s"
    )
