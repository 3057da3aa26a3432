"""One candidate's record: at which rates it passed, was refused, failed, or could not be judged.

Capacity is monotone: a pass at a rate is a pass below it, a fail at a rate is a fail above it. So of
passes and fails only the extreme ones must be remembered. A measurement that was at fault twice says
nothing about other rates, so it sets aside exactly its own.

Not quite monotone is what pays off under full load only (guessed tokens, one KV pool for all slots): such a candidate
is also measured at half the rate at which it was confirmed. A pass there is no confirmation of its own; without one
the confirmed rate does not count. A fail there, below a pass, says that less load is worse: the candidate is out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from slotune.search.problem import Pruned
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["Standing", "same_rate"]


def same_rate(left: float, right: float) -> bool:
    """Whether two rates are one question (they may differ by rounding)."""
    return math.isclose(left, right, rel_tol=1e-6)


@dataclass(slots=True)
class Standing:
    """One candidate's record."""

    results: list[TrialResult] = field(default_factory=list)
    """Load trials whose verdict still counts, oldest first."""
    passes_seen: list[TrialResult] = field(default_factory=list)
    """Every pass and confirmation."""
    halves: list[float] = field(default_factory=list)
    """Rates at which it was shown to hold half of its load."""
    passed: TrialResult | None = None
    """The pass at the fastest rate, not overruled by a confirmation."""
    confirmed: TrialResult | None = None
    """The confirmation that passed at the fastest rate."""
    refused_from: float = math.inf
    """Slowest rate that did not pass: nothing at or above it is asked again."""
    refused: TrialResult | None = None
    """The trial behind ``refused_from``."""
    failed_from: float = math.inf
    """Slowest rate that was shown to fail: unlike ``refused_from``, no Inconclusive counts."""
    set_aside: list[TrialResult] = field(default_factory=list)
    """Measurements that were at fault for the last time: their rate, and no other, is given up."""
    out: Pruned | None = None
    """Why the candidate is out at every rate."""

    def passes(self, rate: float) -> bool:
        """Whether a pass at ``rate`` or above is known."""
        return self.passed is not None and _at_least(self.passed.trial.rate, rate)

    def is_confirmed(self, rate: float) -> bool:
        """Whether a confirmation at ``rate`` or above passed."""
        return self.confirmed is not None and _at_least(self.confirmed.trial.rate, rate)

    def holds_half_of(self, rate: float) -> bool:
        """Whether a pass at half of ``rate`` is known from a trial that asked just that."""
        return any(same_rate(half, rate / 2) for half in self.halves)

    def is_refused(self, rate: float) -> bool:
        """Whether ``rate`` or a slower one was tried without a pass."""
        return _at_least(rate, self.refused_from)

    def is_closed(self, rate: float) -> bool:
        """Whether ``rate`` is not asked again: refused, or given up."""
        return self.is_refused(rate) or any(same_rate(rate, _given_up(result.trial)) for result in self.set_aside)

    def is_failed(self, rate: float) -> bool:
        """Whether ``rate`` or a slower one was shown to fail."""
        return _at_least(rate, self.failed_from)

    def accept(self, result: TrialResult) -> None:
        """Remember a pass, or a confirmation."""
        if result.trial.purpose is Purpose.PARTIAL:
            self.halves.append(result.trial.rate)
            return
        self.passes_seen.append(result)
        self._recall()

    def refuse(self, result: TrialResult) -> None:
        """Remember a rate that did not pass; it overrules passes at or above it (fresh seeds did not agree)."""
        rate = result.trial.rate
        if rate < self.refused_from:
            self.refused_from, self.refused = rate, result
        if result.verdict.outcome is Outcome.FAIL:
            self.failed_from = min(self.failed_from, rate)
        self._recall()

    def give_up(self, result: TrialResult) -> None:
        """Remember a rate that could not be measured; an unconfirmed pass at it stays unconfirmed, so it goes too."""
        self.set_aside.append(result)
        self._recall()

    def _recall(self) -> None:
        """The fastest pass and confirmation that still count: slower ones outlive the one that was overruled."""
        sound = [seen for seen in self.passes_seen if not self.is_closed(seen.trial.rate)]
        by_rate = sorted(sound, key=lambda seen: seen.trial.rate)
        self.passed = next((seen for seen in reversed(by_rate) if seen.trial.seed_block == 0), None)
        self.confirmed = next((seen for seen in reversed(by_rate) if seen.trial.seed_block > 0), None)


def _given_up(trial: Trial) -> float:
    """Where half the load could not be measured, it is the whole load that is not answered for."""
    return 2 * trial.rate if trial.purpose is Purpose.PARTIAL else trial.rate


def _at_least(rate: float, other: float) -> bool:
    return rate >= other or same_rate(rate, other)
