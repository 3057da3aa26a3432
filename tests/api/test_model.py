"""A model finds every problem at once, and never takes null for absent."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import ValidationError

from slotune.api.forms import Items
from slotune.api.kubernetes_types import PodTemplate
from slotune.api.model import Model, OpenModel, StatusModel
from slotune.api.problems import Problem, closest, explain, field_path
from slotune.api.rules import Rule, at_most_one_of, exactly_one_of, holds, immutable, needs
from slotune.api.texts import PositiveDuration


class Part(Model):
    size: int | None = None
    max_size: int | None = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        needs("max_size", "size", "maxSize goes with size"),
        holds(
            lambda it: it.size is None or it.max_size is None or it.size <= it.max_size,
            "size must fit maxSize",
            ("size", "max_size"),
            "!has(self.size) || !has(self.maxSize) || self.size <= self.maxSize",
            at="size",
        ),
    )


class Whole(Model):
    name: str
    wait: PositiveDuration = "1s"
    mode: Literal["Off", "Fast"] = "Fast"
    part: Part = Part()
    tags: Annotated[tuple[str, ...], Items(most=3, distinct=True)] = ()
    left: str | None = None
    right: str | None = None
    first: str | None = None
    second: str | None = None

    RULES: ClassVar[tuple[Rule, ...]] = (
        exactly_one_of("left", "right", message="exactly one of left and right is needed"),
        at_most_one_of("first", "second", message="at most one of first and second"),
    )


class Frozen(Model):
    value: int

    TRANSITIONS = (immutable("it can't change"),)


class Holder(Model):
    held: Frozen
    free: int = 0


class Open(OpenModel):
    name: str


class Status(StatusModel):
    phase: str | None = None


def fields(data: object, kind: type[Model] = Whole) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        kind.from_manifest(data)
    return {field_path(place): cure for place, _, cure in explain(caught.value, kind)}


def test_a_right_one_reads_back_as_itself() -> None:
    whole = Whole.from_manifest({"name": "a", "left": "x", "part": {"size": 1, "maxSize": 2}, "tags": ["a", "b"]})

    assert whole.part.max_size == 2
    assert Whole.from_manifest(whole.to_manifest()) == whole
    assert "right" not in whole.to_manifest()


def test_problems_of_fields_and_of_rules_come_together() -> None:
    found = fields({"name": 1, "wait": "soon", "part": {"size": 3, "maxSize": 2}, "first": "a", "second": "b"})

    assert set(found) == {"name", "wait", "part.size", ""}


def test_a_rule_waits_until_the_fields_that_it_reads_are_right() -> None:
    found = fields({"name": "a", "left": 1, "part": {"size": "x", "maxSize": 2}})

    assert set(found) == {"left", "part.size"}


def test_a_rule_that_reads_other_fields_does_not_wait() -> None:
    assert "exactly one" in fields({"name": 1})[""]


def test_null_is_not_absent_in_a_manifest() -> None:
    found = fields({"name": None, "left": "x", "right": None, "part": None, "wait": None})

    assert set(found) == {"name", "right", "part", "wait"}
    assert all("is empty" in cure for cure in found.values())


def test_none_is_absent_in_python() -> None:
    assert Whole(name="a", left="x", right=None) == Whole(name="a", left="x")


def test_a_manifest_is_written_in_camel_case_only() -> None:
    assert (
        "did you mean maxSize"
        in fields({"name": "a", "left": "x", "part": {"size": 1, "max_size": 2}})["part.max_size"]
    )


def test_nothing_is_converted() -> None:
    found = fields({"name": 5, "left": "x", "part": {"size": True, "maxSize": 2.5}, "tags": "abc"})

    assert set(found) == {"name", "part.size", "part.maxSize", "tags"}


def test_a_whole_number_may_be_written_as_helm_writes_large_ones() -> None:
    whole = Whole.from_manifest({"name": "a", "left": "x", "part": {"size": 1, "maxSize": 1e06}})

    assert whole.part is not None
    assert (whole.part.max_size, type(whole.part.max_size)) == (1_000_000, int)


def test_null_is_absent_in_what_is_kubernetes_own() -> None:
    pod = {"containers": [{"name": "a", "image": None, "env": [{"name": "A", "value": None}], "args": None}]}
    template = PodTemplate.from_manifest({"metadata": None, "spec": pod})

    assert template.spec.containers[0].args is None
    assert template.metadata is None


def test_a_model_can_t_be_changed() -> None:
    with pytest.raises(ValidationError):
        Whole(name="a", left="x").name = "b"  # type: ignore[misc]  # that is the point


def test_the_message_of_an_error_does_not_repeat_the_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.from_manifest({"name": 31337, "left": "x"})

    assert "31337" not in str(caught.value)


def test_a_part_of_another_s_type_keeps_what_it_does_not_know() -> None:
    data = {"name": "a", "emptyDir": None, "deep": {"list": [1, None]}}

    assert Open.from_manifest(data).to_manifest() == data


def test_a_status_of_a_newer_version_can_be_read() -> None:
    assert Status.from_manifest({"phase": "A", "later": 1}) == Status(phase="A")


def test_a_change_that_a_rule_forbids_is_named_with_its_place() -> None:
    old = Holder(held=Frozen(value=1))

    assert old.refused_changes(Holder(held=Frozen(value=1), free=5)) == ()
    assert old.refused_changes(Holder(held=Frozen(value=2))) == ((("held",), "it can't change"),)


def test_the_schema_says_the_rules_in_cel() -> None:
    schema = Whole.model_json_schema()["x-kubernetes-validations"]

    assert {"rule": "[has(self.left), has(self.right)].filter(given, given).size() == 1",
            "message": "exactly one of left and right is needed"} in schema  # fmt: skip


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("ttftp95", "ttftP95"),
        ("ttft_p95", "ttftP95"),
        ("ttftP99", "ttftP95"),
        ("Automatic", "Auto"),
        ("quality", None),
        ("", None),
    ],
)
def test_a_near_spelling_is_recognized(word: str, want: str | None) -> None:
    assert closest(word, ["ttftP95", "Auto", "tokensPerSecondPerUser"]) == want


def test_a_problem_is_one_line_with_place_owner_field_value_and_cure() -> None:
    problem = Problem("do that", "spec.a", "5", "Kind/name", "a.yaml", 7)

    assert str(problem) == "a.yaml:7: Kind/name: spec.a is 5: do that"
    assert str(Problem("is empty", file="a.yaml")) == "a.yaml: is empty"


def test_a_problem_shows_control_characters_instead_of_obeying_them() -> None:
    assert str(Problem("no", "a\n\x1b[2Jb")) == r"a\n\x1b[2Jb: no"


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ValidationError) as caught:
        Whole.from_manifest({"name": "a", "left": "x", "mode": "F" * 500})
    ((_, value, _),) = explain(caught.value, Whole)

    assert value is not None
    assert len(value) == 60
