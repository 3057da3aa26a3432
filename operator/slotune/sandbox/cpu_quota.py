"""How often a CPU quota held a process back: the kernel counts it per control group.

A server that stands still for the rest of each 100 ms is slower than its cores: that is no fault of the measurement,
production may have the same limit, so it is said and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["QuotaCounts", "quota_counts", "quota_warning"]

WORTH_SAYING = 0.01
"""Share of the quota's periods with a stop below which nobody needs to know."""


@dataclass(frozen=True, slots=True)
class QuotaCounts:
    """Counters of a group since it was made."""

    periods: int
    """Periods in which it had work to do."""
    throttled: int
    """Of these, periods that it sat out the end of."""


def quota_counts(pid: int, root: Path = Path("/")) -> QuotaCounts | None:
    """The counters of the control group that holds ``pid``; None where it has no quota, or they can't be read.

    ``root`` is where proc and sys lie. Both versions of control groups are understood (cgroups(7)); in a container the
    path may be the host's, and then the group lies at the mount itself.
    """
    for line in _read(root / "proc" / str(pid) / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys" / "fs" / "cgroup" / controllers
        for group in (mount / path.lstrip("/"), mount):
            counters = dict(pair for line in _read(group / "cpu.stat").splitlines() if len(pair := line.split()) == 2)
            periods, throttled = counters.get("nr_periods", ""), counters.get("nr_throttled", "")
            if periods.isdigit() and throttled.isdigit():
                return QuotaCounts(int(periods), int(throttled))
    return None


def quota_warning(before: QuotaCounts | None, after: QuotaCounts | None) -> str | None:
    """One sentence when the quota stopped the group noticeably often in between."""
    if before is None or after is None:
        return None
    periods, throttled = after.periods - before.periods, after.throttled - before.throttled
    if periods <= 0 or throttled < WORTH_SAYING * periods:
        return None
    return (
        f"a CPU limit held the server back in {throttled} of {periods} periods: raise resources.limits.cpu, or give it "
        "fewer threads, unless production has the same limit"
    )


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
