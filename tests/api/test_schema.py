"""The models can become CRDs: bounded, described, without floats, with every rule stated for the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import slotune.api.v1alpha1 as api
from slotune.api.model import Model
from slotune.api.problems import model_within
from slotune.api.v1alpha1 import KINDS, GPUClass, LlamaDeployment, LlamaTrial, LlamaWorkload

FORBIDDEN = {"uniqueItems", "patternProperties", "prefixItems", "oneOf", "allOf", "not", "discriminator", "const"}


def nodes(schema: Any, definitions: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of every field below, references followed, null dropped from optional ones."""
    if "$ref" in schema:
        described = {key: value for key, value in schema.items() if key != "$ref"}
        schema = definitions[schema["$ref"].rpartition("/")[2]] | described
    if "anyOf" in schema:
        (inner,) = [option for option in schema["anyOf"] if option != {"type": "null"}]
        yield from nodes({key: value for key, value in schema.items() if key != "anyOf"} | inner, definitions, path)
        return
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, definitions, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], definitions, f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], definitions, f"{path}{{}}")


def own_nodes(kind: type[Model]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Without what the API server or Kubernetes' own types say: versions, metadata and the rest of a pod."""
    schema = kind.model_json_schema()
    for path, node in nodes(schema, schema.get("$defs", {})):
        if path.startswith((".spec", ".status")) and not path.startswith(".spec.template.metadata"):
            yield path, node


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_string_list_and_map_is_bounded(kind: type[Model]) -> None:
    for path, node in own_nodes(kind):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node or "const" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path
        if node.get("type") == "object" and "properties" not in node:
            assert "maxProperties" in node, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_there_are_no_floats_and_integers_of_a_spec_have_both_bounds(kind: type[Model]) -> None:
    for path, node in own_nodes(kind):
        assert node.get("type") != "number", path
        if node.get("type") == "integer" and path.startswith(".spec"):
            assert {"minimum", "maximum"} <= node.keys(), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_described_in_a_sentence(kind: type[Model]) -> None:
    for path, node in own_nodes(kind):
        if not path.endswith(("[]", "{}")):
            assert node.get("description", "").endswith((".", '"')), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_names_are_camel_case_and_so_are_words_to_choose_from(kind: type[Model]) -> None:
    of_llama_server = {"f16", "q8_0", "q4_0", "none"}
    for path, node in own_nodes(kind):
        assert re.fullmatch(r"[a-z][A-Za-z0-9]*(\[\]|\{\})*", path.rpartition(".")[2]), path
        words = node.get("enum", [])
        if words and not of_llama_server & set(words):
            assert all(re.fullmatch(r"[A-Z][A-Za-z0-9]*|apps/v1", word) for word in words), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_is_used_that_no_structural_schema_can_have(kind: type[Model]) -> None:
    for path, node in own_nodes(kind):
        assert not (FORBIDDEN - {"const"}) & node.keys(), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_patterns_are_plain_enough_for_go(kind: type[Model]) -> None:
    for path, node in own_nodes(kind):
        pattern = node.get("pattern", "")
        assert not re.search(r"\(\?[=!<]|\\[1-9dwsb]", pattern), path
        assert not pattern or pattern.startswith("^"), path


def models(model: type[Model], seen: set[type[Model]]) -> set[type[Model]]:
    seen.add(model)
    for field in model.model_fields.values():
        inner = model_within(field.annotation)
        if inner is not None and inner not in seen:
            models(inner, seen)
    return seen


def test_every_rule_has_words_and_reads_fields_that_exist() -> None:
    for kind in KINDS:
        for model in models(kind, set()):
            for rule in model.RULES:
                assert rule.message
                assert set(rule.reads) <= model.model_fields.keys(), (model, rule.message)
                aliases = {str(field.alias) for field in model.model_fields.values()}
                named = set(re.findall(r"\bself\.(\w+)", rule.cel or ""))
                assert named <= aliases, (model, rule.cel)


def test_only_three_rules_are_beyond_cel() -> None:
    beyond = [rule.message for model in models(LlamaDeployment, set()) for rule in model.RULES if rule.cel is None]

    assert len(beyond) == 3
    assert any("maxDowntime" in message for message in beyond)
    assert any("Pass" in message for message in beyond)


def test_kinds_have_the_names_that_people_type() -> None:
    assert [(kind.INFO.plural, kind.INFO.short_name, kind.INFO.namespaced) for kind in KINDS] == [
        ("llamadeployments", "lld", True),
        ("llamatrials", "llt", True),
        ("llamaworkloads", "llw", True),
        ("gpuclasses", "gpc", False),
    ]


def test_kubectl_get_shows_what_people_ask_first() -> None:
    shown = [column.name for column in LlamaDeployment.INFO.columns if column.priority == 0]

    assert shown == ["GPU", "Replicas", "TTFT-p95", "Tok/s", "$/month", "SLO", "Phase", "Age"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_columns_point_at_fields_that_exist(
    kind: type[GPUClass | LlamaDeployment | LlamaTrial | LlamaWorkload],
) -> None:
    known = {path for path, _ in own_nodes(kind)} | {".metadata.creationTimestamp"}
    for column in kind.INFO.columns:
        if "[?(" not in column.json_path:
            assert column.json_path in known


def test_public_names() -> None:
    assert {"LlamaDeployment", "LlamaTrial", "LlamaWorkload", "GPUClass", "KINDS", "API_VERSION"} <= set(api.__all__)
    for model in models(LlamaDeployment, models(LlamaTrial, models(LlamaWorkload, models(GPUClass, set())))):
        assert model.__name__ in api.__all__
