"""A real API server takes the CRDs, and says of every manifest what slotune says.

Manifests go to the API server as ``kubectl apply --server-side --dry-run=server`` sends them. Client-side apply and
``kubectl create`` are laxer in one point: they drop a field that is null; server-side apply and slotune refuse it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2e.api_server import Answer, ApiServer, api_server
from e2e.cluster import Cluster
from e2e.corpus import CHECKOUT, data_of, files, has_place, is_slotune_only, path_of, problems_of, refusals
from e2e.mutants import mutants
from e2e.texts import FORMS, TEXTS, Specimen
from e2e.waiting import eventually
from slotune.api.crds import custom_resource_definition
from slotune.api.documents import read_documents
from slotune.api.problems import model_within
from slotune.api.v1alpha1 import API_VERSION, KINDS, LlamaDeployment, LlamaTrial, Resource

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BEYOND_CEL = ("never show a Pass", "must fit into the window", "within its range")
"""Messages of the rules that no cluster can check."""
CONDITION = {
    "type": "SLOMet",
    "status": "True",
    "reason": "Measured",
    "message": "every trial of it passed",
    "lastTransitionTime": "2026-01-31T12:00:00Z",
}


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[ApiServer]:
    """The API server with the CRDs that are checked in; those that were not there before are removed again."""
    with api_server(cluster.kubeconfig) as found:
        names = [custom_resource_definition(kind)["metadata"]["name"] for kind in (*KINDS, Specimen)]
        before = {name for name in names if found.get(f"{DEFINITIONS}/{name}").accepted}
        for path in sorted((CHECKOUT / "crds").glob("*.yaml")):
            definition = read_documents(path.name, path.read_bytes())[0][0].data
            answer = found.apply(f"{DEFINITIONS}/{definition['metadata']['name']}", definition)
            assert answer.accepted, answer.message
        yield found
        for name in names:
            if name not in before:
                cluster.delete("customresourcedefinition", name)


@pytest.fixture(scope="module", autouse=True)
def served(server: ApiServer) -> None:
    """Waits until the API server answers for every kind, with the schema of now."""
    for kind in KINDS:
        eventually(partial(established, server, kind), 30, f"{kind.INFO.kind} is served")
    unknown = deployment() | {"unknown": 1}
    eventually(lambda: not apply(server, unknown, dry_run=True).accepted, 30, "unknown fields are refused")


def established(server: ApiServer, kind: type[Resource]) -> bool:
    return conditions(server, kind).get("Established") == "True"


def conditions(server: ApiServer, kind: type[Resource]) -> dict[str, str]:
    name = custom_resource_definition(kind)["metadata"]["name"]
    status = server.get(f"{DEFINITIONS}/{name}").body.get("status") or {}
    written = status.get("conditions") or []  # null until the first one is written
    return {condition["type"]: condition["status"] for condition in written}


def messages_of(schema: Any) -> Iterator[str]:
    """What the rules in a schema say."""
    if isinstance(schema, dict):
        yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
        for inner in schema.values():
            yield from messages_of(inner)


MESSAGES = {
    message for kind in KINDS for message in messages_of(custom_resource_definition(kind)["spec"]["versions"][0])
}


def deployment() -> dict[str, Any]:
    return data_of("good/deployment-least.yaml")


def apply(server: ApiServer, data: dict[str, Any], namespace: str = "default", **how: Any) -> Answer:
    return server.apply(path_of(data, namespace), data, **how)


# The definitions


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_definition_is_served_and_structural(server: ApiServer, kind: type[Resource]) -> None:
    assert conditions(server, kind) == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_people_can_have_every_field_explained(server: ApiServer, cluster: Cluster, kind: type[Resource]) -> None:
    words = ("explain", f"{kind.INFO.plural}.spec", "--recursive", f"--api-version={API_VERSION}")
    # Served comes before published: kubectl reads the explanation from a document that is made a moment later.
    explained = eventually(lambda: cluster.text(*words), 30, "kubectl knows the kind")

    spec = model_within(kind.model_fields["spec"].annotation)
    assert spec is not None
    assert all(str(field.alias) in explained for field in spec.model_fields.values())


# One corpus, one verdict


@pytest.mark.parametrize("path", files("good"), ids=lambda path: path.stem)
def test_good(server: ApiServer, path: Path) -> None:
    answer = server.apply(path_of(data_of(path)), path.read_bytes(), dry_run=True)

    assert answer.accepted, answer.message


@pytest.mark.parametrize("path", files("bad"), ids=lambda path: path.stem)
def test_bad(server: ApiServer, path: Path) -> None:
    if not has_place(path) or is_slotune_only(path):
        return

    answer = server.apply(path_of(data_of(path)), path.read_bytes(), dry_run=True)

    assert not answer.accepted
    assert not ("should match" in answer.message and "type conversion error" in answer.message)
    found = problems_of(path)
    if answer.fields:  # it may blame more: its rules do not wait until the fields that they read are right
        assert any(one.field.startswith(field) for one in found for field in answer.fields), answer.message
    if len(found) == 1:
        assert all(message in answer.message for message in MESSAGES if message == found[0].cure)


@pytest.mark.parametrize("path", [path for path in files("bad") if is_slotune_only(path)], ids=lambda path: path.stem)
def test_what_only_slotune_can_refuse_is_marked_with_reason(server: ApiServer, path: Path) -> None:
    answer = server.create(path_of(data_of(path)).rpartition("/")[0], path.read_bytes(), dry_run=True)

    assert answer.accepted, "the mark is not needed: the API server refuses it too"


@pytest.mark.parametrize("path", files("unreadable"), ids=lambda path: path.stem)
def test_unreadable(server: ApiServer, path: Path) -> None:
    assert not server.apply(path_of(deployment()), path.read_bytes(), dry_run=True).accepted


GOOD = [
    {key: value for key, value in data.items() if key != "status"} | {"metadata": {"name": "chat"}}
    for data in map(data_of, files("good"))
]


@settings(max_examples=600, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(mutants(GOOD))
def test_mistakes_that_nobody_thought_of(server: ApiServer, manifest: dict[str, Any]) -> None:
    found = refusals(manifest)
    answer = apply(server, manifest, dry_run=True)

    if not found or not all(any(words in cure for words in BEYOND_CEL) for cure in found.values()):
        assert answer.accepted == (not found), (answer.message, found)


# Texts


@pytest.fixture(scope="module")
def specimens(server: ApiServer) -> str:
    """The path of a kind that takes texts of every form."""
    definition = custom_resource_definition(Specimen)
    del definition["spec"]["names"]["categories"]  # kubectl remembers for hours what was in one
    answer = server.apply(f"{DEFINITIONS}/{definition['metadata']['name']}", definition)
    assert answer.accepted, answer.message
    eventually(lambda: established(server, Specimen), 30, "the kind is served")
    path = f"/apis/{API_VERSION}/specimens/texts"
    eventually(lambda: server.apply(path, specimen({}), dry_run=True).accepted, 30, "the kind answers")
    return path


def specimen(spec: dict[str, list[str]]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Specimen", "metadata": {"name": "texts"}, "spec": spec}


def refused_texts(server: ApiServer, path: str, form: str, texts: list[str]) -> set[str]:
    """Texts that the API server refuses. It may stop at the first kind of error, so what it took is asked again."""
    refused: set[str] = set()
    left = texts
    while not (answer := server.apply(path, specimen({form: left}), dry_run=True)).accepted:
        indexes = {int(index) for field in answer.fields for index in re.findall(r"\[(\d+)\]$", field)}
        assert indexes, answer.message
        refused |= {left[index] for index in indexes}
        left = [text for text in left if text not in refused]
    return refused


@pytest.mark.parametrize("form", FORMS)
def test_texts_at_the_edges(server: ApiServer, specimens: str, form: str) -> None:
    texts = list(TEXTS)

    assert refused_texts(server, specimens, form, texts) == {text for text in texts if not takes(form, text)}


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_texts_of_the_right_shape(server: ApiServer, specimens: str, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(FORMS)))
    texts = data.draw(st.lists(st.from_regex(FORMS[form].pattern), min_size=1, max_size=20, unique=True))

    assert refused_texts(server, specimens, form, texts) == {text for text in texts if not takes(form, text)}


def takes(form: str, text: str) -> bool:
    try:
        FORMS[form].check(text)
    except ValueError:
        return False
    return True


# Living objects


def test_what_may_be_done_to_production_is_written_into_the_object_and_nothing_else_is(
    server: ApiServer, namespace: str
) -> None:
    stored = apply(server, deployment(), namespace).body["spec"]

    assert stored == {**deployment()["spec"], "rollout": {"mode": "Recommend"}}


def test_a_pod_template_keeps_what_slotune_does_not_read(server: ApiServer, namespace: str) -> None:
    data = data_of("good/template-untidy.yaml")
    data["spec"]["template"]["spec"]["hostAliases"] = [{"ip": "10.0.0.1", "hostnames": ["a"]}]
    data["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}

    stored = apply(server, data, namespace).body

    assert stored["spec"]["template"] == data["spec"]["template"]
    assert LlamaDeployment.from_manifest(stored).spec.template is not None


def test_a_trial_can_t_be_changed_but_its_labels_can(server: ApiServer, namespace: str) -> None:
    data = data_of("good/trial.yaml")
    assert apply(server, data, namespace).accepted
    assert apply(server, data | {"metadata": data["metadata"] | {"labels": {"a": "b"}}}, namespace).accepted
    changed = json.loads(json.dumps(data))
    changed["spec"]["candidate"]["parallelSlots"] += 1

    answer = apply(server, changed, namespace)

    assert not answer.accepted
    [(_, message)] = LlamaTrial.from_manifest(data).refused_changes(LlamaTrial.from_manifest(changed))
    assert message in answer.message
    assert answer.fields == {"spec"}


def with_status(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in deployment().items() if key != "spec"} | {"status": status}


def apply_status(server: ApiServer, namespace: str, status: dict[str, Any]) -> Answer:
    data = with_status(status)
    return server.apply(f"{path_of(data, namespace)}/status", data)


def test_spec_and_status_have_doors_of_their_own(server: ApiServer, namespace: str) -> None:
    first = apply(server, deployment() | {"status": {"phase": "Tuned"}}, namespace).body
    assert "status" not in first

    written = apply_status(server, namespace, {"phase": "Tuned", "conditions": [CONDITION]}).body
    assert written["status"]["phase"] == "Tuned"
    assert written["metadata"]["generation"] == first["metadata"]["generation"]

    through_status = deployment() | {"status": {"phase": "Searching"}}
    through_status["spec"] = {**through_status["spec"], "suspend": True}
    stored = server.apply(f"{path_of(through_status, namespace)}/status", through_status).body
    assert "suspend" not in stored["spec"]

    changed = deployment()
    changed["spec"]["suspend"] = True
    stored = apply(server, changed, namespace).body
    assert stored["metadata"]["generation"] == first["metadata"]["generation"] + 1
    assert stored["status"]["phase"] == "Searching"


def test_a_status_of_another_version_is_taken_as_it_is(server: ApiServer, namespace: str) -> None:
    assert apply(server, deployment(), namespace).accepted
    strange = {
        "phase": "Dreaming",
        "fieldOfANewerSlotune": {"deep": 1},
        "recommendation": {"replicas": 2, "colour": "red"},  # without what this version always writes
        "production": {"state": "Foggy"},
        "conditions": [CONDITION, {**CONDITION, "type": "Dreaming"}],
    }

    stored = apply_status(server, namespace, strange)

    assert stored.accepted, stored.message
    assert stored.body["status"] == strange
    edited = deployment()
    edited["spec"]["suspend"] = True
    assert apply(server, edited, namespace).accepted


@pytest.mark.parametrize(
    "path", [path for path in files("good") if "\nstatus:" in path.read_text()], ids=lambda p: p.stem
)
def test_statuses_of_the_corpus_are_taken(server: ApiServer, namespace: str, path: Path) -> None:
    data = data_of(path)
    assert server.apply(path_of(data, namespace), data | {"status": {}}).accepted

    answer = server.apply(f"{path_of(data, namespace)}/status", data)

    assert answer.accepted, answer.message
    assert answer.body["status"] == data["status"]


def test_kubectl_get_tells_the_story(server: ApiServer, cluster: Cluster, namespace: str) -> None:
    assert apply(server, deployment(), namespace).accepted
    measured = {"ttftP95": "620ms", "tokensPerSecondP5": "31.5"}
    recommendation = {"gpuClass": "l4", "replicas": 3, "monthlyCost": "1752.00", "measured": measured}
    progress = {"trials": 12, "gpuMinutesUsed": "48"}
    status = {"phase": "Tuned", "conditions": [CONDITION], "recommendation": recommendation, "progress": progress}
    assert apply_status(server, namespace, status).accepted

    header, row = (line.split() for line in cluster.text("get", "lld", namespace=namespace).splitlines())
    assert header == ["NAME", "GPU", "REPLICAS", "TTFT-P95", "TOK/S", "$/MONTH", "SLO", "PHASE", "AGE"]
    assert row[:-1] == ["chat", "l4", "3", "620ms", "31.5", "1752.00", "True", "Tuned"]

    wide = cluster.text("get", "lld", "-o", "wide", "--no-headers", namespace=namespace).split()
    assert wide[8] == "Recommend"
    assert {"12", "48"} <= set(wide)


def test_the_category_lists_every_kind(server: ApiServer, cluster: Cluster, namespace: str) -> None:
    for name in ("deployment-least", "trial", "workload-users"):
        data = data_of(f"good/{name}.yaml")
        assert apply(server, data, namespace).accepted

    listed = cluster.text("get", "slotune", "-o", "name", namespace=namespace).split()

    kinds = {"llamadeployment", "llamatrial", "llamaworkload"}
    assert {name.partition(".")[0] for name in listed} >= kinds


def test_kubectl_wait_returns_once_the_promise_is_kept(server: ApiServer, cluster: Cluster, namespace: str) -> None:
    assert apply(server, deployment(), namespace).accepted
    assert apply_status(server, namespace, {"conditions": [CONDITION]}).accepted

    cluster.text("wait", "--for=condition=SLOMet", "lld/chat", "--timeout=20s", namespace=namespace)
