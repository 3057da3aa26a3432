"""The roles that are handed out for ``--deployment`` allow what it asks the API server for, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes.aio.client import ApiClient, Configuration

from slotune.diagnose.symptoms import ProbeFacts, ServerLook
from slotune.gathering import pod_server
from slotune.gathering.cluster import Wanted, look_in_cluster
from slotune.gathering.cluster_reader import ClusterReader
from slotune.gathering.look_errors import NoSuchDeploymentError
from slotune.tuning.errors import InvalidInputError
from tests.chart.reading import CONFIG, documents, rights
from tests.gathering.api_server import KINDS, ApiServer, api_server, llama_server, right_of
from tests.gathering.pods import container, container_status, crashed, deployment, node, pod

START = (Path(__file__).parents[1] / "llama" / "logs" / "all_defaults.log").read_bytes()
NAMESPACED, OF_THE_CLUSTER = documents(CONFIG / "diagnose" / "rbac.yaml")


def fill(server: ApiServer) -> None:
    """A pod that refers to everything that is followed."""
    own = container(
        envFrom=[{"configMapRef": {"name": "settings"}}], volumeMounts=[{"name": "m", "mountPath": "/models"}]
    )
    spec = {
        "volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    }
    restarted = [container_status(restartCount=1, lastState=crashed(1))]
    server.put(
        deployment(),
        pod("chat-5d4f-a", own, spec=spec, statuses=restarted),
        node(),
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": "shop"},
            "spec": {"volumeName": "pv"},
        },
        {
            "kind": "LlamaDeployment",
            "apiVersion": "slotune.dev/v1alpha1",
            "metadata": {"name": "chat", "namespace": "shop"},
            "spec": {
                "targetRef": {"name": "chat"},
                "slo": {"ttftP95": "1500ms", "tokensPerSecondPerUser": "12"},
                "workload": {"ref": {"name": "traffic"}},
                "models": [{"name": "q4", "path": "/models/a.gguf"}],
                "gpuClasses": [{"name": "l4"}],
            },
        },
    )
    server.logs[("chat-5d4f-a", False)] = server.logs[("chat-5d4f-a", True)] = START
    server.servers["chat-5d4f-a"] = llama_server


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str]]:
    """(Group, resource, verb) of all requests of a whole look, with a probe, and of a name that leads nowhere."""
    monkeypatch.setattr(pod_server, "BETWEEN_S", 0.01)

    async def probe(url: str, key: str | None, look: ServerLook) -> ProbeFacts:
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(f"{url}/completion", json={})
        raise InvalidInputError("--probe", None, "enough")

    async with api_server() as server:
        fill(server)
        async with ClusterReader(ApiClient(Configuration(host=server.url))) as reader:
            await look_in_cluster(reader, "shop", Wanted("chat", probe=probe))
            with pytest.raises(NoSuchDeploymentError):
                await look_in_cluster(reader, "shop", Wanted("nothing"))
        return {right_of(method, path) for method, path in server.asked}


def all_rights(*roles: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {right for role in roles for right in rights(role["rules"])}


async def test_the_roles_allow_what_a_diagnosis_asks_for_and_nothing_more(asked):
    allowed = all_rights(NAMESPACED, OF_THE_CLUSTER)
    assert asked - allowed == set()
    assert allowed - asked == set()


def test_what_belongs_to_no_namespace_is_in_the_role_that_is_bound_in_the_cluster():
    scope = {kind.plural: kind.namespaced for kind in KINDS.values()}
    assert {scope[resource.partition("/")[0]] for _, resource, _ in all_rights(NAMESPACED)} == {True}
    assert {scope[resource.partition("/")[0]] for _, resource, _ in all_rights(OF_THE_CLUSTER)} == {False}


def test_nothing_can_be_changed_with_them_and_no_secret_be_read():
    writes = {one for one in all_rights(NAMESPACED, OF_THE_CLUSTER) if one[2] not in {"get", "list"}}
    assert writes == {("", "pods/proxy", "create")}
    assert "secrets" not in {resource for _, resource, _ in all_rights(NAMESPACED, OF_THE_CLUSTER)}
