"""Talking to the cluster as a user would, with kubectl, and reading the answers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.node.lifecycle import Node, set_gpus

__all__ = ["Cluster", "KubectlError", "Object"]

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""

CALL_LIMIT_S = 120.0
"""For one call of kubectl; a call that waits for something names its own limit."""


class KubectlError(AssertionError):
    """kubectl ended with an error, and its message is this one's."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster and the way to it."""

    kubeconfig: Path
    program: str
    """kubectl."""
    node: Node | None = None
    """None for a cluster that was there before the tests."""

    def text(
        self, *words: str, namespace: str | None = None, stdin: str | None = None, timeout: float = CALL_LIMIT_S
    ) -> str:
        """What kubectl prints.

        Raises:
            KubectlError: it ended with an error.
            subprocess.TimeoutExpired: it did not end.
        """
        command = [self.program, f"--kubeconfig={self.kubeconfig}"]
        if namespace is not None:
            command.append(f"--namespace={namespace}")
        done = subprocess.run(
            [*command, *words], input=stdin or "", capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def kubectl(self, *words: str, namespace: str | None = None, stdin: str | None = None) -> Object:
        """kubectl's answer as JSON: an object, or a list of them under ``items``."""
        answer: Object = json.loads(self.text(*words, "--output=json", namespace=namespace, stdin=stdin) or "{}")
        return answer

    def find(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when there is none."""
        return self.kubectl("get", kind, name, "--ignore-not-found", namespace=namespace) or None

    def items(self, kind: str, namespace: str | None = None, labels: str = "") -> list[Object]:
        """All objects of a kind in a namespace, with these labels if any are named (``a=b,c!=d``)."""
        listed = self.kubectl("get", kind, f"--selector={labels}", namespace=namespace)
        items: list[Object] = listed["items"]
        return items

    def apply(self, manifests: str | Object | Sequence[Object], namespace: str | None = None) -> None:
        """``kubectl apply`` of YAML text, of one object or of several."""
        if isinstance(manifests, dict):
            manifests = json.dumps(manifests)
        elif not isinstance(manifests, str):
            manifests = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self.text("apply", "--filename=-", namespace=namespace, stdin=manifests)

    def delete(self, kind: str, name: str, namespace: str | None = None, *, wait: bool = True) -> None:
        """Delete one object if it is there, and wait until it is gone unless told not to."""
        self.text("delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}", namespace=namespace)

    def logs(self, pod: str, container: str, namespace: str) -> str:
        """A container's log."""
        return self.text("logs", pod, f"--container={container}", namespace=namespace)

    def set_gpus(self, count: int) -> None:
        """Let the node claim another number of GPUs; only where the tests made the node themselves."""
        assert self.node is not None, "the number of GPUs can only be set on a node that the tests made"
        set_gpus(self.node, count)

    def metrics(self) -> str:
        """The API server's metrics, in Prometheus's text format."""
        return self.text("get", "--raw", "/metrics")

    def requests_seen(self, group: str) -> float:
        """How many requests for objects of an API group the server has answered so far, those of tests included."""
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.metrics().splitlines()
            if line.startswith("apiserver_request_total{") and f'group="{group}"' in line
        )
