"""From pydantic's JSON schema to the structural schema that a CRD must have.

Pydantic writes references, ``anyOf`` with null, titles and ``const``; the API server takes none of them. What comes in
is checked against a list of what is understood, and the rest is an error: a key that was passed on unseen would be
refused by a cluster months later, and one that was dropped unseen would be a bound that nobody keeps.

A status is described with less force than a spec. Operators of other versions write it too, and an object whose status
the schema refuses could not even be edited by its user. So a status keeps types, lengths and list keys, loses
enumerations, patterns and required fields, and may have fields that the schema does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

from slotune.api.model import Model

__all__ = ["NotStructuralError", "structural_schema"]

Schema = dict[str, Any]

_KEPT: Final = (
    "description",
    "type",
    "nullable",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "default",
    "minItems",
    "maxItems",
    "items",
    "maxProperties",
    "additionalProperties",
    "properties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
)
"""All that a schema of ours may say, in the order in which people read it."""
_DROPPED: Final = frozenset({"title", "$defs"})
_RULE_KEYS: Final = ("rule", "message", "fieldPath")
_INT32: Final = 2**31 - 1
_LONGEST_WORD: Final = 64
"""Characters of a word in a status, where a newer slotune may know more words."""


class NotStructuralError(TypeError):
    """A model says something that no structural schema can say. ``path`` is the field, from the model's top."""

    def __init__(self, path: str, what: str) -> None:
        self.path = path
        self.what = what
        super().__init__(
            f"{path or 'the model itself'}: {what} can't be said in a CRD: express it with a Form or a Rule"
        )


def structural_schema(
    model: type[Model], *, frozen: Set[str] = frozenset(), lenient: Callable[[str], bool] = lambda path: False
) -> Schema:
    """The structural schema of ``model``, for ``openAPIV3Schema`` or a part of it.

    ``frozen`` has dotted paths of fields whose default the API server shall write into the object; all other defaults
    are left to the reader. ``lenient`` says whether the field at a dotted path belongs to a status. Raises
    :class:`NotStructuralError`.
    """
    schema = model.model_json_schema(by_alias=True)
    translated = _Translation(schema.get("$defs", {}), frozen, lenient).node(schema, "")
    assert frozen <= _with_default(translated), "a field that is not there, or has no default, can't be frozen"
    return translated


def _with_default(node: Schema, path: str = "") -> set[str]:
    found = {path} if "default" in node else set()
    for name, inner in node.get("properties", {}).items():
        found |= _with_default(inner, f"{path}.{name}" if path else name)
    return found


class _Translation:
    """One run over one model's schema. Nothing is written back into the schema that came in."""

    def __init__(self, definitions: Mapping[str, Schema], frozen: Set[str], lenient: Callable[[str], bool]) -> None:
        self.definitions = definitions
        self.frozen = frozen
        self.lenient = lenient

    def node(self, schema: Schema, path: str) -> Schema:
        schema = self._inlined(schema, path)
        schema |= self._default(schema.pop("default", None), path)
        if "description" in schema:
            schema["description"] = _unwrapped(schema["description"])
        if rules := schema.get("x-kubernetes-validations"):
            schema["x-kubernetes-validations"] = [_ordered(rule, _RULE_KEYS) for rule in rules]
        if schema["type"] == "integer":
            schema["format"] = "int32" if schema.get("maximum", _INT32 + 1) <= _INT32 else "int64"
        schema |= self._below(schema, path)
        if self.lenient(path):
            schema = _softened(schema)
        return _ordered(schema, _KEPT)

    def _below(self, schema: Schema, path: str) -> Schema:
        """Properties, items and values of a map, translated."""
        below: Schema = {}
        if "properties" in schema:
            inner = schema["properties"].items()
            below["properties"] = {name: self.node(part, f"{path}.{name}" if path else name) for name, part in inner}
            if schema.get("x-kubernetes-preserve-unknown-fields"):  # in others' types null is the same as absent
                for name in schema["properties"].keys() - set(schema.get("required", ())):
                    below["properties"][name] = {"nullable": True} | below["properties"][name]
        if "items" in schema:
            below["items"] = self.node(schema["items"], f"{path}[]")
        if "additionalProperties" in schema:
            below["additionalProperties"] = self.node(schema["additionalProperties"], f"{path}{{}}")
        return below

    def _inlined(self, schema: Schema, path: str) -> Schema:
        """One schema with a type, and with nothing in it that has another name in a CRD."""
        schema = self._resolved(schema, path)
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if exclusive in schema:
                schema |= {bound: schema[exclusive], exclusive: True}
        if isinstance(extra := schema.get("additionalProperties"), bool):  # closed is how the API server takes it
            if extra and not schema.get("x-kubernetes-preserve-unknown-fields"):
                raise NotStructuralError(path, "an object with any fields and no x-kubernetes-preserve-unknown-fields")
            del schema["additionalProperties"]
        unknown = schema.keys() - set(_KEPT) - _DROPPED
        if unknown or "type" not in schema:
            raise NotStructuralError(path, ", ".join(sorted(unknown)) or "a field without a type")
        return schema

    def _resolved(self, schema: Schema, path: str) -> Schema:
        """Without references, and without the null of an optional field: a CRD says by absence that it is not there."""
        schema = dict(schema)
        if "anyOf" in schema:
            options = [option for option in schema.pop("anyOf") if option.get("type") != "null"]
            if len(options) != 1:
                raise NotStructuralError(path, "a choice between several types")
            schema = _over(self._resolved(options[0], path), schema)
        if "$ref" in schema:
            schema = _over(self._resolved(self.definitions[schema.pop("$ref").rpartition("/")[2]], path), schema)
        return schema

    def _default(self, default: Any, path: str) -> Schema:
        """The default itself where it is frozen; an empty object on the way there, or it would never be looked at."""
        if path in self.frozen and default is not None:
            return {"default": default}
        if default is not None and path and any(inner.startswith(f"{path}.") for inner in self.frozen):
            return {"default": {}}
        return {}


def _softened(schema: Schema) -> Schema:
    """The same for a status: what an operator of another version writes must not be refused."""
    words = schema.pop("enum", None)
    if words:
        known = f"One of {', '.join(words)}; other versions may write others."
        schema |= {"maxLength": _LONGEST_WORD, "description": f"{schema.get('description', '')} {known}".strip()}
    schema.pop("pattern", None)
    schema.pop("x-kubernetes-validations", None)
    schema.pop("minItems", None)
    schema.pop("required", None)
    if "properties" in schema:  # or server-side apply of a field that is not in the schema would be refused as a whole
        schema["x-kubernetes-preserve-unknown-fields"] = True
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys and "required" not in schema["items"]:  # two entries could not be told apart without
        schema["items"]["required"] = keys
    return schema


def _over(inner: Schema, outer: Schema) -> Schema:
    """What ``outer`` says about a field added to what ``inner`` says about its type.

    Of the type's description, what goes beyond the field's is kept: when it goes on where the field's ends, or has
    sentences to spare.
    """
    field, kind = _unwrapped(outer.get("description", "")), _unwrapped(inner.get("description", ""))
    if kind.startswith(field.removesuffix(".")):
        outer = outer | {"description": kind}
    elif ". " in kind:
        outer = outer | {"description": f"{field} {kind}"}
    return inner | outer


def _ordered(schema: Schema, keys: tuple[str, ...]) -> Schema:
    return {key: schema[key] for key in keys if key in schema}


def _unwrapped(text: str) -> str:
    """Without the line breaks that a docstring has for its own sake."""
    return " ".join(text.split())
