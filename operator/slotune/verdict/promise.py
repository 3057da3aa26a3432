"""What is owed to users, in the units of the statistics."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Promise"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A request is a violation when it is late, too slow, failed, truncated or unfinished."""

    ttft_s: float
    """Most seconds from the scheduled time to the first generated token."""
    tokens_per_second_per_user: float | None = None
    """Least 1/TPOT of a request; None when no speed is owed."""
    violation_share: float = 0.05
    """Share of requests that may be violations: 0.05 makes the TTFT target a p95 and the speed a p5."""

    def __post_init__(self) -> None:
        if self.ttft_s <= 0:
            raise ValueError(f"ttft_s is {self.ttft_s}: it must be above 0 seconds")
        if self.tokens_per_second_per_user is not None and self.tokens_per_second_per_user <= 0:
            raise ValueError(
                f"tokens_per_second_per_user is {self.tokens_per_second_per_user}: it must be above 0, or None"
            )
        if not 0 < self.violation_share < 1:
            raise ValueError(f"violation_share is {self.violation_share}: it must lie between 0 and 1")
