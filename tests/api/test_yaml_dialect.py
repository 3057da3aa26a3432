"""A file means the same to slotune and to kubectl."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from slotune.api.documents import read_documents
from slotune.api.yaml_dialect import write_documents


def read(text: str) -> Any:
    documents, problems = read_documents("test.yaml", text.encode())
    assert problems == []
    return documents[0].data


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("0644", 420),
        ("08", 8.0),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("0x10", 16),
        ("0b11", 3),
        ("0b_", "0b_"),
        ("1_000", 1000),
        ("off", False),
        ("On", True),
        ("oN", "oN"),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("null", None),
        ("None", "None"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("-5", -5),
        ("1.5.2", "1.5.2"),
        ("12345678901234567890123", 12345678901234567890123.0),
        ("<", "<"),
    ],
)
def test_a_plain_word_means_what_kubectl_takes_it_for(written: str, want: object) -> None:
    value = read(f"a: {written}\n")["a"]

    assert value == want
    assert type(value) is type(want)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcyn01.-e", min_size=1), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text("abc", min_size=1), JSON, min_size=1))
@example(
    {"a": "123456e789", "b": "1e-05", "c": "Off", "d": "2026-01-01", "e": "1:30", "f": "y", "g": "0o17", "h": "<<"}
)
def test_what_is_written_reads_back_as_itself(data: dict[str, Any]) -> None:
    assert read(write_documents(data)) == data


def test_text_that_pyyaml_alone_would_misread_is_quoted_too() -> None:
    data = {"a": "2026-01-01", "b": "1:30", "c": "yes", "d": "=", "e": "1e10"}

    assert yaml.safe_load(write_documents(data)) == data


def test_several_documents_are_one_stream() -> None:
    documents, problems = read_documents("test.yaml", write_documents({"a": 1}, {"b": 2}).encode())

    assert problems == []
    assert [document.data for document in documents] == [{"a": 1}, {"b": 2}]


def test_a_part_that_stands_twice_is_written_twice_without_anchors() -> None:
    part = {"b": 1}

    assert "&" not in write_documents({"one": part, "other": part})
