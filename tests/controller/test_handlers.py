"""How kopf is set up: where it finds the API server, and what it waits for."""

from __future__ import annotations

import kopf
import pytest

from slotune.controller.handlers import at_service_address, settings_for, take
from slotune.controller.kinds import DEPLOYMENT
from slotune.controller.store import Store

BY_NAME = kopf.ConnectionInfo(server="https://kubernetes.default.svc", token="t", ca_path="/ca.crt")


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.96.0.1", "https://10.96.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")],
)
def test_the_api_server_is_reached_without_dns(host: str, server: str) -> None:
    found = at_service_address(BY_NAME, {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"})
    assert (found.server, found.token, found.ca_path) == (server, "t", "/ca.crt")


def test_without_an_address_the_name_is_kept() -> None:
    assert at_service_address(BY_NAME, {}) == BY_NAME


def llama_deployment(name: str, target: str, version: str) -> dict[str, object]:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaDeployment",
        "metadata": metadata,
        "spec": {"targetRef": {"name": target}},
    }


def deployment(replicas: int, version: str) -> dict[str, object]:
    metadata = {"namespace": "team", "name": "chat", "uid": "uid-chat", "resourceVersion": version}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}


def test_a_deployment_that_changed_while_nobody_tuned_it_is_not_remembered_as_it_was() -> None:
    store = Store()
    take(store, llama_deployment("tuner", "chat", "1"), gone=False)
    assert take(store, deployment(1, "2"), gone=False)
    take(store, llama_deployment("tuner", "chat", "1"), gone=True)
    assert not take(store, deployment(2, "3"), gone=False)
    assert store.get(DEPLOYMENT, "team", "chat") is None
    take(store, llama_deployment("another", "chat", "4"), gone=False)
    assert take(store, deployment(2, "3"), gone=False)


def test_deployments_that_nobody_tunes_are_no_news() -> None:
    store = Store()
    assert not take(store, deployment(1, "1"), gone=False)
    assert not take(store, deployment(1, "1"), gone=True)


def test_a_deletion_waits_for_a_reconcile_that_is_under_way() -> None:
    """kopf looks for the end of a daemon only so long. What comes later it would learn from an annotation that it may
    not write, and the finalizer would stay.
    """
    assert (settings_for(cluster_wide=True).background.instant_exit_timeout or 0) > 600
