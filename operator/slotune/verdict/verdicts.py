"""The four ends of a trial and the numbers behind them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["Outcome", "Verdict"]


class Outcome(enum.StrEnum):
    """How a trial ended. Only a Pass ever moves a configuration towards production."""

    PASS = "Pass"  # the promise was shown to hold at the wanted confidence
    FAIL = "Fail"  # the promise was shown to be broken, or the server could not run
    INCONCLUSIVE = "Inconclusive"  # neither could be shown with the requests that were allowed
    INVALID = "Invalid"  # the measurement was at fault, not the candidate


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with its evidence. Shares lie in 0..1, times are seconds; None means "not measured"."""

    outcome: Outcome
    reason: str
    """One plain sentence for people."""
    code: str
    """The reason for machines, CamelCase: e.g. ``PromiseKept``, ``TooManyViolations``, ``ClientLate``."""
    confidence: float
    requests: int = 0
    violations: int = 0
    effective_requests: float | None = None
    """Requests left after clustering of violations is discounted."""
    share_upper: float | None = None
    """Upper confidence bound of the violation share from the binomial on effective requests."""
    run_share_upper: float | None = None
    """Upper confidence bound of the violation share from the t-test over runs."""
    ttft_p95_s: float | None = None
    ttft_p95_upper_s: float | None = None
    """Upper confidence bound of p95 TTFT (an order statistic); None when the sample is too small for one."""
    tokens_per_second_p5: float | None = None
