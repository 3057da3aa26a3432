"""Text to exact numbers: what a manifest writes as a string is never rounded on its way in.

A spec holds no floats (they do not survive JSON unchanged), so times, rates, money and memory are strings.
They become :class:`~decimal.Decimal` here, exactly; whoever computes in floats converts at that place.
"""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

__all__ = [
    "DECIMAL_PATTERN",
    "DURATION_PATTERN",
    "NUMBER_PATTERN",
    "QUANTITY_PATTERN",
    "SIGNED_DECIMAL_PATTERN",
    "WINDOW_PATTERN",
    "QuantityError",
    "Window",
    "format_duration",
    "parse_bytes",
    "parse_decimal",
    "parse_duration",
    "parse_quantity",
    "parse_window",
]

# The patterns are plain enough for Go (RE2), where the API server evaluates them: no look-ahead, ASCII digits only.
DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
DECIMAL_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?$"
SIGNED_DECIMAL_PATTERN: Final = r"^-?[0-9]+(\.[0-9]+)?$"
NUMBER_PATTERN: Final = r"^(-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|-?inf)$"
"""A measured number as a status writes it: what Python's ``repr`` makes of a float, NaN excepted."""
QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]{1,2})?$"
_DAY: Final = "(Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_CLOCK: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
WINDOW_PATTERN: Final = f"^({_DAY}(-{_DAY})?(,{_DAY}(-{_DAY})?)* )?{_CLOCK}-{_CLOCK}$"

_SECONDS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_FACTORS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTES_PER_DAY: Final = 24 * 60

_LONGEST: Final = 64
"""Characters. Longer text is no honest number, and this bound makes 160 digits of precision enough to be exact."""
_EXACT: Final = decimal.Context(prec=160, traps=[decimal.InvalidOperation, decimal.Inexact])


class QuantityError(ValueError):
    """A string that should have been a number. ``cure`` says what to write instead."""

    def __init__(self, field: str, value: str, cure: str) -> None:
        self.field = field
        self.value = value
        self.cure = cure
        super().__init__(f"{field} is {value[:_LONGEST]!r}: {cure}")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of local time that comes back every week."""

    days: frozenset[int]
    """Days on which it opens: 0 is Monday."""
    start_minute: int
    """Minutes after midnight."""
    length_minutes: int
    """1 to 1440; a window may run past midnight."""


def parse_decimal(text: str, field: str = "value") -> Decimal:
    """A plain decimal such as ``0.80``. An exponent, a sign or a unit is a :class:`QuantityError`."""
    _match(DECIMAL_PATTERN, text, field, 'a number without a unit is needed, such as "6" or "0.80"')
    return Decimal(text)


def parse_duration(text: str, field: str = "duration") -> Decimal:
    """Seconds in a Kubernetes (Go) duration such as ``250ms``, ``1.5s``, ``2m`` or ``1h30m``."""
    _match(DURATION_PATTERN, text, field, _duration_cure(text))
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text)
    total = Decimal(0)
    for number, unit in parts:
        total = _EXACT.add(total, _EXACT.multiply(Decimal(number), _SECONDS[unit]))
    return total


def parse_quantity(text: str, field: str = "quantity") -> Decimal:
    """A Kubernetes quantity such as ``24Gi``, ``300G``, ``500m`` or ``2e9``, never negative."""
    _match(QUANTITY_PATTERN, text, field, _quantity_cure(text))
    found = re.fullmatch(r"([0-9.]+)(?:[eE]([0-9]+)|([A-Za-z]*))", text)
    assert found is not None
    number, exponent, suffix = found.groups()
    if exponent is not None:
        return _EXACT.scaleb(Decimal(number), int(exponent))
    return _EXACT.multiply(Decimal(number), _FACTORS[suffix])


def parse_bytes(text: str, field: str = "memory") -> int:
    """Whole bytes of a quantity, rounded up as Kubernetes does.

    The suffix ``m`` means thousandths. It is refused here: whoever writes ``24m`` of memory meant ``24M``.
    """
    if text.endswith("m"):
        raise QuantityError(field, text, f"m means thousandths of a byte: write {text[:-1]}M or {text[:-1]}Mi")
    return int(parse_quantity(text, field).to_integral_value(rounding=decimal.ROUND_CEILING, context=_EXACT_INTEGER))


def parse_window(text: str, field: str = "window") -> Window:
    """A weekly window such as ``02:00-05:00``, ``Sat 22:00-04:00`` or ``Mon-Fri 01:00-03:00``."""
    _match(
        WINDOW_PATTERN, text, field, "a window such as 02:00-05:00, Sat 22:00-04:00 or Mon-Fri 01:00-03:00 is needed"
    )
    days_text, _, hours = text.rpartition(" ")
    days: set[int] = set()
    for part in days_text.split(",") if days_text else ("Mon-Sun",):
        ends = [_DAYS.index(day) for day in part.split("-")]
        days.update((ends[0] + step) % 7 for step in range((ends[-1] - ends[0]) % 7 + 1))
    start, end = (int(clock[:2]) * 60 + int(clock[3:]) for clock in hours.split("-"))
    return Window(frozenset(days), start, (end - start) % _MINUTES_PER_DAY or _MINUTES_PER_DAY)


def format_duration(seconds: Decimal | float) -> str:
    """Seconds as people read them, to the millisecond at most: ``620ms``, ``2.8s``, ``1h30m``."""
    milliseconds = int((Decimal(str(seconds)) * 1000).to_integral_value(rounding=decimal.ROUND_HALF_EVEN))
    if milliseconds < 0:
        raise QuantityError("duration", str(seconds), "a duration is not negative")
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else ""]
    if rest:
        parts.append(f"{Decimal(rest) / 1000:f}s")
    return "".join(parts)


_EXACT_INTEGER: Final = decimal.Context(prec=160)


def _match(pattern: str, text: str, field: str, cure: str) -> None:
    if len(text) > _LONGEST or not re.fullmatch(pattern, text, re.ASCII):
        raise QuantityError(field, text, cure)


def _duration_cure(text: str) -> str:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        return f"a duration needs a unit: write {text}ms, {text}s, {text}m or {text}h"
    if days := re.fullmatch(r"([0-9]+)d", text, re.ASCII):
        return f"days are no unit of a duration: write {int(days[1]) * 24}h"
    return "a duration such as 250ms, 1.5s, 2m or 1h30m is needed"


def _quantity_cure(text: str) -> str:
    cure = "a quantity such as 24Gi, 300G or 500m is needed"
    if spelled := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtT])(i?)[bB](?:/s)?", text, re.ASCII):
        number, letter, binary = spelled.groups()
        suffix = (letter.upper() if binary or letter.upper() != "K" else "k") + binary
        return f"{cure}: write {number}{suffix}"
    return cure
