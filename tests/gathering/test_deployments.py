"""Which Deployment a name means, and what a person hears whose name or rights lead to none."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotune.gathering.look_errors import (
    MissingRightError,
    NoSuchDeploymentError,
)
from tests.gathering.looking import POD
from tests.gathering.pods import llama_deployment, pod


async def test_a_llama_deployment_without_its_deployment_says_which_is_missing(look):
    look.server.put(llama_deployment("tuned", targetRef={"name": "gone"}))
    said = await look.fails(NoSuchDeploymentError, "tuned")
    assert "LlamaDeployment tuned is about Deployment gone" in said


async def test_a_name_with_a_typing_error_gets_the_right_one(look):
    assert "did you mean chat?" in await look.fails(NoSuchDeploymentError, "chatt")


async def test_a_name_that_is_like_none_gets_those_that_there_are(look):
    assert "there is chat" in await look.fails(NoSuchDeploymentError, "frontend")


async def test_a_name_of_another_namespace_is_found_there(look):
    with pytest.raises(NoSuchDeploymentError, match="not in namespace empty, but in shop"):
        await look.take(namespace="empty")


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "ReplicaSet", "Pod"])
async def test_what_is_no_deployment_is_named_with_the_way_to_look_at_it(look, kind):
    look.server.put({"kind": kind, "metadata": {"name": "db", "namespace": "shop"}})
    said = await look.fails(NoSuchDeploymentError, "db")
    assert f"no Deployment of that name but a {kind}" in said
    assert f"kubectl logs -n shop {kind.lower()}/db | slotune diagnose --log -" in said
    assert f"kubectl port-forward -n shop {kind.lower()}/db 8080" in said


async def test_what_a_deployment_made_leads_to_it(look):
    owned = [{"kind": "Deployment", "name": "chat", "controller": True}]
    replicas = {"kind": "ReplicaSet", "metadata": {"name": "chat-5d4f", "namespace": "shop", "ownerReferences": owned}}
    made = [{"kind": "ReplicaSet", "name": "chat-5d4f", "controller": True}]
    look.server.put(replicas, pod(ownerReferences=made))
    assert "that is a Pod of Deployment chat: name that" in await look.fails(NoSuchDeploymentError, POD)
    assert "that is a ReplicaSet of Deployment chat" in await look.fails(NoSuchDeploymentError, "chat-5d4f")


@pytest.mark.parametrize("resource", ["statefulsets", "pods", "replicasets"])
async def test_a_kind_that_may_not_be_seen_keeps_no_name_from_being_corrected(look, resource):
    look.server.forbidden.add(f"get {resource}")
    assert "did you mean chat?" in await look.fails(NoSuchDeploymentError, "chatt")


async def test_a_missing_right_to_list_is_no_empty_namespace(look):
    look.server.forbidden.add("list deployments")
    said = await look.fails(NoSuchDeploymentError, "chatt")
    assert "your account lacks the right to list deployments.apps in namespace shop" in said
    assert "another namespace" not in said
    look.server.forbidden.clear()
    assert "there is none: name another namespace" in await look.fails(NoSuchDeploymentError, "abc", namespace="empty")


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("deployments", "your account lacks the right to get deployments.apps in namespace shop"),
        ("pods", "your account lacks the right to list pods in namespace shop"),
    ],
)
async def test_a_right_that_is_needed_is_named_with_the_role_that_has_it(look, resource, words):
    look.server.forbidden.add(resource)
    said = await look.fails(MissingRightError)
    assert words in said
    assert said.endswith("ask for the role of docs/diagnosis.md#rights-in-a-cluster")
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    assert "\n## Rights in a cluster\n" in page
    assert "config/diagnose/rbac.yaml" in page


async def test_credentials_that_are_not_taken_are_no_missing_right(look):
    look.server.status = 401
    assert "log in again" in await look.fails(MissingRightError)
