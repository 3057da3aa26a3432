"""What is wrong with a manifest, in the words of the person who wrote it: where, what stands there, what to do.

Pydantic says "Input should be a valid string". A person needs the line, the field as YAML spells it, and the cure
("write it in quotes"). Values are shown only where they can't be a prompt or a secret.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from slotune.api.model import Location, Model

__all__ = ["InvalidManifest", "Location", "Problem", "closest", "explain", "field_path", "model_within", "owner_of"]

_LONGEST_VALUE: Final = 60
_PRIVATE: Final = frozenset(
    {"prompts", "env", "args", "command", "data", "stringData", "binaryData", "annotations", "url"}
)
"""Below these keys a value may be a prompt or a secret, so it is never shown."""
_YAML_BOOLEANS: Final = "yes, no, on and off without quotes are booleans in YAML"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right."""

    cure: str
    """What is wrong and what to do, in words."""
    field: str = ""
    """As YAML spells it, e.g. ``spec.slo.ttftP95``; empty when the whole document or file is at fault."""
    value: str | None = None
    """What stands there; None when nothing does, or when it may be a prompt or a secret."""
    owner: str = ""
    """``Kind/name`` of the object."""
    file: str = ""
    line: int | None = None
    """From 1; None when it is not known."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        shown = "" if self.value is None else f" is {self.value}"
        parts = (place, self.owner, f"{self.field}{shown}", self.cure)
        return _printable(": ".join(part for part in parts if part))


class InvalidManifest(ValueError):  # noqa: N818 - it names the manifest, not an accident
    """Manifests that can't be used. It carries every problem, so that one edit can put all of them right."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        assert problems
        self.problems = problems
        lines = [str(problem) for problem in problems]
        super().__init__("\n".join(lines if len(lines) == 1 else [f"{len(lines)} problems:", *lines]))


