"""The one way in which a search reaches a server. A process and a Kubernetes Job are two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from slotune.load.records import RunResult
from slotune.quality.reference import Reference
from slotune.search.trial import Trial, TrialResult

__all__ = ["Measured", "Progress", "ProgressListener", "Sandbox"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a running trial stands; enough for a status line and for a trial's status."""

    stage: str
    """``starting``, ``probing``, ``warming up``, ``measuring``, ``extending``, ``comparing`` or ``stopping``."""
    run: int = 0
    """Run number from 1, 0 before the first."""
    runs: int = 0
    requests_done: int = 0
    """Requests decided so far, over all runs; while comparing, steps of the reference's answers."""
    requests_planned: int = 0
    violations: int = 0
    violation_limit: int = 0
    """Most violations with which the trial can still pass."""
    elapsed_s: float = 0.0
    remaining_worst_s: float | None = None


class ProgressListener(Protocol):
    """Hears about progress a few times a second. Must not block."""

    def __call__(self, progress: Progress, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Measured:
    """What a trial found, and the record of each request behind it."""

    result: TrialResult
    runs: tuple[RunResult, ...] = ()
    reference: Reference | None = None
    """The reference's answers, of a trial that recorded them. Whoever called keeps them (``to_bytes``) for all
    comparisons to come, under the digest that stands in ``result.reference``."""


class Sandbox(Protocol):
    """Runs trials, one at a time, each on a fresh server."""

    async def measure(self, trial: Trial, listener: ProgressListener) -> Measured:
        """Start a server for ``trial.candidate``, measure it at ``trial.rate``, stop it.

        A trial of answers needs no rate: one that records gives the reference back, and one that compares must find it
        again, whichever way this sandbox keeps it.

        Cancelling stops the server before the cancellation goes on. A server that cannot run is a
        Fail with a failure class, a faulty measurement is Invalid: neither raises.
        """
        ...
