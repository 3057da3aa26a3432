"""When to try again what failed: it follows from the status alone, so that a restart neither forgets a failure nor
starts a storm."""

from __future__ import annotations

from datetime import datetime

from slotune.api.v1alpha1.deployment_status import Failures
from slotune.controller.conditions import timestamp
from slotune.tuning.status_values import word

__all__ = ["FIRST_S", "LONGEST_S", "failed_again", "seconds_left", "wait_s"]

FIRST_S = 5.0
LONGEST_S = 600.0


def wait_s(failures: int) -> float:
    """Seconds between the last of so many failures in a row and the next try: it doubles, up to a bound."""
    return min(LONGEST_S, FIRST_S * 2.0 ** min(30, max(0, failures - 1)))


def seconds_left(failures: Failures | None, now: datetime) -> float:
    """Seconds until the next try is due; 0 when it is, or nothing failed, or only in a future of another clock."""
    if failures is None or not failures.count or failures.last_time is None:
        return 0.0
    since = (now - datetime.fromisoformat(failures.last_time)).total_seconds()
    return 0.0 if since < 0 else max(0.0, wait_s(failures.count) - since)


def failed_again(failures: Failures | None, reason: str, now: datetime) -> Failures:
    """One more failure in a row. Within the wait for the last one nothing was tried, so it is still that one."""
    if failures is not None and failures.reason == reason and seconds_left(failures, now) > 0:
        return failures
    count = 0 if failures is None else failures.count
    return Failures(count=count + 1, last_time=timestamp(now), reason=word(reason))
