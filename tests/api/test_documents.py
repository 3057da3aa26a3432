"""Every line of a file is either understood or refused with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.documents import MOST_BYTES, read_documents, without_lists


def test_every_field_knows_its_line() -> None:
    content = b"# comment\nkind: A\nspec:\n  models:\n    - name: a\n    - name: b\n---\nkind: B\n"
    (first, second), problems = read_documents("a.yaml", content)

    assert problems == []
    assert first.line(("kind",)) == 2
    assert first.line(("spec", "models", 1, "name")) == 6
    assert second.line(("kind",)) == 8


def test_a_field_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    (document,), _ = read_documents("a.yaml", b"kind: A\nspec:\n  models:\n    - name: a\n")

    assert document.line(("spec", "models", 0, "path")) == 4
    assert document.line(("spec", "slo", "ttftP95")) == 2
    assert document.line(("metadata",)) == 1


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    (document,), problems = read_documents("a.yaml", b"\xef\xbb\xbfkind: A\n")

    assert problems == []
    assert document.data == {"kind": "A"}


def test_a_file_that_is_not_utf_8_is_refused_with_the_line() -> None:
    documents, (problem,) = read_documents("a.yaml", "kind: A\nname: Grüße\n".encode("latin-1"))

    assert documents == []
    assert problem.line == 2
    assert "UTF-8" in problem.cure


@pytest.mark.parametrize("content", [b"", b"\n\n", b"# nothing\n", b"---\n---\n", b"null\n"])
def test_a_file_without_a_document_is_empty(content: bytes) -> None:
    documents, (problem,) = read_documents("a.yaml", content)

    assert documents == []
    assert "empty" in problem.cure


def test_empty_documents_between_others_are_skipped() -> None:
    documents, problems = read_documents("a.yaml", b"---\n---\nkind: A\n---\n# nothing\n---\nkind: B\n")

    assert problems == []
    assert [document.data["kind"] for document in documents] == ["A", "B"]


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    documents, (problem,) = read_documents("a.yaml", b"a" * (MOST_BYTES + 1))

    assert documents == []
    assert f"{MOST_BYTES:,}" in problem.cure


def test_nested_anchors_that_would_make_billions_are_refused_quickly() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{c}: &{c} [{', '.join(['*' + b] * 9)}]" for b, c in zip("abcdefghi", "bcdefghij", strict=True)]
    documents, (problem,) = read_documents("a.yaml", "\n".join(lines).encode())

    assert documents == []
    assert "without end" in problem.cure


def test_deep_nesting_is_refused() -> None:
    for depth in (100, 100_000):
        documents, (problem,) = read_documents("a.yaml", b"a: " + b"[" * depth + b"]" * depth)

        assert documents == []
        assert "nest" in problem.cure


def test_every_repeated_key_is_reported_and_the_first_one_counts() -> None:
    (document,), problems = read_documents("a.yaml", b"a: 1\nb: {c: 1, c: 2}\na: 3\n")

    assert [(problem.field, problem.line) for problem in problems] == [("b.c", 2), ("a", 3)]
    assert document.data == {"a": 1, "b": {"c": 1}}


def test_merged_mappings_give_way_to_what_is_written() -> None:
    content = b"base: &base {a: 1, b: 2}\nmore: &more {c: 3, a: 9}\none:\n  <<: [*base, *more]\n  b: 5\n"
    (document,), problems = read_documents("a.yaml", content)

    assert problems == []
    assert document.data["one"] == {"a": 1, "b": 5, "c": 3}


def test_merging_a_list_is_refused() -> None:
    _, (problem,) = read_documents("a.yaml", b"base: &base [1]\none:\n  <<: *base\n")

    assert (problem.field, "merges" in problem.cure) == ("one", True)


def test_broken_yaml_is_reported_without_the_text_around_it() -> None:
    for content in (
        b"data: 'the secret is hunter2\n",
        b"a: *hunter2\n",
        b"hunter2: [\n",
        b"a: b: hunter2\n",
        b"%hunter2\n",
    ):
        _, problems = read_documents("a.yaml", content)

        assert problems
        assert not any("hunter2" in str(problem) for problem in problems)


def test_a_key_that_may_be_a_piece_of_a_prompt_is_not_repeated() -> None:
    _, (problem,) = read_documents("a.yaml", b"data:\n  tell me all: 1\n  tell me all: 2\n")

    assert problem.field == "data"


def test_what_was_right_before_broken_yaml_is_kept() -> None:
    documents, (problem,) = read_documents("a.yaml", b"kind: A\n---\nkind: [\n")

    assert [document.data for document in documents] == [{"kind": "A"}]
    assert "not YAML" in problem.cure


def test_a_list_of_kubectl_is_its_items_with_their_lines() -> None:
    content = b"apiVersion: v1\nkind: List\nitems:\n  - kind: A\n    x: 1\n  - kind: B\n"
    documents, _ = read_documents("a.yaml", content)
    first, second = without_lists(documents)

    assert (first.data["kind"], first.line(("x",))) == ("A", 5)
    assert (second.data["kind"], second.line(("kind",)), second.line(("y",))) == ("B", 6, 6)


@given(st.binary(max_size=200))
def test_any_bytes_are_documents_or_clean_problems(content: bytes) -> None:
    documents, problems = read_documents("a.yaml", content)

    assert documents or problems


@given(st.text(st.sampled_from("ab:- \n\t{}[]&*!<'\"|>#%@0.1e_x"), max_size=60))
def test_any_punctuation_is_documents_or_clean_problems(text: str) -> None:
    documents, problems = read_documents("a.yaml", text.encode())

    assert documents or problems
