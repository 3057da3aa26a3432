"""Rows line up, stay within their width, and never carry what a terminal would obey."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from slotune.report.columns import Column, Columns, labelled, printable
from slotune.report.text import plain

WIDE = Columns((Column("name", 10), Column("n", 4, right=True)), "why", 60)
NARROW = Columns((Column("name", 10), Column("n", 4, right=True)), "why", 40)


def test_a_wide_row_keeps_its_reason_beside_it() -> None:
    assert plain(WIDE.header()) == "name           n  why\n"
    assert plain(WIDE.row(("16 slots, prefix cache", "7"), "late")) == ("16 slots,      7  late\nprefix\ncache\n")


def test_a_narrow_row_puts_its_reason_below() -> None:
    assert plain(NARROW.header()) == "name           n\n"
    assert plain(NARROW.row(("a", "7"), "it was late again and again, all day long")) == (
        "a              7\n     it was late again and again, all\n     day long\n"
    )


@pytest.mark.parametrize(
    ("words", "want"),
    [("a\x1b[31mb", "a[31mb"), ("a\nb\tc", "a b c"), ("\u202eabc", "abc"), ("naïve × 4", "naïve × 4")],
)
def test_control_characters_are_dropped(words: str, want: str) -> None:
    assert printable(words) == want


@given(st.text(), st.text(), st.integers(min_value=40, max_value=200))
def test_no_line_is_longer_than_the_width(first: str, second: str, width: int) -> None:
    columns = Columns((Column("name", 10), Column("n", 4, right=True)), "why", width)
    for text in (columns.row((first, "1"), second), labelled("label", [first, second], width=width)):
        for line in text.plain.split("\n"):
            assert cell_len(line) <= width
            assert "\x1b" not in line


@pytest.mark.parametrize("first", ["日本語" * 9, "\u0300" * 30 + " 本" * 8, "é" * 50])
def test_wide_letters_and_marks_are_wrapped_by_the_places_that_they_take(first: str) -> None:
    text = WIDE.row((first, "1"), first).plain
    assert all(cell_len(line) <= 60 for line in text.split("\n"))
    assert sum(text.count(letter) for letter in set(first) - {" "}) == 2 * len(first.replace(" ", ""))


def test_wide_letters_keep_the_columns_in_line() -> None:
    line = plain(WIDE.row(("日本", "7"), "x")).rstrip("\n")
    assert cell_len(line) == len("name           n  x")
