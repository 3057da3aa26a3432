"""Numbers about the operator itself, for Prometheus. Labels come from short fixed lists: a fleet adds no series.

A registry of its own: the library's global one is shared by all of a process, and refuses a second operator in it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

__all__ = ["CONTENT_TYPE", "OUTCOMES", "RESULTS", "OperatorMetrics", "Run"]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

RESULTS: Final = ("ok", "unavailable", "error", "cancelled")
"""How a look ends: done; the API server could not be reached; anything else went wrong; the operator stops."""
OUTCOMES: Final = ("Pass", "Fail", "Inconclusive", "Invalid")
"""How a trial ends, as in the status of a LlamaTrial."""
OTHER: Final = "other"
"""Label of whatever is not in those lists."""

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Most looks write nothing and take milliseconds; one with a search takes seconds."""


@dataclass(slots=True)
class Run:
    """One reconcile that is under way. Whoever runs it says how it went, if not well."""

    result: str = "ok"


class OperatorMetrics:
    """Counts what one operator does.

    Args:
        clock: seconds since 1970, for timestamps.
        timer: seconds, monotonic, for durations.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock, self._timer = clock, timer
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._reconciles = Counter(
            "slotune_reconcile", "Looks at a LlamaDeployment that ended.", ["result"], registry=self.registry
        )
        self._durations = Histogram(
            "slotune_reconcile_duration_seconds", "Time of one look.", buckets=_SECONDS, registry=self.registry
        )
        self._last = Gauge(
            "slotune_last_reconcile_timestamp_seconds", "When a look last ended.", registry=self.registry
        )
        self._wakeups = Counter(
            "slotune_queue_wakeups", "Looks that an event asked for before their time.", registry=self.registry
        )
        self._trials = Counter("slotune_trials", "Trials that ended.", ["outcome"], registry=self.registry)
        self._running = Gauge("slotune_running_trials", "Trials that run now.", registry=self.registry)
        # A series that begins at its first event hides that event from rate().
        for result in RESULTS:
            self._reconciles.labels(result)
        for outcome in OUTCOMES:
            self._trials.labels(outcome)

    @contextmanager
    def reconciling(self) -> Iterator[Run]:
        """Count and time one look. An exception counts as an error, unless the run says otherwise, and goes on."""
        run, began = Run(), self._timer()
        try:
            yield run
        except asyncio.CancelledError:
            run.result = "cancelled"
            raise
        except BaseException:
            run.result = "error" if run.result == "ok" else run.result
            raise
        finally:
            self._durations.observe(self._timer() - began)
            self._reconciles.labels(run.result if run.result in RESULTS else OTHER).inc()
            self._last.set(self._clock())

    def woken(self) -> None:
        """An event asked for a look before its time."""
        self._wakeups.inc()

    def trial_ended(self, outcome: str) -> None:
        """A trial was seen to end."""
        self._trials.labels(outcome if outcome in OUTCOMES else OTHER).inc()

    def trials_running(self, count: int) -> None:
        """How many trials run now."""
        self._running.set(count)

    def render(self) -> bytes:
        """All of it, as :data:`CONTENT_TYPE`."""
        return generate_latest(self.registry)
