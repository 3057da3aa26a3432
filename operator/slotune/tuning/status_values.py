"""Measured values in the forms that a status takes. What does not fit is cut, never refused.

A result that could not be written down would be measured again for ever, so nothing here raises: a number that is none
is left out, and text is shortened, at a place that a reader sees.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from slotune.api.quantities import format_duration

__all__ = [
    "LONGEST_LINE",
    "LONGEST_SENTENCE",
    "count",
    "digest",
    "exact",
    "figure",
    "instant",
    "line",
    "money",
    "name",
    "positional",
    "sentence",
    "wait",
    "word",
]

LONGEST_LINE = 256
LONGEST_SENTENCE = 4096
_LONGEST_WORD = 128
_MOST = 2**63 - 1
"""JSON has no bound for integers, the API server's are 64 bits long."""
_CUT = "…"
_TEN_YEARS_S = 3.1e8
"""About the longest duration that the API takes."""
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


def exact(value: float | None) -> str | None:
    """A float that reads back as itself; None for None and for NaN, which has no form."""
    return None if value is None or math.isnan(value) else repr(float(value))


def figure(value: float | None) -> str | None:
    """A number as people read it: three significant digits, no exponent; None when it is none."""
    if value is None or not math.isfinite(value) or abs(value) >= 1e15:
        return None
    if abs(value) >= 100 or value == 0:
        return f"{value:.0f}"
    decimals = min(12, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def positional(value: float) -> str:
    """A float with every digit that it needs and no exponent, as a spec takes it: ``0.8571428571428571``, ``6``."""
    text = f"{Decimal(repr(float(value))):f}"
    return text.removesuffix(".0")


def money(amount: Decimal | None) -> str | None:
    """An amount with cents only where there are any; None when there is none."""
    if amount is None or not amount.is_finite() or abs(amount) >= Decimal("1e20"):
        return None
    whole = amount == amount.to_integral_value()
    return f"{amount:.0f}" if whole else f"{amount:.2f}" if abs(amount) >= Decimal("0.01") else f"{amount:.6f}"


def wait(seconds: float | None) -> str | None:
    """A latency as a duration, to the millisecond: ``620ms``; None when it is none."""
    if seconds is None or not 0 <= seconds < _TEN_YEARS_S:  # no NaN passes either
        return None
    return format_duration(seconds)


def count(value: float | None) -> int:
    """A whole number from 0 to what 64 bits hold."""
    return 0 if value is None or math.isnan(value) else int(min(max(value, 0), _MOST))


def line(text: str, most: int = LONGEST_LINE) -> str:
    """The text on one line, without control characters."""
    return _shortened("".join(" " if ord(c) < 32 or ord(c) == 127 else c for c in text), most)


def sentence(text: str, most: int = LONGEST_SENTENCE) -> str:
    """Text that may have several lines."""
    return _shortened(text.replace("\0", " "), most)


def word(text: str) -> str:
    """A CamelCase word for machines: what cannot stand in one is left out; ``Unknown`` when nothing is left."""
    kept = re.sub(r"[^A-Za-z0-9_,:]", "", text).lstrip("0123456789_,:")[:_LONGEST_WORD].rstrip(",:")
    return kept or "Unknown"


def digest(text: str) -> str:
    """A digest, without what none has."""
    return re.sub(r"[^A-Za-z0-9._:+-]", "", text)[:_LONGEST_WORD]


def instant(text: str) -> str | None:
    """A time as RFC 3339 writes it; None for any other text."""
    return text if _INSTANT.fullmatch(text) and len(text) <= 40 else None


def name(text: str) -> str | None:
    """A name as Kubernetes takes it; None for any other text."""
    return text if _NAME.fullmatch(text) and len(text) <= 253 else None


def _shortened(text: str, most: int) -> str:
    whole = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no JSON
    return whole if len(whole) <= most else whole[: most - 1] + _CUT
