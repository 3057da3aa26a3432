"""Watches the GPU beside a measurement, a look a second.

The looks are taken in a thread of their own, never on the event loop that stamps tokens: NVML's calls take up to some
milliseconds and give the interpreter's lock away meanwhile. Who measures asks afterwards for the looks since a moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Protocol, Self

from slotune.load.device_facts import DeviceFacts, Reading, device_fault, device_warning, facts_of
from slotune.load.records import RunResult
from slotune.sandbox.nvml import Nvml, import_pynvml
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["DeviceLook", "DeviceWatch", "Looks", "watch_gpu"]

EVERY_S = 1.0
"""Between two looks: a slowdown by heat lasts for seconds at least, and a look costs next to nothing."""
STOP_LIMIT_S = 10.0
"""Longest wait for a look that hangs in the driver."""


class Looks(Protocol):
    """What a measurement asks of a watch."""

    def since(self, moment_s: float) -> tuple[tuple[Reading, ...], ...]:
        """Every look since ``moment_s`` (``time.monotonic``), oldest first; each has a reading per device."""
        ...


class DeviceWatch:
    """Looks again and again while inside ``with``.

    Args:
        find: what to look at, or None where there is nothing. It is called, read and closed in the watch's own thread:
            to wake a driver that nobody uses takes seconds.
        every_s: seconds between two looks.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        find: Callable[[], Nvml | None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._every_s, self._clock = find, every_s, clock
        self._taken: list[tuple[float, tuple[Reading, ...]]] = []
        self._over = threading.Event()
        # A daemon: a call that hangs in a broken driver must not keep slotune from ending.
        self._thread = threading.Thread(target=self._look_on, name="slotune-device", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(STOP_LIMIT_S)

    def since(self, moment_s: float) -> tuple[tuple[Reading, ...], ...]:
        """See :class:`Looks`."""
        return tuple(readings for at, readings in self._taken.copy() if at >= moment_s)

    def _look_on(self) -> None:
        devices = self._find()
        if devices is None:
            return
        with closing(devices):
            while not self._over.is_set():
                at = self._clock()  # before the look: what a slow one says is true of the time when it began
                self._taken.append((at, devices.read()))
                self._over.wait(self._every_s)


def watch_gpu(
    own: Iterable[int] = (), *, environ: Mapping[str, str] | None = None, library: Any = None
) -> AbstractContextManager[DeviceWatch | None]:
    """Watch the NVIDIA devices of a server inside ``with``; without a driver the watch sees nothing.

    Args:
        own: processes of the server, as far as they are known.
        environ: the server's environment; None where nobody knows it. With neither processes nor an environment, what
            is seen may be a neighbour's: it is on record, and faults nobody.
        library: stands for the module ``pynvml``; None imports it, and gives None where it is not installed.
    """
    library = import_pynvml() if library is None else library
    if library is None:
        return nullcontext()
    processes = frozenset(own)
    return DeviceWatch(lambda: Nvml.open(library, own=processes, environ=environ))


class DeviceLook:
    """What the devices did in each run of one measurement, and over all of them.

    Args:
        looks: who watches them; None where nobody can.
    """

    def __init__(self, looks: Looks | None) -> None:
        self._looks = looks
        self._of_runs: list[tuple[Reading, ...]] = []

    @property
    def facts(self) -> DeviceFacts | None:
        """Over the measured windows of all runs so far."""
        return facts_of(self._of_runs)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know that faults nobody."""
        warning = device_warning(self.facts)
        return () if warning is None else (warning,)

    def after(self, run: RunResult, since_s: float) -> None:
        """Note on ``run``, whose window opened at ``since_s``, what the devices did in it. A slowed one spoils it."""
        taken = () if self._looks is None else self._looks.since(since_s)
        self._of_runs.extend(taken)
        run.device = facts_of(taken)
        if (fault := device_fault(run.device)) is not None:
            run.invalid_reasons.append(fault)

    def after_probe(self, verdict: Verdict, since_s: float) -> Verdict:
        """``verdict`` on an idle server that was looked at since ``since_s``: Invalid where the device was slowed."""
        taken = () if self._looks is None else self._looks.since(since_s)
        self._of_runs.extend(taken)
        fault = device_fault(facts_of(taken))
        return verdict if fault is None else Verdict(Outcome.INVALID, fault[1], fault[0], verdict.confidence)
