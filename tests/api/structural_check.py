"""What an API server would say of a value by the schema alone: a plain reading of structural schemas, without CEL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ALLOWED = {
    "description",
    "type",
    "format",
    "nullable",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "default",
    "minItems",
    "maxItems",
    "maxProperties",
    "items",
    "properties",
    "additionalProperties",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}
"""Of all that ``JSONSchemaProps`` has, the part that may stand anywhere in a structural schema."""

_TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of the schema and of everything below it."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def shape_errors(schema: dict[str, Any]) -> list[str]:
    """Everything for which an API server would refuse the schema itself."""
    errors = []
    for path, node in nodes(schema):
        errors += [f"{path}: {key}" for key in sorted(node.keys() - ALLOWED)]
        errors += [f"{path}: type {node.get('type')}"] * (node.get("type") not in _TYPES)
        errors += [f"{path}: properties and additionalProperties"] * (
            {"properties", "additionalProperties"} <= node.keys()
        )
        errors += [f"{path}: items"] * ((node.get("type") == "array") != ("items" in node))
        errors += [f"{path}: {name} is required and unknown" for name in set(node.get("required", ())) - _names(node)]
        errors += [f"{path}: null default"] * ("default" in node and node["default"] is None)
        keys = set(node.get("x-kubernetes-list-map-keys", ()))
        if keys - set(node.get("items", {}).get("required", ())):
            errors.append(f"{path}: a key of the list is not required")
        if ("maxItems" not in node) and node.get("type") == "array":
            errors.append(f"{path}: a list without a bound")
        if "pattern" in node:
            re.compile(node["pattern"])
    return errors


def refusals(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields that the schema refuses."""
    if value is None and schema.get("nullable"):
        return
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, _TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield path
        return
    if not _fits(schema, value):
        yield path
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from refusals(schema["items"], item, f"{path}[{index}]")
    if isinstance(value, dict):
        yield from _refused_fields(schema, value, path)


def _names(node: dict[str, Any]) -> set[str]:
    return set(node.get("properties", {}))


def _fits(schema: dict[str, Any], value: Any) -> bool:
    size = len(value) if isinstance(value, str | list | dict) else 0
    low = schema.get("minLength", schema.get("minItems", 0))
    high = schema.get("maxLength", schema.get("maxItems", schema.get("maxProperties", size)))
    return (
        low <= size <= high
        and ("enum" not in schema or value in schema["enum"])
        and ("pattern" not in schema or re.fullmatch(schema["pattern"], value, re.ASCII) is not None)
        and ("minimum" not in schema or value >= schema["minimum"] + schema.get("exclusiveMinimum", False))
        and ("maximum" not in schema or value <= schema["maximum"] - schema.get("exclusiveMaximum", False))
        and _distinct(schema, value)
    )


def _distinct(schema: dict[str, Any], value: Any) -> bool:
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return len({(type(item), item) for item in value}) == len(value)
        case "map":
            (key,) = schema["x-kubernetes-list-map-keys"]
            named = [item[key] for item in value if isinstance(item, dict) and key in item]
            return len(set(named)) == len(named)
    return True


def _refused_fields(schema: dict[str, Any], value: dict[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}"
    for name, inner in value.items():
        if name in schema.get("properties", {}):
            yield from refusals(schema["properties"][name], inner, f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from refusals(schema["additionalProperties"], inner, f"{path}.{name}")
        elif not schema.get("x-kubernetes-preserve-unknown-fields") and _names(schema):
            yield f"{path}.{name}"
