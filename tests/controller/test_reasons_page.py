"""Whoever meets a word in a status finds it in docs/operator.md, and no word stands there that nothing says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import slotune.sandbox
from slotune.api import labels
from slotune.api.v1alpha1.deployment_status import Phase
from slotune.controller.reasons import REASONS_OF, ConditionType, Reason
from slotune.llama.failures import FailureClass

PAGE = (Path(__file__).parents[2] / "docs" / "operator.md").read_text()
SANDBOX = Path(slotune.sandbox.__file__).parent
WORD = re.compile(r"[A-Z][A-Za-z]+")


def section(heading: str) -> str:
    """What stands below a heading, up to the next one of any depth."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/operator.md has no section {heading!r}"
    return found[1]


def listed(heading: str) -> list[str]:
    """Words in the first column of a section's tables, in order."""
    cells = re.findall(r"^\| (`.+?) \|", section(heading), re.MULTILINE)
    return [word for cell in cells for word in re.findall(r"`(\w+)`", cell)]


def said_of_pods() -> Iterator[str]:
    """Every word with which a judgement of the sandbox holds a trial up or has it run again."""
    for path in SANDBOX.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="Blocked" | "Retry"), args=[word, *_]):
                    yield from words_of(word)
                case ast.Assign(targets=[ast.Name(id="reason")], value=word):
                    yield from words_of(word)


def words_of(said: ast.expr) -> Iterator[str]:
    """The words that an expression may come to."""
    match said:
        case ast.Constant(value=str(word)) if WORD.fullmatch(word):
            yield word
        case ast.IfExp(body=one, orelse=other):
            yield from (*words_of(one), *words_of(other))
        case ast.BoolOp(values=values):
            yield from (word for value in values for word in words_of(value))


def test_the_words_of_the_sandbox_are_found_at_all() -> None:
    assert {"ImagePullFailed", "PodSecurity", "PodLost", "JobFailed", "NoCapacity"} <= set(said_of_pods())


def test_every_reason_of_a_condition_is_explained_once_and_no_other() -> None:
    words = listed("Reasons")

    assert sorted(words) == sorted({*Reason, *said_of_pods()})


def test_every_reason_belongs_to_a_condition() -> None:
    assert set(Reason) - {reason for reasons in REASONS_OF.values() for reason in reasons} == set()


def test_every_condition_is_explained_in_the_order_of_the_status() -> None:
    assert listed("Conditions") == list(ConditionType)


def test_every_class_of_failure_is_explained() -> None:
    assert set(FailureClass) - set(listed("A trial and its record")) == set()


def test_every_phase_is_named() -> None:
    assert set(get_args(Phase)) - set(re.findall(r"`(\w+)`", section("What you see"))) == set()


def test_every_label_that_the_page_names_is_one() -> None:
    known = {value for value in vars(labels).values() if isinstance(value, str)}

    assert set(re.findall(r"slotune\.dev/[a-z-]+", PAGE)) - known == set()
