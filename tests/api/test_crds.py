"""The CRDs are those of the models: checked in, complete, and of the shape that an API server takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slotune.api.crds import custom_resource_definition, file_name, write_crd
from slotune.api.documents import read_documents
from slotune.api.v1alpha1 import KINDS, GPUClass, LlamaDeployment, LlamaTrial
from slotune.api.v1alpha1.meta import Resource
from tests.api.structural_check import nodes, refusals, shape_errors
from tests.api.test_corpus import files, problems
from tests.api.test_schema import models

FOLDER = Path(__file__).parent.parent.parent / "crds"
OF_EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def version(kind: type[Resource]) -> dict[str, Any]:
    (only,) = custom_resource_definition(kind)["spec"]["versions"]
    found: dict[str, Any] = only
    return found


def schema(kind: type[Resource]) -> dict[str, Any]:
    found: dict[str, Any] = version(kind)["schema"]["openAPIV3Schema"]
    return found


@OF_EVERY_KIND
def test_what_is_checked_in_is_what_the_models_say(kind: type[Resource]) -> None:
    assert (FOLDER / file_name(kind)).read_text() == write_crd(kind), "run `make crds`"


def test_nothing_else_is_checked_in() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {file_name(kind) for kind in KINDS}


@OF_EVERY_KIND
def test_the_file_reads_back_as_the_object(kind: type[Resource]) -> None:
    documents, found = read_documents("crd.yaml", write_crd(kind).encode())

    assert found == []
    assert [document.data for document in documents] == [custom_resource_definition(kind)]


@OF_EVERY_KIND
def test_the_schema_is_structural(kind: type[Resource]) -> None:
    assert shape_errors(schema(kind)) == []


@OF_EVERY_KIND
def test_metadata_is_left_to_the_api_server(kind: type[Resource]) -> None:
    metadata = schema(kind)["properties"]["metadata"]

    assert metadata["type"] == "object"
    assert metadata.get("properties", {}).keys() <= {"name"}


@OF_EVERY_KIND
def test_every_field_of_ours_is_described(kind: type[Resource]) -> None:
    silent = [
        path
        for path, node in nodes(schema(kind))
        if not path.endswith(("[]", "{}")) and not path.startswith(".metadata") and not node.get("description")
    ]

    assert silent == []


@OF_EVERY_KIND
def test_every_rule_that_cel_can_say_is_there(kind: type[Resource]) -> None:
    said = {rule["message"] for _, node in nodes(schema(kind)) for rule in node.get("x-kubernetes-validations", ())}

    for model in models(kind, set()):
        for rule in (*model.RULES, *model.TRANSITIONS):
            assert rule.cel is None or rule.message in said


@OF_EVERY_KIND
def test_a_rule_reads_no_number_of_a_text_that_may_be_none(kind: type[Resource]) -> None:
    """Beside the pattern's own refusal the API server would tell of a conversion that failed."""
    rules = [rule["rule"] for _, node in nodes(schema(kind)) for rule in node.get("x-kubernetes-validations", ())]
    converting = [rule for rule in rules if re.search(r"\b(duration|double|quantity|int)\((?!')", rule)]
    assert converting
    assert [rule for rule in converting if not (rule.startswith("!") and ".matches(r'" in rule)] == []


@OF_EVERY_KIND
def test_a_rule_blames_a_field_that_exists(kind: type[Resource]) -> None:
    every = dict(nodes(schema(kind)))
    for path, node in every.items():
        for rule in node.get("x-kubernetes-validations", ()):
            assert path + rule.get("fieldPath", "") in every


def test_only_what_may_be_done_to_production_is_written_into_the_object() -> None:
    defaults = {
        (kind.INFO.kind, path): node["default"]
        for kind in KINDS
        for path, node in nodes(schema(kind))
        if "default" in node
    }

    assert defaults == {
        ("LlamaDeployment", ".spec.rollout"): {},
        ("LlamaDeployment", ".spec.rollout.mode"): "Recommend",
    }


@OF_EVERY_KIND
def test_a_status_has_no_words_that_a_newer_version_could_not_write(kind: type[Resource]) -> None:
    for path, node in nodes(schema(kind)["properties"]["status"]):
        if not path.startswith(".conditions[]"):
            assert not {"enum", "pattern", "x-kubernetes-validations"} & node.keys(), path
            assert set(node.get("required", ())) <= {"type", "code"}, path


