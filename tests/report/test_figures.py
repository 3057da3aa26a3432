"""Numbers read well, and a number that is none never shows."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.report import figures


@pytest.mark.parametrize(
    ("value", "want"),
    [(2.8, "2.8 s"), (0.62, "0.62 s"), (1.04, "1.04 s"), (0.045, "45 ms"), (0, "0 s"), (123.4, "123 s"), (None, "–")],
)
def test_a_latency_has_three_digits_and_its_unit(value: float | None, want: str) -> None:
    assert figures.seconds(value) == want


@pytest.mark.parametrize(
    ("value", "want"),
    [(45, "45 s"), (89.6, "90 s"), (1380, "23 min"), (7800, "2 h 10 min"), (3600, "1 h"), (7199, "2 h")],
)
def test_time_spent_is_said_in_the_largest_unit_that_fits(value: float, want: str) -> None:
    assert figures.duration(value) == want


@pytest.mark.parametrize(("value", "want"), [(6, "6/s"), (1.2, "1.2/s"), (0.02, "1.2/min"), (0.0005, "1.8/h")])
def test_a_slow_rate_is_said_per_minute_or_hour(value: float, want: str) -> None:
    assert figures.rate(value) == want


@pytest.mark.parametrize(
    ("amount", "currency", "want"),
    [
        ("1460.00", "USD", "$1,460"),
        ("766.50", "EUR", "€766.50"),
        ("1460", "CHF", "1,460 CHF"),
        ("-12.5", "USD", "−$12.50"),
        ("0.0042", "USD", "$0.0042"),
        ("0.370370", "USD", "$0.37"),
        ("NaN", "USD", "–"),
    ],
)
def test_money_keeps_its_cents_and_its_currency(amount: str, currency: str, want: str) -> None:
    assert figures.money(Decimal(amount), currency) == want


@pytest.mark.parametrize(("amount", "want"), [("2.00", "$2"), ("0.80", "$0.80"), ("0.096", "$0.096")])
def test_a_price_per_hour_is_never_rounded(amount: str, want: str) -> None:
    assert figures.price(Decimal(amount)) == want


@pytest.mark.parametrize(("share", "want"), [(0.05, "p95"), (0.01, "p99"), (0.001, "p99.9"), (0.1, "p90")])
def test_a_share_of_violations_names_a_percentile(share: float, want: str) -> None:
    assert figures.target_percentile(share) == want


@pytest.mark.parametrize(("words", "want"), [("it holds", "It holds."), ("Why?", "Why?"), ("", "")])
def test_a_sentence_begins_with_a_capital_and_ends(words: str, want: str) -> None:
    assert figures.sentence(words) == want


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_no_number_that_is_none_is_ever_shown(value: float) -> None:
    for show in (figures.seconds, figures.duration, figures.rate, figures.speed, figures.percent, figures.size):
        if not math.isfinite(value):
            assert show(value) == figures.MISSING


@given(st.decimals(min_value=1, max_value=10**7, places=2))
def test_an_amount_can_be_read_back_to_the_cent(amount: Decimal) -> None:
    assert Decimal(figures.money(amount).replace("$", "").replace(",", "")) == amount


@given(st.floats(min_value=1e-6, max_value=1e9))
def test_three_digits_are_within_half_a_percent(value: float) -> None:
    assert float(figures.significant(value).replace(",", "")) == pytest.approx(value, rel=0.005)
