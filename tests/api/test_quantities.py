"""Strings become exact numbers, or an error that says what to write instead."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.quantities import (
    QuantityError,
    Window,
    format_duration,
    parse_bytes,
    parse_decimal,
    parse_duration,
    parse_quantity,
    parse_window,
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("250ms", "0.25"),
        ("1.5s", "1.5"),
        ("2m", "120"),
        ("1h30m", "5400"),
        ("0s", "0"),
        ("0.001ms", "0.000001"),
        ("1m1ms", "60.001"),
    ],
)
def test_a_duration_is_exact_seconds(text: str, want: str) -> None:
    assert parse_duration(text) == Decimal(want)


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("1 sec", "250ms"),
        ("", "250ms"),
        ("30", "30s"),
        ("-1s", "250ms"),
        ("2d", "48h"),
        ("1s ", "250ms"),
        ("1s\n", "250ms"),
        ("\u0661s", "250ms"),
        ("1" * 65 + "s", "250ms"),
    ],
)
def test_a_wrong_duration_says_what_to_write(text: str, telling: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_duration(text, "spec.slo.ttftP95")

    assert caught.value.field == "spec.slo.ttftP95"
    assert caught.value.value == text
    assert telling in caught.value.cure
    assert "spec.slo.ttftP95" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("24Gi", 24 * 1024**3),
        ("24G", 24 * 10**9),
        ("0.5Gi", 512 * 1024**2),
        ("1.1Ki", "1126.4"),
        ("500m", "0.5"),
        ("2e9", 2 * 10**9),
        ("2E", 2 * 10**18),
        ("1Ei", 1024**6),
        ("7", 7),
    ],
)
def test_a_quantity_is_exact(text: str, want: str | int) -> None:
    assert parse_quantity(text) == Decimal(want)


def test_bytes_are_rounded_up_to_whole_ones() -> None:
    assert parse_bytes("1.1Ki") == 1127
    assert parse_bytes("0.1") == 1


@pytest.mark.parametrize(
    ("text", "telling"),
    [
        ("24m", "24Mi"),
        ("24GB", "24G"),
        ("24 GiB", "24Gi"),
        ("24kb", "24k"),
        ("24KiB", "24Ki"),
        ("Gi", "24Gi"),
        ("-1Gi", "24Gi"),
    ],
)
def test_wrong_memory_says_what_to_write(text: str, telling: str) -> None:
    with pytest.raises(QuantityError, match=telling):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1e3", "-1", "+1", "1.", ".5", "0x10", "1_000", "NaN", "inf", " 1", "1,5"])
def test_a_decimal_is_digits_and_a_point_only(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_decimal(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("02:00-05:00", Window(frozenset(range(7)), 120, 180)),
        ("Sat 22:00-04:00", Window(frozenset({5}), 1320, 360)),
        ("Mon-Fri 01:00-03:30", Window(frozenset(range(5)), 60, 150)),
        ("Sat-Mon 00:00-00:00", Window(frozenset({5, 6, 0}), 0, 1440)),
        ("Mon,Wed,Fri-Sun 12:00-12:01", Window(frozenset({0, 2, 4, 5, 6}), 720, 1)),
    ],
)
def test_a_window_comes_back_every_week(text: str, want: Window) -> None:
    assert parse_window(text) == want


@pytest.mark.parametrize("text", ["at night", "2:00-5:00", "22:00-24:00", "Sam 02:00-05:00", "Mon-Wed-Fri 02:00-05:00"])
def test_a_wrong_window_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_window(text)


@pytest.mark.parametrize(
    ("seconds", "want"), [(0.62, "620ms"), (2.8, "2.8s"), (60, "1m"), (5400, "1h30m"), (61.5, "1m1.5s"), (0, "0ms")]
)
def test_a_duration_is_written_as_people_read_it(seconds: float, want: str) -> None:
    assert format_duration(seconds) == want


@given(st.decimals(min_value=0, max_value=10**7, places=3))
def test_a_written_duration_reads_back_as_itself(seconds: Decimal) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(
    st.integers(0, 10**15),
    st.sampled_from(["", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]),
    st.integers(0, 10**15),
)
def test_quantities_of_one_unit_keep_their_order(first: int, unit: str, second: int) -> None:
    one, other = parse_quantity(f"{first}{unit}"), parse_quantity(f"{second}{unit}")

    assert (one < other) == (first < second)
    assert (one == other) == (first == second)


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_a_clean_error(text: str) -> None:
    for parse in (parse_decimal, parse_duration, parse_quantity, parse_bytes, parse_window):
        with contextlib.suppress(QuantityError):
            parse(text)