def _printable(text: str) -> str:
    """On one line and without control characters: a field's name may be anything, and terminals obey escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def field_path(location: Location) -> str:
    """``("spec", "models", 0, "name")`` as ``spec.models[0].name``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def closest(word: str, known: typing.Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its case; None when none is near."""
    by_folded = {name.casefold(): name for name in known}
    folded = word.casefold().replace("_", "")
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.7)
    found += [name for name in by_folded if len(name) > 2 and folded.startswith(name)]
    return by_folded[found[0]] if found else None


def explain(error: ValidationError, root: type[Model]) -> Iterator[tuple[Location, str | None, str]]:
    """(location, value to show, cure) of each problem that ``root.from_manifest`` found."""
    for details in error.errors(include_url=False):
        location: Location = details["loc"]
        yield location, _shown(details), _cure(details, root)


def _is_private(details: ErrorDetails) -> bool:
    return not _PRIVATE.isdisjoint(part for part in details["loc"] if isinstance(part, str))


def _shown(details: ErrorDetails) -> str | None:
    if details["type"] in {"missing", "extra_forbidden"} or details["input"] is None:
        return str(details.get("ctx", {}).get("shown") or "") or None
    value = details["input"]
    if _is_private(details) or not isinstance(value, str | int | float):
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _cure(details: ErrorDetails, root: type[Model]) -> str:
    kind, value = details["type"], details["input"]
    if kind == "extra_forbidden":
        return _unknown_field(root, details["loc"])
    if value is None and kind in _CURES:
        return "is empty: give it a value, or remove the line"
    if kind == "string_type" and _is_private(details):
        return "must be text: write it in quotes"
    return _CURES[kind](value, details.get("ctx", {})) if kind in _CURES else details["msg"]


def _not_a_string(value: Any) -> str:
    if isinstance(value, bool):
        return f"must be text, in quotes ({_YAML_BOOLEANS})"
    if isinstance(value, int | float):
        return f'must be text, so that it stays exact: write it in quotes, "{value}"'
    return "must be text, not a list or a mapping"


def _not_in_enum(value: Any, expected: str) -> str:
    choices = [choice.strip("'") for choice in expected.replace(" or ", ", ").split(", ")]
    allowed = f"must be {choices[0]}" if len(choices) == 1 else f"must be one of {', '.join(choices)}"
    if isinstance(value, bool):
        spelled = next((f'"{choice}"' for choice in choices if choice.casefold() in _SPELLINGS[value]), "the word")
        return f"{allowed}: write {spelled} in quotes ({_YAML_BOOLEANS})"
    meant = closest(str(value), choices)
    return f"{allowed}: did you mean {meant}?" if meant else allowed


def _not_a_number(value: Any) -> str:
    quoted = isinstance(value, str) and value.strip().lstrip("-").isdigit()
    return "must be a whole number" + (": remove the quotes" if quoted else "")


_SPELLINGS: Final = {True: {"yes", "on", "true"}, False: {"no", "off", "false"}}

_NOT_A_MAPPING: Final = "must be a mapping: its fields on lines of their own, indented"

_CURES: Final[Mapping[str, Callable[[Any, dict[str, Any]], str]]] = {
    "missing": lambda *_: "is required: add it",
    "string_type": lambda value, _: _not_a_string(value),
    "literal_error": lambda value, limits: _not_in_enum(value, limits["expected"]),
    "int_type": lambda value, _: _not_a_number(value),
    "int_from_float": lambda value, _: _not_a_number(value),
    "bool_type": lambda value, _: "must be true or false" + (", without quotes" if isinstance(value, str) else ""),
    "greater_than_equal": lambda _, limits: f"must be at least {limits['ge']}",
    "less_than_equal": lambda _, limits: f"must be at most {limits['le']}",
    "too_long": lambda _, limits: f"has {limits['actual_length']} entries, at most {limits['max_length']} are allowed",
    "string_too_long": lambda _, limits: f"has more than {limits['max_length']} characters",
    "string_too_short": lambda *_: "must not be empty",
    "tuple_type": lambda *_: "must be a list: one entry per line, each after a dash",
    "model_type": lambda *_: _NOT_A_MAPPING,
    "dict_type": lambda *_: _NOT_A_MAPPING,
}
"""What to do about each kind of error that pydantic finds; given the value and the error's own limits."""


def _unknown_field(root: type[Model], location: Location) -> str:
    """Names the field that was meant: a near spelling here, the same name elsewhere, or all that may stand here."""
    word = str(location[-1])
    here = _model_at(root, location[:-1])
    if here is None:
        return "unknown field"
    known = [str(field.alias) for field in here.model_fields.values()]
    if meant := closest(word, known):
        return f"unknown field: did you mean {meant}?"
    places = [field_path(place) for place in _places(root, word)]
    if places:
        return f"unknown field here: it belongs at {' or '.join(places[:3])}"
    return f"unknown field: {', '.join(sorted(known))} may stand here"


def _model_at(root: type[Model], location: Location) -> type[Model] | None:
    model: type[Model] | None = root
    for part in location:
        if isinstance(part, str):
            fields = {} if model is None else {field.alias: field for field in model.model_fields.values()}
            model = model_within(fields[part].annotation) if part in fields else None
    return model


def model_within(annotation: Any) -> type[Model] | None:
    """The model in ``X``, ``X | None``, ``tuple[X, ...]`` or any of them annotated."""
    if (
        isinstance(annotation, type)
        and not isinstance(annotation, types.GenericAlias)
        and issubclass(annotation, Model)
    ):
        return annotation
    return next((found for inner in typing.get_args(annotation) if (found := model_within(inner))), None)


def _places(model: type[Model], word: str, above: Location = (), depth: int = 8) -> Iterator[Location]:
    """Where a field of this name stands, status excepted: users do not write one."""
    for field in model.model_fields.values():
        name = str(field.alias)
        if name == word:
            yield (*above, name)
        inner = model_within(field.annotation)
        if inner is not None and depth and name not in {"status", "metadata", "template"}:
            yield from _places(inner, word, (*above, name), depth - 1)


def owner_of(data: Mapping[str, Any]) -> str:
    """``Kind/name`` of a parsed document, as far as it says so."""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return "/".join(str(part) for part in (data.get("kind"), name) if part)
