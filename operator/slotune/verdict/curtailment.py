"""Stop as soon as a pass has become impossible.

A pass needs all planned requests and at most t violations among them, so violation t + 1 decides that there will be no
pass, whatever comes after. Stopping there costs no confidence: nothing that could have passed is ever stopped
(curtailed sampling, e.g. Wetherill and Glazebrook, *Sequential Methods in Statistics*, 3rd ed. (1986), ch. 1).
There is no early pass: a short run at an unsustainable rate looks good until its queue has grown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from slotune.load.records import RequestRecord
from slotune.verdict.binomial import excess_p_value, pass_limit
from slotune.verdict.promise import Promise
from slotune.verdict.violations import Violation, violation_of

__all__ = ["StopRule", "Tally", "look_confidence"]


def look_confidence(confidence: float, looks: int) -> float:
    """Confidence that each of several looks at growing data needs, so that all together hold ``confidence``.

    1 - (1 - c) / looks (Bonferroni): an extension after an Inconclusive is a second look, and without this price
    two chances to pass at 95 % would be a pass at about 92 %.
    """
    if looks < 1:
        raise ValueError(f"looks is {looks}: it must be 1 or more (1 plus the extensions)")
    return 1 - (1 - confidence) / looks


@dataclass(frozen=True, slots=True)
class StopRule:
    """When a trial is decided before its end."""

    planned_requests: int
    """Measured requests of the whole trial, all runs and all extensions included."""
    promise: Promise
    confidence: float
    """Of the trial; the looks share it."""
    looks: int = 1
    """1 plus the extensions."""
    stops: bool = True
    """False for what is compared with another trial and must be measured to its end."""

    @property
    def limit(self) -> int:
        """Most violations with which the trial can still pass; -1 when so few requests can never pass."""
        return pass_limit(
            self.planned_requests, self.promise.violation_share, look_confidence(self.confidence, self.looks)
        )

    def is_lost(self, violations: int, requests_seen: int) -> bool:
        """Whether to stop. A trial too short to ever pass ends when the promise is shown to be broken."""
        if not self.stops:
            return False
        if self.limit >= 0:
            return violations > self.limit
        alpha = 1 - look_confidence(self.confidence, self.looks)
        return excess_p_value(violations, requests_seen, self.promise.violation_share) <= alpha


class Tally:
    """Counts live and says when to stop; one per trial, over all of its runs.

    A request that still waits past the promised time is a violation at once (:meth:`overdue`): its first token need
    not be awaited, and it isn't counted again when it ends.
    """

    def __init__(self, rule: StopRule) -> None:
        self.rule = rule
        self.limit = rule.limit
        self.requests = 0
        """Requests decided so far, over all runs."""
        self.kinds: Counter[Violation] = Counter()
        self._overdue: set[int] = set()

    @property
    def violations(self) -> int:
        """Violations so far, over all runs."""
        return self.kinds.total()

    @property
    def must_stop(self) -> bool:
        """Whether the trial is decided."""
        return self.rule.is_lost(self.violations, self.requests)

    def overdue(self, index: int) -> bool:
        """Count request ``index`` of the current run, which has no first token in time; answers :attr:`must_stop`."""
        if index not in self._overdue:
            self._overdue.add(index)
            self._count(Violation.LATE)
        return self.must_stop

    def ended(self, record: RequestRecord) -> bool:
        """Count a request of the current run that has ended; answers :attr:`must_stop`."""
        if record.index not in self._overdue:
            self._count(violation_of(record, self.rule.promise))
        return self.must_stop

    def next_run(self) -> None:
        """Forget which requests were overdue: indices start again with each run."""
        self._overdue.clear()

    def _count(self, violation: Violation | None) -> None:
        self.requests += 1
        if violation is not None:
            self.kinds[violation] += 1
