"""What one look at Prometheus can say: a number, or why there is none. Only a number can keep or break a promise.

Three ways of having no number are easily taken for a good one: an empty answer (nothing is scraped), NaN (nothing was
served, 0/0) and several series (whoever takes the first one watches one pod of many). Each is a fact of its own here,
so that no code path can compare it with a target. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["NoData", "NotANumber", "Reading", "SeveralSeries", "Unreachable", "Value", "describe"]


@dataclass(frozen=True, slots=True)
class Value:
    """Exactly one series with a finite number."""

    value: float
    """In the query's own unit."""
    warnings: tuple[str, ...] = ()
    """What Prometheus said beside it, such as a partial answer; shortened."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"value is {self.value}: a number that is not finite is a NotANumber")


@dataclass(frozen=True, slots=True)
class NoData:
    """No series matches: the pods are not scraped, or the query names something that does not exist."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotANumber:
    """One answer that cannot be compared: NaN when nothing was served, infinity, a range, a histogram, a text."""

    found: str = "NaN"
    """What stands there in place of a number."""


@dataclass(frozen=True, slots=True)
class SeveralSeries:
    """More than one series: which of them would be production?"""

    count: int


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No usable answer: Prometheus is down, slow, refuses, or something else answers at its address."""

    reason: str
    """One clause with the cure. Never a part of the answer's body, nor the token."""


Reading = Value | NoData | NotANumber | SeveralSeries | Unreachable


def describe(reading: Reading) -> str:
    """One clause that says why there is no value; for a :class:`Value`, what Prometheus warned of, or nothing."""
    match reading:
        case Value():
            return f"Prometheus warns: {'; '.join(reading.warnings)}" if reading.warnings else ""
        case NoData():
            return "no series matches: are the pods scraped, and do its labels exist?"
        case NotANumber(found="NaN"):
            return "NaN: nothing was served while it looked"
        case NotANumber():
            return f"{reading.found} is no number that can be compared"
        case SeveralSeries():
            return f"{reading.count} series: exactly one is needed, so aggregate them, with sum() or max() for example"
        case Unreachable():
            return reading.reason
