"""``slotune diagnose --deployment`` on real pods: faults are provoked, the first finding names each; who lacks a right
hears which one; and a server that is well hears that there is nothing to change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from e2e.cluster import Cluster, Object
from e2e.conftest import Images
from e2e.diagnosing import chat_with, diagnose, has_crashed_twice, is_ready, server_of, status_of
from e2e.namespaces import new_namespace
from e2e.waiting import eventually

START_LIMIT_S = 180.0
"""For five servers on two cores."""
CRASH_LIMIT_S = 120.0
"""For a container to end twice: its start, and 10 s that kubelet waits."""
LOOK_LIMIT_S = 15.0
"""For the whole command."""
CALM = ("-c", "1024", "-np", "2", "-t", "1", "-tb", "1", "--cache-ram", "128", "--metrics", "--slots")
"""A server that is well within the limits below."""
HUNGRY = ("-c", "32768", "-np", "4", "-fit", "off", "-t", "1", "-tb", "1", "--cache-ram", "0")
"""750 MiB of KV cache."""

SERVERS = {
    "healthy": (CALM, "1Gi"),
    "threads": ((*CALM, "-t", "8", "-tb", "8"), "1Gi"),
    "cache": ((*CALM, "--cache-ram", "8192", "-lv", "4"), "1Gi"),  # what the model takes stands in such a log alone
    "flag": ((*CALM, "--no-such-flag"), "1Gi"),
    "memory": (HUNGRY, "384Mi"),
}
"""Flags and memory limit by name; each has one core."""
WELL = ("healthy", "threads", "cache")


@pytest.fixture(scope="module")
def place(cluster: Cluster, images: Images, weights: Path) -> Iterator[str]:
    """A namespace with a Deployment for each fault, and one without."""
    if cluster.node is None:
        pytest.skip("the models are in a folder of this machine, which another cluster's nodes do not see")
    with new_namespace(cluster, weights) as name:
        cluster.apply([server_of(one, images.engine, *SERVERS[one]) for one in SERVERS], name)
        for one in WELL:
            eventually(partial(is_ready, cluster, name, one), START_LIMIT_S, f"{one} is ready")
        yield name


def test_a_healthy_server_hears_that_there_is_nothing_to_change(cluster: Cluster, place: str) -> None:
    chat_with(cluster, place, "healthy")

    said = diagnose(cluster.kubeconfig, "--deployment", "healthy", "-n", place)

    assert said.alarms == []
    assert said.server["healthy"] is True
    assert said.seconds < LOOK_LIMIT_S
    looked_at = said.server["looked_at"]
    assert looked_at["log"]["starts"] == 1
    assert looked_at["server"]["slots"] == 2
    assert looked_at["server"]["looks_at_metrics"] == 2
    assert looked_at["node"]["name"]
    assert said.document["notes"] == []


@pytest.mark.parametrize(("name", "want"), [("threads", "SLT060"), ("cache", "SLT033")])
def test_a_limit_that_does_not_fit_the_flags_is_the_first_finding(
    cluster: Cluster, place: str, name: str, want: str
) -> None:
    chat_with(cluster, place, name)

    said = diagnose(cluster.kubeconfig, "--deployment", name, "-n", place)

    assert said.alarms[:1] == [want]


def test_a_crash_loop_is_the_first_finding_with_what_the_server_said(cluster: Cluster, place: str) -> None:
    eventually(lambda: has_crashed_twice(cluster, place, "flag"), CRASH_LIMIT_S, "the server has crashed twice")

    said = diagnose(cluster.kubeconfig, "--deployment", "flag", "-n", place)

    assert said.alarms[:1] == ["SLT111"]
    assert "no-such-flag" in said.out


def test_a_server_that_was_killed_for_memory_hears_so_first(cluster: Cluster, place: str) -> None:
    eventually(lambda: has_crashed_twice(cluster, place, "memory"), CRASH_LIMIT_S, "the server was killed twice")
    status = status_of(cluster, place, "memory")
    ends = [state["terminated"]["reason"] for state in (status["state"], status["lastState"]) if "terminated" in state]
    assert "OOMKilled" in ends

    said = diagnose(cluster.kubeconfig, "--deployment", "memory", "-n", place)

    assert said.alarms[:1] == ["SLT207"]


def test_a_name_that_is_not_there_gets_the_right_one(cluster: Cluster, place: str) -> None:
    said = diagnose(cluster.kubeconfig, "--deployment", "healhty", "-n", place)

    assert said.code == 2
    assert "did you mean healthy?" in said.err


def role(*rules: tuple[str, str, str]) -> list[Object]:
    """A role for the service account ``guest``: (API group, resource, verb) of each right."""
    stated = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]} for group, resource, verb in rules]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "guest"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "guest"}
    subject = {"kind": "ServiceAccount", "name": "guest"}
    return [
        kind | {"kind": "Role", "rules": stated},
        kind | {"kind": "RoleBinding", "roleRef": reference, "subjects": [subject]},
    ]


@pytest.fixture
def guest(cluster: Cluster, place: str, tmp_path: Path) -> Path:
    """The kubeconfig of somebody who has no right yet."""
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "guest"}}, place)
    cluster.apply(role(), place)
    token = cluster.text("create", "token", "guest", namespace=place).strip()
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": token}
    file = tmp_path / "guest.kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def test_who_may_not_look_hears_which_right_is_missing(cluster: Cluster, place: str, guest: Path) -> None:
    said = diagnose(guest, "--deployment", "healthy", "-n", place)
    assert said.code == 2
    assert "get deployments.apps" in said.err

    cluster.apply(role(("apps", "deployments", "get")), place)
    said = diagnose(guest, "--deployment", "healthy", "-n", place)
    assert said.code == 2
    assert "list pods" in said.err

    cluster.apply(role(("apps", "deployments", "get"), ("", "pods", "list")), place)
    said = diagnose(guest, "--deployment", "healthy", "-n", place)
    assert said.alarms == []
    notes = " ".join(said.document["notes"])
    for right in ("get pods/log", "list events", "get nodes"):
        assert right in notes
    assert "get pods/proxy" in said.server["looked_at"]["server"]["refused"]["/props"]


def test_a_pod_with_a_service_account_can_look_too(cluster: Cluster, place: str, images: Images, guest: Path) -> None:
    assert guest.is_file()
    rights = (("apps", "deployments", "get"), ("", "pods", "list"), ("", "pods/log", "get"), ("", "pods/proxy", "get"))
    cluster.apply(role(*rights, ("", "events", "list")), place)
    looker = {
        "name": "looker",
        "image": images.product,
        "imagePullPolicy": "IfNotPresent",
        "args": ["diagnose", "--deployment", "healthy", "-o", "json"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "serviceAccountName": "guest",
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [looker],
    }
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "looker"}, "spec": spec}, place)

    def has_ended() -> bool:
        found = cluster.find("pod", "looker", place)
        return found is not None and found["status"]["phase"] in {"Succeeded", "Failed"}

    eventually(has_ended, START_LIMIT_S, "the look has ended")
    (server,) = json.loads(cluster.logs("looker", "looker", place))["servers"]
    assert server["healthy"] is True
    assert server["looked_at"]["server"]["slots"] == 2
