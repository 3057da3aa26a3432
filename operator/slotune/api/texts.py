"""The kinds of string that the resources are made of. Each is a type to annotate a field with.

A spec holds no floats: times, rates, money and memory are strings of these kinds, read exactly by
:mod:`slotune.api.quantities`. Every kind has a longest length, so that the API server can bound the cost of CEL.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

from slotune.api import quantities
from slotune.api.forms import Form

__all__ = [
    "ConfigName",
    "Digest",
    "Duration",
    "FilePath",
    "Identifier",
    "Label",
    "Name",
    "Number",
    "Percent",
    "PositiveBytes",
    "PositiveDecimal",
    "PositiveDuration",
    "PositiveQuantity",
    "Probability",
    "Reason",
    "Sentence",
    "ShortText",
    "SignedDecimal",
    "Timestamp",
    "UnsignedDecimal",
]


_SHORTEST: Final = Decimal("0.001")
_LONGEST: Final = Decimal(87_600 * 3600)
"""Seconds. Go's durations end at 292 years, and a sum with a date must still be a date."""


def _above_zero(text: str) -> bool:
    return any(digit in "123456789" for digit in text.upper().partition("E")[0])


_DURATION: Final = Form(
    quantities.DURATION_PATTERN,
    "a duration such as 250ms, 1.5s or 2m is needed",
    32,
    parse=quantities.parse_duration,
    accepts=lambda text: quantities.parse_duration(text) <= _LONGEST,
    cel="duration(self) <= duration('87600h')",
    refusal="must be at most 87600h (ten years)",
)
_DECIMAL_CURE: Final = 'a number without a unit is needed, in quotes, such as "6" or "0.80"'

Duration = Annotated[str, _DURATION]
"""``250ms``, ``1.5s``, ``2m``, ``1h30m``; may be zero."""

PositiveDuration = Annotated[
    str,
    Form(
        quantities.DURATION_PATTERN,
        _DURATION.cure,
        32,
        parse=quantities.parse_duration,
        accepts=lambda text: _SHORTEST <= quantities.parse_duration(text) <= _LONGEST,
        cel="duration(self) >= duration('1ms') && duration(self) <= duration('87600h')",
        refusal="must be longer than zero: from 1ms to 87600h (ten years)",
    ),
]

UnsignedDecimal = Annotated[str, Form(quantities.DECIMAL_PATTERN, _DECIMAL_CURE, 20)]
PositiveDecimal = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        _DECIMAL_CURE,
        20,
        accepts=_above_zero,
        cel="double(self) > 0.0",
        refusal="must be more than 0",
    ),
]
SignedDecimal = Annotated[
    str,
    Form(quantities.SIGNED_DECIMAL_PATTERN, 'a number is needed, in quotes, such as "0.7" or "-1"', 20),
]
Percent = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a percentage without a sign is needed, in quotes, such as "3" or "2.5"',
        8,
        accepts=lambda text: 0 < float(text) <= 100,
        cel="double(self) > 0.0 && double(self) <= 100.0",
        refusal="must be more than 0 and at most 100",
    ),
]

Probability = Annotated[
    str,
    Form(
        quantities.DECIMAL_PATTERN,
        'a number from 0 to 1 is needed, in quotes, such as "0.95"',
        20,
        accepts=lambda text: float(text) <= 1,
        cel="double(self) <= 1.0",
        refusal="must be at most 1",
    ),
]

PositiveQuantity = Annotated[
    str,
    Form(
        quantities.QUANTITY_PATTERN,
        "a quantity such as 24Gi, 300G or 500m is needed",
        24,
        parse=quantities.parse_quantity,
        accepts=_above_zero,
        cel="quantity(self).isGreaterThan(quantity('0'))",
        refusal="must be more than 0",
    ),
]
PositiveBytes = Annotated[
    str,
    Form(
        quantities.QUANTITY_PATTERN.replace("(m|", "("),
        "an amount of memory such as 24Gi or 24G is needed",
        24,
        parse=quantities.parse_bytes,
        accepts=_above_zero,
        cel="quantity(self).isGreaterThan(quantity('0'))",
        refusal="must be more than 0",
    ),
]

Name = Annotated[
    str,
    Form(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        "a Kubernetes name is needed: lower-case letters, digits, - and . only, a letter or digit at both ends",
        253,
    ),
]
"""Name of a Kubernetes object (RFC 1123 subdomain)."""

Label = Annotated[
    str,
    Form(
        r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        "letters, digits, -, _ and . are allowed, with a letter or digit at both ends",
        63,
    ),
]
"""A short word that also fits a Kubernetes label."""

ConfigName = Annotated[
    str,
    Form(r"^[-._a-zA-Z0-9]+$", "a key of a ConfigMap or Secret is needed: letters, digits, -, _ and . only", 253),
]

FilePath = Annotated[
    str,
    Form(r"^[^\x00-\x1f\x7f]+$", "a path of one line is needed", 1024),
]

ShortText = Annotated[str, Form(r"^[^\x00-\x1f\x7f]*$", "one line of text is needed", 256)]
Sentence = Annotated[str, Form(r"^[^\x00]*$", "text is needed", 4096)]
"""Words for people; may have several lines."""
Reason = Annotated[
    str,
    Form(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "a CamelCase word is needed", 128),
]
Identifier = Annotated[str, Form(r"^SLT[0-9]{3}$", "an identifier of docs/diagnosis.md such as SLT050 is needed", 6)]
"""Of an entry of the catalogue of diagnoses."""
Digest = Annotated[str, Form(r"^[A-Za-z0-9._:+-]*$", "a digest is needed", 128)]
Number = Annotated[str, Form(quantities.NUMBER_PATTERN, 'a number is needed, in quotes, such as "0.62"', 32)]
"""A measured number: floats live in a status as strings only."""
Timestamp = Annotated[
    str,
    Form(
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        "a time such as 2026-01-31T12:00:00Z is needed",
        40,
    ),
]
