"""The operator as a process beside the cluster, the same program as in its pod: a test says when it is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from e2e.cluster import Cluster, Object
from e2e.evidence import OPERATOR_LABEL
from e2e.node.places import CHECKOUT
from e2e.waiting import eventually

__all__ = ["OperatorProcess", "definitions", "free_port", "no_operator_inside", "operating"]

START_LIMIT_S = 60.0
"""Until /readyz says yes. Seen: 3 s; a machine that is busy takes several times that."""
END_LIMIT_S = 30.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@dataclass(slots=True)
class OperatorProcess:
    """One operator, which may be killed and started again. All its lives write into one log."""

    kubeconfig: Path
    image: str
    """slotune's own, for trials and surveys."""
    log: Path
    namespaces: Sequence[str] = ()
    """None means all."""
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the life that runs, or ran last."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        """A new life; with ``wait`` it returns once the operator works."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        with self.log.open("ab") as log:
            log.write(f"--- started at {time.strftime('%H:%M:%S')}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment()
            )
        if wait:
            eventually(self.is_ready, START_LIMIT_S, f"the operator is ready; its log: {self.log}")

    def command(self) -> list[str]:
        """What is run."""
        ports = ["--health-port", str(self.health_port), "--metrics-port", str(self.metrics_port)]
        places = [word for name in self.namespaces for word in ("--namespace", name)]
        program = [sys.executable, "-m", "slotune.cli", "operator"]
        return [*program, "--trial-image", self.image, "--log-format", "text", *ports, *places]

    def kill(self) -> None:
        """SIGKILL, as the kernel or a node that goes away does it; returns when it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_LIMIT_S)

    def terminate(self) -> tuple[int, float]:
        """SIGTERM, as Kubernetes asks a pod to end: its exit status, and the seconds that it took."""
        assert self._process is not None
        asked = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(END_LIMIT_S)
        return status, time.monotonic() - asked

    def is_ready(self) -> bool:
        """What a kubelet would be told."""
        assert self._process is not None
        status = self._process.poll()
        assert status is None, f"the operator ended with {status}: {self.log.read_text()[-2000:]}"
        try:
            with _DIRECT.open(f"http://127.0.0.1:{self.health_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def peak_memory_mib(self) -> float:
        """The most memory that this life has held so far, in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 1024

    def environment(self) -> dict[str, str]:
        """Without proxies: the cluster is on this machine. Temporary files stay beside the log: one that is killed
        cannot remove the copies of the kubeconfig's key that the client library makes."""
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        ours = {"KUBECONFIG": str(self.kubeconfig), "TMPDIR": str(self.log.parent)}
        return kept | ours | {"HOSTNAME": "slotune-e2e", "PYTHONUNBUFFERED": "1"}


@contextmanager
def operating(cluster: Cluster, image: str, namespace: str, log: Path) -> Iterator[OperatorProcess]:
    """An operator for one namespace. In the end it is given the time to let go of what it tunes there: without an
    operator nobody would take the finalizers away. Its log is printed."""
    operator = OperatorProcess(cluster.kubeconfig, image, log, [namespace])
    operator.start()
    try:
        yield operator
    finally:
        try:
            if not operator.is_running():
                operator.start()
            cluster.text("delete", "llamadeployments", "--all", namespace=namespace)
        finally:
            operator.kill()
            print(log.read_text())


@contextmanager
def definitions(cluster: Cluster) -> Iterator[None]:
    """The CRDs of this checkout, for the block's time unless the cluster had them before."""
    folder = str(CHECKOUT / "crds")
    there = cluster.find("customresourcedefinition", "llamadeployments.slotune.dev") is not None
    if not there:
        cluster.text("apply", "--server-side", f"--filename={folder}")
        # Established comes before the API server that is asked next answers for the kind.
        for plural in ("llamadeployments", "llamatrials", "llamaworkloads", "gpuclasses"):
            eventually(partial(_is_served, cluster, plural), 30, f"{plural} are served")
    try:
        yield
    finally:
        if not there:
            cluster.text("delete", "--ignore-not-found", f"--filename={folder}")


def _is_served(cluster: Cluster, plural: str) -> bool:
    return '"items"' in cluster.text("get", "--raw", f"/apis/slotune.dev/v1alpha1/{plural}")


@contextmanager
def no_operator_inside(cluster: Cluster) -> Iterator[None]:
    """An operator that the cluster runs itself rests meanwhile: two would both measure."""
    resting = cluster.kubectl("get", "deployments", "--all-namespaces", f"--selector={OPERATOR_LABEL}")["items"]
    for one in resting:
        _scale(cluster, one, 0)
    try:
        yield
    finally:
        for one in resting:
            _scale(cluster, one, one["spec"]["replicas"])


def _scale(cluster: Cluster, deployment: Object, replicas: int) -> None:
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    cluster.text("scale", "deployment", name, f"--replicas={replicas}", namespace=namespace)

    def is_scaled() -> bool:
        labels = ",".join(f"{key}={value}" for key, value in deployment["spec"]["selector"]["matchLabels"].items())
        pods = cluster.items("pods", namespace, labels)
        return len(pods) == replicas and all(
            status["ready"] for pod in pods for status in pod["status"].get("containerStatuses") or [{"ready": False}]
        )

    eventually(is_scaled, START_LIMIT_S, f"{name} has {replicas} pods")
