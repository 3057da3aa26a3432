"""What a failed test prints: objects, events and logs, so that nobody has to run it again only to look."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from e2e.cluster import Cluster, KubectlError

__all__ = ["collect_evidence", "operator_logs"]

LOG_LINES = 150
"""Of each container."""
OPERATOR_LABEL = "app.kubernetes.io/name=slotune"
_NAMED_KINDS = "llamadeployments,llamatrials"
_KINDS = "deployments,replicasets,jobs,pods,services,configmaps"


def collect_evidence(cluster: Cluster, namespace: str) -> str:
    """Everything of a namespace that helps, as one text."""
    parts = [
        _asked(cluster, namespace, "get", f"{_KINDS},networkpolicies", "--output=wide"),
        _asked(cluster, namespace, "get", _NAMED_KINDS, "--output=yaml"),
        _asked(cluster, namespace, "get", _KINDS, "--output=yaml"),
        _asked(cluster, namespace, "get", "events", "--sort-by=.lastTimestamp"),
        *_logs(cluster, ["--namespace", namespace]),
    ]
    return "\n\n".join(part for part in parts if part)


def operator_logs(cluster: Cluster) -> str:
    """What every operator on the cluster logged last."""
    return "\n\n".join(_logs(cluster, ["--all-namespaces", f"--selector={OPERATOR_LABEL}"]))


def _logs(cluster: Cluster, selection: list[str]) -> Iterator[str]:
    try:
        pods = cluster.kubectl("get", "pods", *selection)["items"]
    except (KubectlError, subprocess.TimeoutExpired) as error:
        yield str(error)
        return
    for pod in pods:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
        for status in statuses:
            tail = ["logs", name, f"--container={status['name']}", f"--tail={LOG_LINES}"]
            if status.get("restartCount"):
                yield _asked(cluster, namespace, *tail, "--previous")
            yield _asked(cluster, namespace, *tail)


def _asked(cluster: Cluster, namespace: str, *words: str) -> str:
    try:
        answer = cluster.text(*words, namespace=namespace, timeout=30).strip()
    except (KubectlError, subprocess.TimeoutExpired) as error:
        answer = str(error)
    return f"$ kubectl -n {namespace} {' '.join(words)}\n{answer}"
