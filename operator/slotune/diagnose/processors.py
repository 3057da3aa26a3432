"""Who had the processors between two looks at a server's process: itself, others, nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.host import AT_WORK, HostFacts
from slotune.load.process_cpu import CPULook

__all__ = ["ProcessorUse", "processor_use"]

AS_BUSY: Final = 0.5
"""Of the busiest thread's time on or before a processor, from which another one is one of those that compute: these
wait for each other at each step, while one that reads requests or writes answers has little to do."""
SHORTEST_S: Final = 0.2
"""Processors' time is counted in hundredths of a second."""
MOST: Final = 1.25
"""Of the processors that there are, beyond which the two looks are not of one machine, or not of one process."""


@dataclass(frozen=True, slots=True)
class ProcessorUse:
    """Differences of two looks. Cores are processors' seconds a second."""

    between_s: float
    cpus: int
    """That the process may run on."""
    own_cores: float
    other_cores: float
    """Of these processors, for other programs."""
    stolen_cores: float
    """Not given to this machine, which is a virtual one."""
    working_threads: int
    """Of the process, that ran or waited for a processor about as long as the busiest; 0 when nobody showed them."""
    waited_share: float | None
    """Of the time in which these were ready to run, that they waited; None when nobody showed them."""
    ready_cores: float
    """Processors that it had or waited for: what it would have used; what it had where nobody showed its threads."""
    throttled_s: float | None
    """Seconds a second that its limit held it back, over its processors."""

    @property
    def was_at_work(self) -> bool:
        """Whether it computed, or would have: one that others starve uses little."""
        return self.ready_cores >= AT_WORK

    @property
    def idle_cores(self) -> float:
        """That nobody used."""
        return max(0.0, self.cpus - self.own_cores - self.other_cores - self.stolen_cores)

    @property
    def own_waiting(self) -> float:
        """Share of their time that its working threads must wait for each other, with all processors for themselves."""
        return max(0.0, 1 - self.cpus / self.working_threads) if self.working_threads else 0.0


def processor_use(host: HostFacts | None) -> ProcessorUse | None:
    """Who had the processors; None: one look alone, nothing was shown of them, or more than there is."""
    if host is None or host.later is None or host.between_s is None or host.between_s < SHORTEST_S:
        return None
    before, after, between_s = host.first.cpu, host.later.cpu, host.between_s
    busy, own = _grown(before.busy_s, after.busy_s), _grown(before.own_s, after.own_s)
    if busy is None or own is None or not after.cpus:
        return None
    looking_s = max(0.0, after.looking_s - before.looking_s)
    stolen = _grown(before.stolen_s, after.stolen_s) or 0.0
    there_s = between_s * after.cpus
    if max(busy, own) + stolen > MOST * there_s:
        return None
    threads, ready_s, waited_share = _threads(before, after)
    throttled_s = _grown(before.throttled_s, after.throttled_s)
    return ProcessorUse(
        between_s=between_s,
        cpus=after.cpus,
        own_cores=own / between_s,
        other_cores=min(max(0.0, busy - own - looking_s), there_s) / between_s,
        stolen_cores=min(stolen, there_s) / between_s,
        working_threads=threads,
        waited_share=waited_share,
        ready_cores=max(own, ready_s) / between_s,
        throttled_s=None if throttled_s is None else throttled_s / between_s,
    )


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _threads(before: CPULook, after: CPULook) -> tuple[int, float, float | None]:
    """(Threads at work, seconds that they could run, share of those that they waited)."""
    grown = [
        (ran - before.threads[thread][0], waited - before.threads[thread][1])
        for thread, (ran, waited) in after.threads.items()
        if thread in before.threads
    ]
    grown = [(ran, waited) for ran, waited in grown if ran >= 0 and waited >= 0]  # else another one of that number
    most = max((ran + waited for ran, waited in grown), default=0.0)
    if most <= 0:
        return 0, 0.0, None
    working = [(ran, waited) for ran, waited in grown if ran + waited >= AS_BUSY * most]
    ready_s = sum(ran + waited for ran, waited in working)
    return len(working), ready_s, sum(waited for _, waited in working) / ready_s
