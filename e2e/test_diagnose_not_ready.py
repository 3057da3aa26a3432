"""``slotune diagnose --deployment`` on pods that nobody can reach: the first finding says why, with the cure of it, and
none of them is called healthy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster, Object
from e2e.conftest import Images
from e2e.diagnosing import diagnose, is_ready, pod_of, server_of
from e2e.namespaces import new_namespace
from e2e.waiting import eventually

LIMIT_S = 180.0
"""For a fault to show, beside the others on two cores."""
CALM = ("-c", "1024", "-np", "1", "-t", "1", "-tb", "1", "--cache-ram", "0", "--metrics", "--slots")
MEMORY = "512Mi"
SAFE: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
STOP = """
import os, signal, pathlib
for one in pathlib.Path("/proc").glob("[0-9]*"):
    if one.name != str(os.getpid()) and b"--port" in (one / "cmdline").read_bytes():
        os.kill(int(one.name), signal.SIGSTOP)
"""
"""Freezes the server from a process beside it, which shares its pod's process namespace."""


def fetching(image: str) -> Object:
    """An init container that fails."""
    failing = {"command": ["llama-server"], "args": ["--no-such-flag"], "securityContext": SAFE}
    return {"name": "fetch", "image": image, "imagePullPolicy": "IfNotPresent"} | failing


@dataclass(frozen=True)
class Fault:
    """One, how it shows in the pod, and what is said of it."""

    shows: Callable[[Cluster, str, str], bool]
    first: str
    """A part of what to try first."""
    flags: tuple[str, ...] = CALM
    changes: Callable[[], Object] = dict
    pod: Callable[[str], Object] = lambda _: {}
    id: str = "SLT116"


def waits_for_image(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether a pull failed."""
    statuses = pod_of(cluster, namespace, name)["status"].get("containerStatuses") or []
    waiting = [one["state"].get("waiting") or {} for one in statuses]
    return any(one.get("reason") in {"ErrImagePull", "ImagePullBackOff"} for one in waiting)


def is_unscheduled(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether no node took it."""
    conditions = pod_of(cluster, namespace, name)["status"].get("conditions") or []
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def init_has_failed(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether its init container was started again in vain."""
    statuses = pod_of(cluster, namespace, name)["status"].get("initContainerStatuses") or []
    return any(one["restartCount"] for one in statuses)


def was_restarted(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether kubelet killed it."""
    statuses = pod_of(cluster, namespace, name)["status"].get("containerStatuses") or []
    return any(one["restartCount"] for one in statuses)


def is_unhealthy_by(words: str) -> Callable[[Cluster, str, str], bool]:
    """Whether kubelet said so of its probe."""

    def shows(cluster: Cluster, namespace: str, name: str) -> bool:
        pod = pod_of(cluster, namespace, name)["metadata"]["name"]
        about = [one for one in cluster.items("events", namespace) if one["involvedObject"].get("name") == pod]
        return any(words in (one.get("message") or "") for one in about)

    return shows


def is_frozen(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether it has been stopped, and kubelet has seen that."""
    return not is_ready(cluster, namespace, name)


def of_probe(kind: str, **get: Any) -> Callable[[], Object]:
    """A container with this probe."""
    usual: Object = {"path": "/health", "port": 8080}
    return lambda: {kind: {"httpGet": usual | get, "periodSeconds": 2, "failureThreshold": 2}}


FAULTS = {
    "pull": Fault(
        waits_for_image, "the image's name", changes=lambda: {"image": "localhost/slotune-e2e/no-such-image:1"}
    ),
    "pending": Fault(
        is_unscheduled, "Free a nvidia.com/gpu", changes=lambda: {"resources": {"limits": {"nvidia.com/gpu": "64"}}}
    ),
    "readiness": Fault(
        is_unhealthy_by("statuscode: 404"), "ask /health at port 8080", changes=of_probe("readinessProbe", path="/nope")
    ),
    "loopback": Fault(is_unhealthy_by("connection refused"), "--host 0.0.0.0", flags=(*CALM, "--host", "127.0.0.1")),
    "liveness": Fault(was_restarted, "ask port 8080", changes=of_probe("livenessProbe", port=8099), id="SLT117"),
    "init": Fault(init_has_failed, "-c fetch", pod=lambda image: {"initContainers": [fetching(image)]}),
    "frozen": Fault(is_frozen, "delete the pod", pod=lambda _: {"shareProcessNamespace": True}),
}


@pytest.fixture(scope="module")
def place(cluster: Cluster, images: Images, weights: Path) -> Iterator[str]:
    """A namespace with a Deployment for each fault."""
    if cluster.node is None:
        pytest.skip("the models are in a folder of this machine, which another cluster's nodes do not see")
    with new_namespace(cluster, weights) as name:
        made = [
            server_of(one, images.engine, fault.flags, MEMORY, fault.changes(), **fault.pod(images.engine))
            for one, fault in FAULTS.items()
        ]
        cluster.apply(made, name)
        eventually(partial(is_ready, cluster, name, "frozen"), LIMIT_S, "the server to freeze is ready")
        cluster.text("exec", "deploy/frozen", "--", "python3", "-c", STOP, namespace=name)
        yield name


@pytest.mark.parametrize("name", FAULTS)
def test_a_pod_that_nobody_can_reach_says_why_first(cluster: Cluster, place: str, name: str) -> None:
    fault = FAULTS[name]
    eventually(partial(fault.shows, cluster, place, name), LIMIT_S, f"the fault of {name} shows")

    said = diagnose(cluster.kubeconfig, "--deployment", name, "-n", place)

    assert said.alarms[:1] == [fault.id], said.out
    first = said.server["findings"][0]
    assert fault.first in first["try_first"]
    assert "SLT034" not in said.alarms
    assert said.server["healthy"] is False
    assert said.document["healthy"] is False
    pod = said.server["looked_at"]["pod"]
    assert pod["ready"] is False or name == "liveness"
    assert pod["reasons"]
    assert not any("no reason was given" in note for note in said.document["notes"])
