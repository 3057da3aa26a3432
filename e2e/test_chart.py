"""The chart as helm renders it: nonsense is refused, rights are the least, and Kustomize gives the same operator."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.node.places import CHECKOUT
from e2e.node.programs import find_programs
from e2e.rendering import NAMESPACE, Object, Refused, Rendering, by_name, comparable, rules_of
from slotune.api.documents import read_documents

READING = {"get", "list", "watch"}


@pytest.fixture(scope="module")
def rendering() -> Rendering:
    programs = find_programs()
    return Rendering(programs["helm"], programs["kubectl"])


def one(objects: list[Object], kind: str) -> Object:
    [only] = [it for it in objects if it["kind"] == kind]
    return only


def operator_args(objects: list[Object]) -> list[str]:
    args: list[str] = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def writes(rules: list[dict[str, list[str]]]) -> set[tuple[str, str]]:
    return {(it, verb) for rule in rules for it in rule["resources"] for verb in rule["verbs"] if verb not in READING}


# The schema


def test_helm_finds_nothing_to_complain_about(rendering: Rendering) -> None:
    rendering.lint({"image": {"repository": "registry.invalid/slotune"}})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        pytest.param({"replicas": 2}, "replicas", id="a value that is not there"),
        pytest.param({"rbac": {"clusterReads": True}}, "clusterReads", id="a misspelled part of a value"),
        pytest.param({"watchNamespaces": "team-a"}, "watchNamespaces", id="one namespace instead of a list"),
        pytest.param({"watchNamespaces": ["Team A"]}, "watchNamespaces", id="a namespace that cannot exist"),
        pytest.param({"permissions": {"deployments": "write"}}, "deployments", id="a permission in small letters"),
        pytest.param({"permissions": {"secrets": ["*"]}}, "secrets", id="all Secrets"),
        pytest.param({"image": {"repository": "a.b/c", "digest": "sha256:12"}}, "digest", id="half a digest"),
        pytest.param({"image": {"repository": "a.b/c:1.0"}}, "repository", id="a tag in the repository"),
        pytest.param({"maxTrials": 0}, "maxTrials", id="no trials"),
        pytest.param({"image": None}, "image", id="an object that is taken away"),
        pytest.param({"metrics": {"serviceMonitor": None}}, "serviceMonitor", id="a part that is taken away"),
        pytest.param(
            {"networkPolicy": {"apiServer": {"cidrs": ["300.1.1.1/99"]}}}, "cidrs", id="an address that cannot exist"
        ),
        pytest.param({"maxTrials": "2"}, "maxTrials", id="a number in quotes"),
        pytest.param({"networkPolicy": {"servers": {"ports": [70000]}}}, "ports", id="a port that cannot exist"),
        pytest.param({"networkPolicy": {"apiServer": {"ports": []}}}, "ports", id="no way to the API server"),
        pytest.param({"resources": {"limits": {"memory": "512 MB"}}}, "memory", id="a quantity that is none"),
    ],
)
def test_nonsense_is_refused_by_name(rendering: Rendering, values: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused) as refused:
        rendering.chart(values)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        pytest.param({"image": {}}, "image.repository is where you pushed the image", id="no image"),
        pytest.param({"serviceAccount": {"create": False}}, "must be the name of one", id="no service account"),
    ],
)
def test_what_is_missing_is_named_with_its_cure(rendering: Rendering, values: dict[str, Any], cure: str) -> None:
    with pytest.raises(Refused) as refused:
        rendering.chart(values)
    assert cure in str(refused.value)


# The operator


def test_a_digest_wins_over_a_tag_for_trials_too(rendering: Rendering) -> None:
    digest = f"sha256:{'0f' * 32}"
    objects = rendering.chart({"image": {"repository": "a.example/slotune", "tag": "old", "digest": digest}})
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"a.example/slotune@{digest}"
    assert container["args"][:3] == ["operator", "--trial-image", f"a.example/slotune@{digest}"]


def test_every_value_of_the_pod_arrives(rendering: Rendering) -> None:
    objects = rendering.chart(
        {
            "trialImage": "mirror.example/slotune:1",
            "maxTrials": 3,
            "logFormat": "text",
            "fullnameOverride": "tuner",
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 90,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "podAnnotations": {"note": "text"},
            "podLabels": {"team": "platform"},
            "imagePullSecrets": [{"name": "pull"}],
            "serviceAccount": {"annotations": {"who": "us"}},
        }
    )
    deployment = one(objects, "Deployment")
    pod = deployment["spec"]["template"]
    args = operator_args(objects)
    assert deployment["metadata"]["name"] == pod["spec"]["serviceAccountName"] == "tuner"
    assert [args[args.index(name) + 1] for name in ("--trial-image", "--max-trials", "--log-format")] == [
        "mirror.example/slotune:1",
        "3",
        "text",
    ]
    assert pod["metadata"]["labels"]["team"] == "platform"
    assert pod["metadata"]["annotations"]["note"] == "text"
    assert (pod["spec"]["priorityClassName"], pod["spec"]["terminationGracePeriodSeconds"]) == ("high", 90)
    assert pod["spec"]["nodeSelector"] == {"pool": "system"}
    assert pod["spec"]["tolerations"] == [{"key": "system", "operator": "Exists"}]
    assert pod["spec"]["affinity"] == {"nodeAffinity": {}}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert one(objects, "ServiceAccount")["metadata"]["annotations"] == {"who": "us"}


def test_a_label_of_the_pod_cannot_hide_it_from_its_deployment(rendering: Rendering) -> None:
    objects = rendering.chart({"podLabels": {"app.kubernetes.io/name": "other"}})
    spec = one(objects, "Deployment")["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_no_key_is_written_twice_whatever_labels_and_annotations_are_given(rendering: Rendering) -> None:
    ours = {"app.kubernetes.io/name": "other", "kubectl.kubernetes.io/default-container": "other"}
    text = rendering.chart_text(
        {
            "podLabels": ours,
            "podAnnotations": ours,
            "metrics": {"serviceMonitor": {"enabled": True, "labels": ours}},
        },
        capabilities=["monitoring.coreos.com/v1"],
    )
    documents, problems = read_documents("chart", text.encode())  # it refuses a key that stands twice
    assert (len(documents) > 5, problems) == (True, [])


# Rights


def test_in_all_namespaces_production_and_secrets_are_out_of_reach(rendering: Rendering) -> None:
    objects = rendering.chart()
    rules = rules_of(objects, "ClusterRole")
    assert not [it for it in objects if it["kind"] in {"Role", "RoleBinding"}]
    assert "secrets" not in {it for rule in rules for it in rule["resources"]}
    assert writes(rules) & {("deployments", "patch"), ("deployments", "create"), ("services", "patch")} == set()
    assert "*" not in str(rules)


def test_in_named_namespaces_nothing_outside_of_them_is_written(rendering: Rendering) -> None:
    objects = rendering.chart({"watchNamespaces": ["team-a", "team-b"], "permissions": {"deployments": "Write"}})
    assert writes(rules_of(objects, "ClusterRole")) == set()
    roles = {key for key in by_name(objects) if key[0] == "Role"}
    assert roles == {("Role", team, name) for team in ("team-a", "team-b") for name in ("slotune", "slotune-rollout")}
    assert operator_args(objects)[-4:] == ["--namespace", "team-a", "--namespace", "team-b"]
    reads = {it for rule in rules_of(objects, "ClusterRole") for it in rule["resources"]}
    assert reads == {"gpuclasses", "nodes"}


def test_a_role_holds_nothing_that_belongs_to_no_namespace(rendering: Rendering) -> None:
    objects = rendering.chart({"watchNamespaces": ["team-a"]})
    held = {it.split("/")[0] for rule in rules_of(objects, "Role") for it in rule["resources"]}
    assert held & {"nodes", "gpuclasses", "namespaces", "customresourcedefinitions"} == set()


def test_without_cluster_scoped_reads_the_operator_gets_no_cluster_role(rendering: Rendering) -> None:
    objects = rendering.chart({"watchNamespaces": ["team-a"], "rbac": {"clusterScopedReads": False}})
    assert rules_of(objects, "ClusterRole") == []
    assert not [it for it in objects if it["kind"] == "ClusterRoleBinding"]


def test_an_administrator_of_namespaces_can_install_it_there_alone(rendering: Rendering) -> None:
    objects = rendering.chart(
        {"watchNamespaces": ["team-a"], "rbac": {"clusterScopedReads": False, "aggregate": False}}
    )
    assert {it["kind"] for it in objects if not it["metadata"].get("namespace")} == set()


def test_only_named_secrets_can_be_read(rendering: Rendering) -> None:
    rules = rules_of(rendering.chart({"permissions": {"secrets": ["prompts", "prometheus"]}}), "ClusterRole")
    about = [(rule.get("resourceNames"), rule["verbs"]) for rule in rules if "secrets" in rule["resources"]]
    # What was recorded to a Secret's prompts is kept in a new one, whose name nobody knows beforehand.
    assert sorted(about, key=str) == [(None, ["create"]), (["prompts", "prometheus"], ["get"])]


def test_two_teams_may_install_releases_of_one_name(rendering: Rendering) -> None:
    def shared(team: str) -> set[tuple[str, str, str]]:
        return {key for key in by_name(rendering.chart({"watchNamespaces": [team]}, namespace=team)) if not key[1]}

    assert shared("team-a")
    assert shared("team-a") & shared("team-b") == set()


def test_somebody_else_may_bring_the_roles(rendering: Rendering) -> None:
    objects = rendering.chart({"rbac": {"create": False}})
    assert not [it for it in objects if it["apiVersion"].startswith("rbac.")]


# What stands beside it


def test_definitions_are_the_checked_in_ones_and_stay_when_the_chart_goes(rendering: Rendering) -> None:
    crds = {"crds": {"install": True}}
    rendered = {name: it for (kind, _, name), it in by_name(rendering.chart(crds)).items() if kind.startswith("Custom")}
    ours = [yaml.safe_load(path.read_text()) for path in sorted((CHECKOUT / "crds").glob("*.yaml"))]
    assert len(rendered) == len(ours) == 4
    for crd in ours:
        metadata = rendered[crd["metadata"]["name"]].pop("metadata")
        assert metadata.pop("annotations") == {"helm.sh/resource-policy": "keep"}
        assert {**rendered[crd["metadata"]["name"]], "metadata": metadata} == crd
    leaving = rendering.chart({"crds": {"install": True, "keep": False}})
    assert "helm.sh/resource-policy" not in str(leaving)


def test_a_service_monitor_needs_a_cluster_that_knows_it(rendering: Rendering) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}}
    assert [it for it in rendering.chart(values) if it["kind"] == "ServiceMonitor"] == []
    objects = rendering.chart(values, capabilities=["monitoring.coreos.com/v1"])
    monitor, service = one(objects, "ServiceMonitor"), one(objects, "Service")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_the_network_is_closed_but_for_what_is_used(rendering: Rendering) -> None:
    policy = one(rendering.chart(), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]] == [["health"], ["metrics"]]
    assert [[port["port"] for port in rule["ports"]] for rule in policy["egress"]] == [
        [53, 53],
        [443, 6443],
        [8080],
        [9090],
    ]


def test_the_network_can_be_narrowed(rendering: Rendering) -> None:
    policy = one(
        rendering.chart(
            {
                "watchNamespaces": ["team-a"],
                "networkPolicy": {
                    "apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]},
                    "servers": {"ports": [8080, 8000]},
                    "prometheus": {"ports": []},
                    "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
                    "extraEgress": [{"ports": [{"port": 9091}]}],
                },
            }
        ),
        "NetworkPolicy",
    )["spec"]
    _, api_server, servers, more = policy["egress"]
    assert api_server == {"ports": [{"port": 6443}], "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    [peer] = servers["to"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["team-a"]
    assert more == {"ports": [{"port": 9091}]}
    assert policy["ingress"][1]["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]


# Kustomize


def test_kustomize_gives_the_operator_of_the_chart(rendering: Rendering) -> None:
    chart = {key: comparable(it) for key, it in by_name(rendering.chart()).items()}
    base = {key: comparable(it) for key, it in by_name(rendering.base(CHECKOUT / "config")).items()}
    del base["Namespace", "", NAMESPACE]  # helm's --create-namespace
    assert set(base) == set(chart)
    assert {key: it for key, it in base.items() if it != chart[key]} == {}


def overlay(text: str, folder: Path) -> Path:
    """The overlay of docs/install.md with the checkout as its base."""
    block = re.search(r"```yaml\n(# kustomization\.yaml\n.*?)```", text, re.DOTALL)
    assert block is not None
    source = yaml.safe_load(block[1])
    up = os.path.relpath(CHECKOUT, folder.resolve())
    source["resources"] = [up if "?ref=" in entry else entry for entry in source["resources"]]
    source["components"] = [f"{up}/config/rollout"]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(source))
    return folder


def test_the_overlay_of_the_guide_sets_both_images_and_adds_the_right_to_write(
    rendering: Rendering, tmp_path: Path
) -> None:
    objects = rendering.base(overlay((CHECKOUT / "docs" / "install.md").read_text(), tmp_path))
    container = one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == container["args"][2]
    assert "registry.invalid" not in str(objects)
    assert len([it for it in objects if it["kind"] == "CustomResourceDefinition"]) == 4
    theirs = rendering.chart({"permissions": {"deployments": "Write"}})
    assert rules_of(objects, "ClusterRole") == rules_of(theirs, "ClusterRole")
