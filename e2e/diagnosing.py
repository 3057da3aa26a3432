"""A llama-server as it is found in the wild, in a Deployment of its own, and ``slotune diagnose`` as people run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import Cluster, Object
from e2e.manifests import target_deployment
from e2e.models import MODELS_CLAIM, WEIGHTS

__all__ = ["Said", "chat_with", "diagnose", "has_crashed_twice", "is_ready", "pod_of", "server_of", "status_of"]

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Said:
    """What the command printed."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """All of it."""
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def server(self) -> dict[str, Any]:
        """Of the one pod."""
        (found,) = self.document["servers"]
        server: dict[str, Any] = found
        return server

    @property
    def alarms(self) -> list[str]:
        """Identifiers above ``Info``, the first finding first."""
        return [one["id"] for one in self.server["findings"] if one["severity"] != "Info"]


def server_of(
    name: str, image: str, flags: tuple[str, ...], memory: str, changes: Object | None = None, **pod: Any
) -> Object:
    """A Deployment as it is found in the wild, without a GPU.

    Args:
        name: of the Deployment, and its pods' label ``app``.
        image: of the server.
        flags: after its model and its address.
        memory: its limit.
        changes: what its container has in place of the usual.
        pod: the same of the pod.
    """
    weights = f"/models/{WEIGHTS['Q4_0']}"
    container = {
        "name": "llama",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["llama-server"],
        "args": ["-m", weights, "--host", "0.0.0.0", "--port", "8080", *flags],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": memory}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    } | (changes or {})
    spec = {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 5,
        "containers": [container],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": MODELS_CLAIM, "readOnly": True}}],
    } | pod
    return target_deployment(name, {"metadata": {"labels": {"app": name}}, "spec": spec})


def pod_of(cluster: Cluster, namespace: str, name: str) -> Object:
    """Its one pod."""
    [pod] = cluster.items("pods", namespace, f"app={name}")
    return pod


def status_of(cluster: Cluster, namespace: str, name: str) -> Object:
    """Of its one container."""
    [status] = pod_of(cluster, namespace, name)["status"]["containerStatuses"]
    found: Object = status
    return found


def is_ready(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether it takes requests; before it has a pod it takes none."""
    pods = cluster.items("pods", namespace, f"app={name}")
    return any(one["ready"] for pod in pods for one in pod["status"].get("containerStatuses") or ())


def has_crashed_twice(cluster: Cluster, namespace: str, name: str) -> bool:
    """Whether it has been started again in vain."""
    status = status_of(cluster, namespace, name)
    return status["restartCount"] >= 1 and "terminated" in (status["lastState"] | status["state"])


def diagnose(kubeconfig: Path, *words: str) -> Said:
    """Run the command as a person does."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "slotune.cli", "diagnose", *words, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        env=kept | {"KUBECONFIG": str(kubeconfig)},
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr, time.monotonic() - begun)


def chat_with(cluster: Cluster, namespace: str, name: str, times: int = 3) -> None:
    """A little traffic, one request after the other."""
    address = f"http://{pod_of(cluster, namespace, name)['status']['podIP']}:8080/v1/chat/completions"
    for turn in range(times):
        body = {"messages": [{"role": "user", "content": f"Tell me story {turn}."}], "max_tokens": 8}
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with DIRECT.open(request, timeout=60) as answer:
            assert json.load(answer)["choices"]
