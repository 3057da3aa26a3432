"""An existing Deployment, rollout.mode Recommend, and an operator that may only read: nothing of it is written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from e2e.cluster import Cluster, Object
from e2e.installed import Operator
from e2e.manifests import quick_deployment, server_template, target_deployment
from e2e.models import WEIGHTS
from e2e.story import Ground, Story

LIMIT_S = 400
TARGET = "web"


class Recommended(NamedTuple):
    """What has happened."""

    story: Story
    applied: Object
    """The Deployment as its owner applied it."""
    before: Object
    """The Deployment as the cluster had it before the LlamaDeployment came."""


@pytest.fixture(scope="module")
def read_only(operator: Operator) -> Iterator[None]:
    """The operator without the right to write Deployments, which is the chart's default."""
    operator.upgrade(permissions={"deployments": "ReadOnly"})
    yield
    operator.upgrade(permissions={"deployments": "Write"})


@pytest.fixture(scope="module")
def recommended(shared_ground: Ground, spare_gpus: None, read_only: None) -> Recommended:
    """A recommendation for a Deployment that somebody else has made."""
    applied = target_deployment(TARGET, server_template(shared_ground.image, model="Q8_0"))
    there = shared_ground.begin(applied)
    there.cluster.text("rollout", "status", f"deployment/{TARGET}", "--timeout=60s", namespace=there.namespace)
    before = there.production()
    asked = quick_deployment("tuning", shared_ground.dear, shared_ground.cheap, targetRef={"name": TARGET})
    shared_ground.cluster.apply(asked, there.namespace)
    story = shared_ground.story(there.namespace, "tuning")
    story.wait_for("Ready", reason="Recommended", timeout=LIMIT_S)
    return Recommended(story, applied, before)


def test_nothing_of_the_deployment_was_written(recommended: Recommended) -> None:
    before, after = recommended.before, recommended.story.production(TARGET)
    assert after["spec"] == before["spec"]
    for field in ("generation", "labels", "annotations", "finalizers", "ownerReferences"):
        assert after["metadata"].get(field) == before["metadata"].get(field)
    assert managers(after) == managers(before)
    assert "slotune" not in json.dumps(after)


def managers(deployment: Object) -> set[tuple[str, str]]:
    """Who has written it, and which part."""
    return {(one["manager"], one.get("subresource", "")) for one in deployment["metadata"]["managedFields"]}


def test_the_operator_had_no_right_to_write_it(recommended: Recommended, operator: Operator, cluster: Cluster) -> None:
    user = f"system:serviceaccount:{operator.namespace}:slotune"
    for verb, allowed in {"get": True, "patch": False, "update": False, "create": False, "delete": False}.items():
        review = cluster.kubectl(
            "create", "--filename=-", stdin=json.dumps(access_review(user, verb, recommended.story.namespace))
        )
        assert review["status"]["allowed"] is allowed, verb


def access_review(user: str, verb: str, namespace: str) -> Object:
    """The question whether a user may do that to Deployments."""
    asked = {"group": "apps", "resource": "deployments", "verb": verb, "namespace": namespace}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": asked},
    }


def test_the_recommendation_is_in_the_status(recommended: Recommended, bare_ground: Ground) -> None:
    status = recommended.story.status()
    answer = status["recommendation"]
    assert (answer["gpuClass"], answer["replicas"], answer["monthlyCost"]) == (bare_ground.cheap, 1, "584")
    assert f"/models/{WEIGHTS['Q4_0']}" in answer["args"]
    assert status["phase"] == "Recommended"
    rolled = recommended.story.condition("RolledOut")
    assert (rolled["status"], rolled["reason"]) == ("False", "RecommendOnly")


def test_kustomize_makes_the_recommended_server_from_the_files_in_the_configmap(
    recommended: Recommended, tmp_path: Path
) -> None:
    story = recommended.story
    answer = story.status()["recommendation"]
    patch = story.cluster.find("configmap", answer["patchConfigMap"], story.namespace)
    assert patch is not None
    component = tmp_path / "slotune"
    component.mkdir()
    for name, text in patch["data"].items():
        (component / name).write_text(text)
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(recommended.applied))
    (tmp_path / "kustomization.yaml").write_text("resources: [web.yaml]\ncomponents: [slotune]\n")
    [made] = yaml.safe_load_all(story.cluster.text("kustomize", str(tmp_path)))
    [server] = made["spec"]["template"]["spec"]["containers"]
    [before] = recommended.applied["spec"]["template"]["spec"]["containers"]
    assert settings(server["args"]).items() >= settings(answer["args"]).items() - {("--slots", "")}
    assert {**server, "args": before["args"]} == before


_SHORT = {
    "-ngl": "--n-gpu-layers", "-np": "--parallel", "-c": "--ctx-size", "-b": "--batch-size", "-ub": "--ubatch-size",
    "-t": "--threads",
}  # fmt: skip


def settings(args: list[str]) -> dict[str, str]:
    """Each flag by its long name, and its value; empty for one that stands alone."""
    found: dict[str, str] = {}
    flag = ""
    for word in args:
        if word.startswith("-") and not word[1:].isdigit():
            flag = _SHORT.get(word, word)
            found[flag] = ""
        else:
            found[flag] = word
    return found
