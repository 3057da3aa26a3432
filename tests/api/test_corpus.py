"""A corpus of manifests with the verdict that each deserves. The same files will be shown to a real API server.

A bad file opens with lines ``# want: FIELD: TELLING WORDS``, one for each problem: no more, no fewer. A line
``# slotune only`` marks what CEL can't say. In ``unreadable``, where YAML itself is wrong, the line number comes first.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slotune.api.documents import read_documents
from slotune.api.inventory import take_stock
from slotune.api.problems import Problem
from slotune.api.v1alpha1 import KINDS

CORPUS = Path(__file__).parent / "corpus"
SECRETS = ("vault", "hunter2", "271828")


def files(folder: str) -> list[Path]:
    found = sorted((CORPUS / folder).glob("*.yaml"))
    assert found, folder
    return found


def problems(path: Path) -> list[Problem]:
    documents, found = read_documents(path.name, path.read_bytes())
    return found + take_stock(documents).problems


@pytest.mark.parametrize("path", files("good"), ids=lambda path: path.stem)
def test_good(path: Path) -> None:
    assert [str(problem) for problem in problems(path)] == []


@pytest.mark.parametrize("path", files("bad"), ids=lambda path: path.stem)
def test_bad(path: Path) -> None:
    wants = re.findall(r"^# want: ([^:]+): (.+)$", path.read_text(), re.MULTILINE)
    found = problems(path)

    assert sorted(problem.field for problem in found) == sorted(field for field, _ in wants)
    for field, words in wants:
        assert any(problem.field == field and words in problem.cure for problem in found), [str(p) for p in found]


@pytest.mark.parametrize("path", files("bad"), ids=lambda path: path.stem)
def test_a_problem_names_file_line_and_object_and_shows_no_secret(path: Path) -> None:
    lines = path.read_text().splitlines()
    for problem in problems(path):
        assert problem.file == path.name
        assert problem.line is not None
        last = re.split(r"[.\[]", problem.field)[-1].rstrip("]")
        present = "required" not in problem.cure and "exactly one" not in problem.cure
        if present and not last.isdigit() and re.search(rf"\b{last}:", path.read_text().split("apiVersion", 1)[-1]):
            assert last in lines[problem.line - 1]
        assert not any(secret in str(problem) for secret in SECRETS)
        assert "\n" not in str(problem)


@pytest.mark.parametrize("path", files("unreadable"), ids=lambda path: path.stem)
def test_unreadable(path: Path) -> None:
    wants = re.findall(r"^# want:([0-9]*) ?([^:]*): (.+)$", path.read_text(), re.MULTILINE)
    found = problems(path)

    got = {(str(problem.line or ""), problem.field) for problem in found}
    assert {(line, field) for line, field, _ in wants} <= got
    assert all(any(words in problem.cure for problem in found) for _, _, words in wants)


def test_every_kind_is_in_the_good_corpus() -> None:
    text = "".join(path.read_text() for path in files("good"))

    assert all(f"kind: {kind.INFO.kind}\n" in text for kind in KINDS)