def test_conditions_are_those_of_kubernetes() -> None:
    conditions = schema(GPUClass)["properties"]["status"]["properties"]["conditions"]

    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert conditions["items"]["required"] == ["type", "status", "lastTransitionTime", "reason"]
    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


def test_a_pod_template_keeps_what_slotune_does_not_read() -> None:
    every = dict(nodes(schema(LlamaDeployment)))
    template = ".spec.template"

    for path in (template, f"{template}.metadata", f"{template}.spec", f"{template}.spec.containers[]"):
        assert every[path]["x-kubernetes-preserve-unknown-fields"] is True
    assert every[f"{template}.spec.containers"]["x-kubernetes-list-map-keys"] == ["name"]


def test_a_trial_can_t_be_changed() -> None:
    assert "self == oldSelf" in {
        rule["rule"] for rule in schema(LlamaTrial)["properties"]["spec"]["x-kubernetes-validations"]
    }


def test_the_names_that_people_type() -> None:
    assert {kind.INFO.kind: custom_resource_definition(kind)["spec"]["names"] for kind in KINDS} == {
        kind: {
            "kind": kind,
            "listKind": f"{kind}List",
            "plural": plural,
            "singular": kind.lower(),
            "shortNames": [short],
            "categories": ["slotune"],
        }
        for kind, plural, short in [
            ("LlamaDeployment", "llamadeployments", "lld"),
            ("LlamaTrial", "llamatrials", "llt"),
            ("LlamaWorkload", "llamaworkloads", "llw"),
            ("GPUClass", "gpuclasses", "gpc"),
        ]
    }


def test_the_columns_of_kubectl_get() -> None:
    columns = version(LlamaDeployment)["additionalPrinterColumns"]

    assert columns[0] == {"name": "GPU", "type": "string", "jsonPath": ".status.recommendation.gpuClass"}
    assert {"name": "Mode", "type": "string", "jsonPath": ".spec.rollout.mode", "priority": 1} in columns
    assert columns[-1] == {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


@OF_EVERY_KIND
def test_one_version_is_served_and_stored_and_has_a_status_of_its_own(kind: type[Resource]) -> None:
    found = version(kind)

    assert (found["name"], found["served"], found["storage"]) == ("v1alpha1", True, True)
    assert found["subresources"] == {"status": {}}
    scope = custom_resource_definition(kind)["spec"]["scope"]
    assert scope == ("Cluster" if kind is GPUClass else "Namespaced")


SCHEMAS = {kind.INFO.kind: schema(kind) for kind in KINDS}


def refused(path: Path) -> list[str] | None:
    """Fields that the schema alone refuses; None when the document is of no kind of ours."""
    documents, _ = read_documents(path.name, path.read_bytes())
    data = documents[0].data
    if data.get("apiVersion") != "slotune.dev/v1alpha1" or data.get("kind") not in SCHEMAS:
        return None
    without = {key: value for key, value in data.items() if key not in {"metadata", "status"}}
    return list(refusals(SCHEMAS[data["kind"]], without | {"metadata": {}}))


@pytest.mark.parametrize("path", files("good"), ids=lambda path: path.stem)
def test_no_schema_refuses_what_is_good(path: Path) -> None:
    assert refused(path) == []


SAID_BY_RULES = {
    rule["message"]
    for whole in SCHEMAS.values()
    for _, node in nodes(whole)
    for rule in node.get("x-kubernetes-validations", ())
}


@pytest.mark.parametrize("path", files("bad"), ids=lambda path: path.stem)
def test_what_is_bad_is_refused_by_the_schema_or_by_a_rule(path: Path) -> None:
    found, by_schema = problems(path), refused(path)
    if by_schema is None or "# slotune only" in path.read_text():
        return
    by_rules = any(message in problem.cure for problem in found for message in SAID_BY_RULES)

    assert by_schema or by_rules or found[0].field.startswith("metadata")
    for field in by_schema:  # a repeated element is the list's fault to a schema, and its own to us
        assert any(problem.field.startswith(field.lstrip(".")) for problem in found), field
