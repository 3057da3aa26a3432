"""The operator as a user installs it: the chart by helm, from the image of this checkout. Its process may be killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cluster import Cluster, KubectlError, Object
from e2e.node.places import CHECKOUT
from e2e.node.programs import find_programs
from e2e.waiting import eventually

__all__ = ["OPERATOR_NAMESPACE", "Operator", "installed"]

OPERATOR_NAMESPACE = "slotune-system"
RELEASE = "slotune"
_CHART = str(CHECKOUT / "charts" / "slotune")
_INSTALL_LIMIT_S = 180
_RESTART_LIMIT_S = 90
"""Kubernetes starts a container that died at once, and after the second time in a row within 10 s, 20 s and so on."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The operator that runs on the cluster."""

    cluster: Cluster
    namespace: str = OPERATOR_NAMESPACE

    @property
    def pod(self) -> str:
        """The name of its one pod."""
        [pod] = self._pods()
        name: str = pod["metadata"]["name"]
        return name

    def restarts(self) -> int:
        """How often its container was started again."""
        return int(self._status()["restartCount"])

    def logs(self) -> str:
        """What it has logged since its process started, after what the process before it had logged."""
        words = ["logs", self.pod, "--container=operator"]
        before = self.cluster.text(*words, "--previous", namespace=self.namespace) if self.restarts() else ""
        return before + self.cluster.text(*words, namespace=self.namespace)

    def metrics(self) -> str:
        """Its own metrics, in Prometheus's text format."""
        return self.cluster.text(
            "get", "--raw", f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}:9090/proxy/metrics"
        )

    def looks(self) -> int:
        """Reconciles since its process started, however they ended."""
        lines = [line for line in self.metrics().splitlines() if line.startswith("slotune_reconcile_total{")]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def kill(self) -> None:
        """End its process with SIGKILL, as a node that is out of memory does; the kubelet starts another.

        Returns as soon as the process is gone. :meth:`wait_ready` waits for the next.
        """
        node = self.cluster.node
        if node is None:
            pytest.skip("a process can only be killed on a node that the tests made")
        identity = self._status()["containerID"].removeprefix("containerd://")
        socket = str(node.record.containerd_socket)
        command = [node.programs["ctr"], "--address", socket, "--namespace", "k8s.io"]
        subprocess.run([*command, "tasks", "kill", "--signal", "SIGKILL", identity], check=True, capture_output=True)
        eventually(
            lambda: (
                self._status().get("containerID", "").removeprefix("containerd://") != identity
                or "running" not in self._status()["state"]
            ),
            _RESTART_LIMIT_S,
            "the kubelet has seen that the operator's process is gone",
        )

    def upgrade(self, **values: object) -> None:
        """Other values for the chart; those not named stay."""
        wait = f"--timeout={_INSTALL_LIMIT_S}s"
        _helm(self.cluster, "upgrade", RELEASE, _CHART, "--reuse-values", "--values=-", "--wait", wait, stdin=values)

    def wait_ready(self, timeout: float = _RESTART_LIMIT_S) -> None:
        """Until its reconcile loop runs, as its own /readyz says."""
        eventually(lambda: self._status()["ready"], timeout, "the operator is ready")

    def _pods(self) -> list[Object]:
        pods = self.cluster.items("pods", self.namespace, f"app.kubernetes.io/instance={RELEASE}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def _status(self) -> Object:
        [pod] = self._pods()
        [status] = pod["status"]["containerStatuses"]
        found: Object = status
        return found


@contextlib.contextmanager
def installed(cluster: Cluster, image: str, **values: object) -> Iterator[Operator]:
    """The operator, with the right to write Deployments, in all namespaces; gone with its definitions afterwards.

    Args:
        cluster: Where.
        image: ``repository:tag``.
        values: Of the chart, by their first name, over those that the tests set.

    Raises:
        AssertionError: helm failed, or the operator was not ready in time; the message has its log.
    """
    repository, _, tag = image.rpartition(":")
    given: dict[str, object] = {
        "image": {"repository": repository, "tag": tag},
        "permissions": {"deployments": "Write"},
        # The definitions were made by the tests, so they go with the tests.
        "crds": {"keep": False},
        # Restarts are the tests' own doing, and a busy machine is slow to start Python.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    } | values
    wait = f"--timeout={_INSTALL_LIMIT_S}s"
    if cluster.node is not None:
        _clear(cluster)
        _uninstall(cluster)
    operator = Operator(cluster)
    try:
        _helm(cluster, "install", RELEASE, _CHART, "--create-namespace", "--values=-", "--wait", wait, stdin=given)
    except AssertionError as error:
        selector = f"--selector=app.kubernetes.io/instance={RELEASE}"
        told = cluster.text("describe", "pods", selector, namespace=operator.namespace)
        log = cluster.text("logs", selector, "--tail=50", namespace=operator.namespace)
        raise AssertionError(f"{error}\n{told}\n{log}") from None
    try:
        yield operator
    finally:
        _uninstall(cluster)
        cluster.delete("namespace", operator.namespace, wait=False)


def _uninstall(cluster: Cluster) -> None:
    _helm(cluster, "uninstall", RELEASE, "--ignore-not-found", "--wait", f"--timeout={_INSTALL_LIMIT_S}s")
    definitions = "llamadeployments.slotune.dev"
    eventually(lambda: not cluster.find("crd", definitions), _INSTALL_LIMIT_S, f"{definitions} is gone")


def _clear(cluster: Cluster) -> None:
    """Let go of what a run that was cut short has left: without an operator nobody takes the finalizers away."""
    if not cluster.find("crd", "llamadeployments.slotune.dev"):
        return
    for left in cluster.kubectl("get", "llamadeployments", "--all-namespaces")["items"]:
        name, namespace = left["metadata"]["name"], left["metadata"]["namespace"]
        cluster.delete("llamadeployment", name, namespace, wait=False)
        forget = '{"metadata": {"finalizers": null}}'
        with contextlib.suppress(KubectlError):  # the operator, when there is one, may have been faster
            cluster.text("patch", "llamadeployment", name, "--type=merge", f"--patch={forget}", namespace=namespace)


def _helm(cluster: Cluster, *words: str, stdin: dict[str, object] | None = None) -> None:
    helm = Path(find_programs()["helm"])
    command = [str(helm), "--kubeconfig", str(cluster.kubeconfig), "--namespace", OPERATOR_NAMESPACE, *words]
    done = subprocess.run(
        command,
        input=json.dumps(stdin or {}),
        capture_output=True,
        text=True,
        timeout=_INSTALL_LIMIT_S + 60,
        check=False,
    )
    assert done.returncode == 0, f"helm {words[0]}: {done.stderr.strip()}"
