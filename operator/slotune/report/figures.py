"""Numbers as people read them. None, NaN and infinity all become one dash: a report never shows a number it lacks.

Three significant digits everywhere but in money that was decided on, which keeps its cents, so that every amount in
a report equals the one in the decision.
"""

from __future__ import annotations

import math
from decimal import Decimal

__all__ = [
    "MISSING",
    "about_money",
    "count",
    "duration",
    "finite",
    "money",
    "percent",
    "plural",
    "price",
    "rate",
    "seconds",
    "sentence",
    "significant",
    "size",
    "speed",
    "target_percentile",
]

MISSING = "–"
"""Stands for whatever was not measured."""

_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_MINUS = "\N{MINUS SIGN}"


def finite(value: float | None) -> float | None:
    """The value, or None when it is no number that can be drawn or compared."""
    return value if value is not None and math.isfinite(value) else None


def significant(value: float, digits: int = 3) -> str:
    """``value`` with ``digits`` significant digits, thousands separated, no trailing zeros, never an exponent."""
    if value == 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    text = f"{rounded:,.{max(decimals, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value: float | None) -> str:
    """A number of things: ``1,024``."""
    return MISSING if finite(value) is None else f"{value:,.0f}"


def plural(value: int, one: str, many: str | None = None) -> str:
    """``1 request``, ``2 requests``."""
    return f"{value:,} {one if value == 1 else (many or one + 's')}"


def seconds(value: float | None) -> str:
    """A latency in seconds, as ``2.8 s`` or ``45 ms``."""
    if finite(value) is None:
        return MISSING
    assert value is not None
    if value == 0:
        return "0 s"
    return f"{significant(value * 1000)} ms" if abs(value) < 0.1 else f"{significant(value)} s"


def duration(value: float | None) -> str:
    """Time spent, in seconds, as ``45 s``, ``23 min`` or ``2 h 10 min``."""
    if finite(value) is None:
        return MISSING
    assert value is not None
    if value < 90:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def rate(value: float | None) -> str:
    """Requests per second, as ``1.2/s``; a slow one per minute or per hour."""
    if finite(value) is None:
        return MISSING
    assert value is not None
    if value >= 0.1:
        return f"{significant(value)}/s"
    return f"{significant(value * 60)}/min" if value * 60 >= 0.1 else f"{significant(value * 3600)}/h"


def speed(value: float | None) -> str:
    """Tokens per second, bare: ``44``."""
    return MISSING if finite(value) is None or value is None else significant(value)


def percent(share: float | None) -> str:
    """A share of 0..1 as ``5 %``."""
    return MISSING if finite(share) is None or share is None else f"{significant(share * 100)} %"


def size(byte_count: float | None) -> str:
    """Bytes in binary units: ``15 GiB``."""
    if finite(byte_count) is None or byte_count is None:
        return MISSING
    value, unit = float(byte_count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{significant(value)} {unit}"


def money(amount: Decimal | None, currency: str = "USD") -> str:
    """``$1,460``, with cents only when there are any; four digits below one cent; ``1,460 CHF`` without a sign."""
    if amount is None or not amount.is_finite():
        return MISSING
    magnitude = abs(amount)
    if magnitude != 0 and magnitude < Decimal("0.01"):
        text = significant(float(magnitude), 2)
    elif magnitude == magnitude.to_integral_value():
        text = f"{magnitude:,.0f}"
    else:
        text = f"{magnitude:,.2f}"
    sign = _MINUS if amount < 0 else ""
    symbol = _SIGNS.get(currency)
    return f"{sign}{symbol}{text}" if symbol else f"{sign}{text} {currency}"


def about_money(amount: float | None, currency: str = "USD") -> str:
    """An estimate, in three digits whatever its size: ``$0.00012``, ``$1.6``, ``264 CHF``, ``€12,300``."""
    if finite(amount) is None or amount is None:
        return MISSING
    sign, symbol, text = _MINUS if amount < 0 else "", _SIGNS.get(currency), significant(abs(amount))
    return f"{sign}{symbol}{text}" if symbol else f"{sign}{text} {currency}"


def price(amount: Decimal, currency: str = "USD") -> str:
    """A price per hour with every digit that it has: ``$0.096``, ``$0.80``, ``$2``."""
    if amount.is_finite() and amount != amount.quantize(Decimal("0.01")):
        text = f"{amount.normalize():,f}"
        symbol = _SIGNS.get(currency)
        return f"{symbol}{text}" if symbol else f"{text} {currency}"
    return money(amount, currency)


def sentence(words: str) -> str:
    """Words with a capital first letter and a full stop, however they were written."""
    text = words.strip()
    return text if not text else text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def target_percentile(violation_share: float) -> str:
    """The percentile that a promise with this share of allowed violations is about: 0.05 is ``p95``."""
    return f"p{significant((1 - violation_share) * 100, 4)}"
