"""A structural schema says what the model says, and nothing that an API server would refuse."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, create_model

from slotune.api.forms import Form, Items, Properties
from slotune.api.model import Model, OpenModel, StatusModel
from slotune.api.rules import Rule, immutable, needs
from slotune.api.structural import NotStructuralError, structural_schema
from tests.api.structural_check import nodes, refusals, shape_errors


class Part(Model):
    """A part of it. It has a size."""

    size: Annotated[int, Field(ge=1, lt=10)]
    """How large
    it is."""
    weight: Annotated[int, Field(gt=0)] | None = None
    """How heavy it is."""

    RULES: ClassVar[tuple[Rule, ...]] = (needs("weight", "size", "weight goes with size"),)
    TRANSITIONS = (immutable("it is what it is"),)


class Open(OpenModel):
    """Somebody else's."""

    name: Annotated[str, Field(max_length=8)]
    """Its name."""
    note: Annotated[str, Field(max_length=8)] | None = None
    """A note."""


class Whole(Model):
    """All of it."""

    kind: Literal["Whole"] = "Whole"
    """What it is."""
    mode: Literal["On", "Out"] = "On"
    """How it is."""
    part: Part | None = None
    """The part."""
    open: Open | None = None
    """The open part."""
    tags: Annotated[tuple[str, ...], Items(most=3, distinct=True)] = ()
    """Words."""
    labels: Annotated[dict[str, Annotated[str, Field(max_length=5)]], Properties(2)] = Field(default_factory=dict)
    """Words by word."""


class Word(StatusModel):
    """A word with its count."""

    word: Annotated[str, Form("^[a-z]+$", "a word", 5)]
    """The word."""
    state: Literal["Good", "Bad"]
    """Whether it is good."""


class Words(StatusModel):
    """Words."""

    words: Annotated[tuple[Word, ...], Items(most=3, least=1, key="word")]
    """The words."""


