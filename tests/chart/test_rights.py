"""The operator may do what it needs and nothing else, and the chart and the Kustomize base agree on what that is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from slotune.controller import kinds
from tests.chart.reading import CHART, CONFIG, chart_rules, documents, one, rights

TEMPLATES = sorted((CHART / "templates").iterdir())
BASE = ["operator", "cluster"]
ALL = [*BASE, "wide", "rollout", "secrets"]
READING = {"get", "list", "watch"}
CLUSTER_SCOPED = {"gpuclasses", "gpuclasses/status", "nodes", "customresourcedefinitions"}


def allowed(*names: str) -> set[tuple[str, str, str]]:
    return {right for name in names for right in rights(chart_rules(name))}


def base_role(name: str, path: str = "rbac.yaml") -> list[Any]:
    rules: list[Any] = one(CONFIG / path, "ClusterRole", name)["rules"]
    return rules


def test_nothing_is_granted_by_a_wildcard() -> None:
    stars = {word for name in ALL for rule in chart_rules(name) for words in rule.values() for word in words}
    assert not {word for word in stars if "*" in word}
    bound = [rule for path in CONFIG.rglob("rbac*.yaml") for it in documents(path) for rule in it.get("rules", ())]
    assert not {right for right in rights(bound) if "*" in "".join(right)}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("slotune", "operator"), ("slotune-rollout", "rollout")],
    ids=["what it always may", "what writing Deployments adds"],
)
def test_the_base_grants_what_the_chart_grants(ours: str, theirs: str) -> None:
    path = "rollout/rbac.yaml" if theirs == "rollout" else "rbac.yaml"
    assert base_role(ours, path) == chart_rules(theirs)


def test_the_base_works_in_all_namespaces_so_it_also_fills_the_status_of_gpu_classes() -> None:
    assert base_role("slotune-cluster") == chart_rules("cluster") + chart_rules("wide")
    writes = {(resource, verb) for _, resource, verb in allowed("wide") if verb not in READING}
    assert writes == {("gpuclasses/status", "patch")}


def test_without_more_permissions_production_cannot_be_written() -> None:
    writes = {(group, resource) for group, resource, verb in allowed(*BASE) if verb not in READING}
    assert not writes & {("apps", "deployments"), ("apps", "deployments/scale"), ("", "services"), ("", "pods")}


def test_what_belongs_to_no_namespace_is_only_read() -> None:
    assert {resource for _, resource, _ in allowed("operator")} & CLUSTER_SCOPED == set()
    assert {verb for _, _, verb in allowed("cluster")} <= READING


def test_what_people_wrote_is_never_deleted() -> None:
    gone = {resource for _, resource, verb in allowed(*ALL) if verb == "delete"}
    assert gone == {"jobs", "llamatrials"}


def test_secrets_are_read_only_by_the_names_that_were_given_and_no_other_is_changed() -> None:
    assert {resource for _, resource, _ in allowed("operator", "cluster", "rollout")} & {"secrets"} == set()
    reading, making = chart_rules("secrets")
    assert (reading["verbs"], reading["resourceNames"]) == (["get"], ["FROM-VALUES"])
    assert making["verbs"] == ["create"]  # of recorded answers, whose name nobody knows beforehand


def test_nobody_can_be_entered_impersonated_or_bound() -> None:
    never = {"pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "roles", "rolebindings"}
    held = allowed(*ALL)
    assert {resource for _, resource, _ in held} & never == set()
    assert {verb for _, _, verb in held} & {"impersonate", "bind", "escalate", "deletecollection", "*"} == set()


@pytest.mark.parametrize("kind", sorted(kinds.WATCHED, key=lambda kind: kind.name), ids=lambda kind: kind.name)
def test_every_kind_that_is_followed_may_be_followed(kind: kinds.Kind) -> None:
    held = {verb for group, plural, verb in allowed(*BASE) if (group, plural) == (kind.group, kind.plural)}
    assert held >= READING


def test_no_right_is_for_a_kind_that_the_operator_does_not_know() -> None:
    known = {(kind.group, kind.plural) for kind in vars(kinds).values() if isinstance(kind, kinds.Kind)}
    granted = {(group, resource.split("/")[0]) for group, resource, _ in allowed(*ALL)}
    assert granted - known == {("apiextensions.k8s.io", "customresourcedefinitions")}
    assert known - granted == set()


def test_people_get_rights_on_slotunes_kinds_only() -> None:
    for role in documents(CONFIG / "rbac-people.yaml"):
        assert {group for group, _, _ in rights(role["rules"])} == {"slotune.dev"}
        assert [key for key in role["metadata"]["labels"] if key.startswith("rbac.authorization.k8s.io/aggregate-to-")]
    for name in ("slotune-view", "slotune-edit"):
        template = (CHART / "templates" / "rbac-people.yaml").read_text()
        assert name.replace("slotune", "{{ $name }}") in template


def test_roles_are_made_in_one_place() -> None:
    making = {path.name for path in TEMPLATES if re.search(r"^rules:", path.read_text(), re.MULTILINE)}
    assert making == {"rbac.yaml", "rbac-people.yaml"}