def properties(model: type[Model], **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = structural_schema(model, **options)["properties"]
    return found


def test_references_null_titles_and_constants_are_gone() -> None:
    schema = structural_schema(Whole)

    assert shape_errors(schema) == []
    assert schema["properties"]["kind"] == {"description": "What it is.", "type": "string", "enum": ["Whole"]}
    assert schema["properties"]["part"]["type"] == "object"
    assert "required" not in schema


def test_bounds_are_inclusive_or_marked() -> None:
    size, weight = properties(Part)["size"], properties(Part)["weight"]

    assert size == {
        "description": "How large it is.",
        "type": "integer",
        "format": "int32",
        "minimum": 1,
        "maximum": 10,
        "exclusiveMaximum": True,
    }
    assert (weight["minimum"], weight["exclusiveMinimum"], weight["format"]) == (0, True, "int64")


def test_rules_of_both_kinds_are_there_with_the_field_to_blame() -> None:
    assert structural_schema(Part)["x-kubernetes-validations"] == [
        {"rule": "!has(self.weight) || has(self.size)", "message": "weight goes with size", "fieldPath": ".weight"},
        {"rule": "self == oldSelf", "message": "it is what it is"},
    ]


@pytest.mark.parametrize(
    ("field", "kind", "want"),
    [
        pytest.param("The part.", "A part of it. It has a size.", "The part. A part of it. It has a size.", id="both"),
        pytest.param("A part.", "A part, of it.", "A part, of it.", id="the type's goes on where the field's ends"),
        pytest.param("The part of today.", "A part.", "The part of today.", id="the type's says nothing more"),
    ],
)
def test_words_about_the_type_are_kept_when_they_say_more(field: str, kind: str, want: str) -> None:
    inner = create_model("Inner", __base__=Model, __doc__=kind, size=(bool, ...))
    outer = create_model("Outer", __base__=Model, part=(inner, Field(description=field)))

    assert properties(outer)["part"]["description"] == want


def test_no_default_is_there_but_a_frozen_one() -> None:
    assert [path for path, node in nodes(structural_schema(Whole)) if "default" in node] == []
    assert properties(Whole, frozen={"mode"})["mode"]["default"] == "On"


def test_the_way_to_a_frozen_default_has_one_too() -> None:
    class Outer(Model):
        whole: Whole = Whole()
        needed: Whole

    schema = properties(Outer, frozen={"whole.mode"})

    assert schema["whole"]["default"] == {}
    assert schema["whole"]["properties"]["mode"]["default"] == "On"
    assert "default" not in schema["needed"]["properties"]["mode"]


def test_a_default_that_is_not_there_can_t_be_frozen() -> None:
    with pytest.raises(AssertionError, match="can't be frozen"):
        structural_schema(Whole, frozen={"part.size"})


def test_null_is_allowed_in_what_is_somebody_else_s() -> None:
    schema = properties(Whole)["open"]

    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    assert schema["properties"]["note"]["nullable"] is True
    assert "nullable" not in schema["properties"]["name"]
    assert [path for path, node in nodes(structural_schema(Part)) if "nullable" in node] == []


def test_a_status_takes_what_another_version_writes() -> None:
    words = properties(Words, lenient=lambda path: True)["words"]

    assert "minItems" not in words
    assert words["maxItems"] == 3
    assert words["items"]["required"] == ["word"]  # the key of the list
    assert words["items"]["x-kubernetes-preserve-unknown-fields"] is True
    assert words["items"]["properties"] == {
        "word": {"description": "The word.", "type": "string", "maxLength": 5},
        "state": {
            "description": "Whether it is good. One of Good, Bad; other versions may write others.",
            "type": "string",
            "maxLength": 64,
        },
    }


@pytest.mark.parametrize(
    ("annotation", "telling"),
    [
        pytest.param(int | str, "a choice between several types", id="int or text"),
        pytest.param(dict[str, Any], "any fields", id="anything at all"),
        pytest.param(Any, "without a type", id="no type"),
        pytest.param(tuple[int, str], "prefixItems", id="a pair"),
        pytest.param(frozenset[int], "uniqueItems", id="a set of Python's"),
        pytest.param(Annotated[int, Field(multiple_of=256)], "multipleOf", id="a bound that nothing here translates"),
    ],
)
def test_what_can_t_be_said_is_an_error_with_its_path(annotation: Any, telling: str) -> None:
    inner = create_model("Inner", __base__=Model, odd=(annotation, ...))
    outer = create_model("Outer", __base__=Model, inner=(inner, ...))

    with pytest.raises(NotStructuralError, match=telling) as caught:
        structural_schema(outer)

    assert caught.value.path == "inner.odd"


def test_the_model_s_own_schema_is_left_as_it_was() -> None:
    before = Whole.model_json_schema()
    structural_schema(Whole, frozen={"mode"}, lenient=lambda path: True)

    assert Whole.model_json_schema() == before


LEAVES: list[Any] = [
    bool,
    Annotated[int, Field(ge=-3, lt=4)],
    Annotated[str, Field(max_length=4)],
    Annotated[str, Form("^[a-c]*$", "letters", 3)],
    Literal["a", "bb"],
]


@st.composite
def models(draw: st.DrawFn, depth: int = 2) -> type[Model]:
    """A model of a few fields: each a leaf, a list, a map or another model, some of them optional."""
    fields: dict[str, Any] = {}
    for index in range(draw(st.integers(1, 4))):
        inner: Any = draw(st.sampled_from(LEAVES))
        if depth and draw(st.booleans()):
            inner = draw(models(depth=depth - 1))
        match draw(st.integers(0, 3)):
            case 0:
                inner = Annotated[tuple[inner, ...], Items(most=2, least=draw(st.integers(0, 1)))]
            case 1:
                inner = Annotated[dict[str, inner], Properties(2)]
        fields[f"field_{index}"] = (inner | None, None) if draw(st.booleans()) else (inner, ...)
    return create_model("Drawn", __base__=Model, **fields)


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 5), st.sampled_from(["", "a", "bb", "abcd", "zzzzz"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([f"field{i}" for i in range(4)]), inner, max_size=4),
    ),
    max_leaves=8,
)


@given(st.data())
def test_schema_and_model_take_and_refuse_the_same_values(data: st.DataObject) -> None:
    model = data.draw(models())
    schema = structural_schema(model)
    assert shape_errors(schema) == []
    value = data.draw(likely(schema) | VALUES)

    try:
        model.from_manifest(value)
        accepted = True
    except ValidationError:
        accepted = False

    assert accepted == (not list(refusals(schema, value)))


def likely(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that have the schema's shape, most of them right."""
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "string":
            return st.sampled_from([*schema.get("enum", ()), "a", "abc", "d", "abcde"])
        case "array":
            return st.lists(likely(schema["items"]), max_size=schema["maxItems"])
        case _ if "additionalProperties" in schema:
            return st.dictionaries(st.sampled_from("abc"), likely(schema["additionalProperties"]), max_size=3)
    required = set(schema.get("required", ()))
    fields = {name: likely(inner) for name, inner in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: inner for name, inner in fields.items() if name in required},
        optional={name: inner for name, inner in fields.items() if name not in required},
    )
