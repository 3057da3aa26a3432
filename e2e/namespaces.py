"""Namespaces of the tests: enforcing Pod Security ``restricted``, with models where wanted, and gone afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster import Cluster
from e2e.models import models_manifests
from e2e.waiting import NotYetError, eventually

__all__ = ["namespaces_of_tests", "new_namespace"]

REMOVAL_LIMIT_S = 90.0
"""For a namespace and all that is in it. Pods may take 30 s to end."""
_LABEL = "slotune-e2e"


@contextlib.contextmanager
def new_namespace(cluster: Cluster, weights: Path | None = None) -> Iterator[str]:
    """A namespace that enforces ``restricted``; with ``weights`` it has the claim of :mod:`e2e.models`.

    Raises:
        AssertionError: it did not go away in time; the message says what Kubernetes says about it.
    """
    name = f"e2e-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted", _LABEL: "true"}
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    # A pod that comes before its service account is refused.
    eventually(lambda: cluster.find("serviceaccount", "default", name), 30, f"a service account in {name}")
    if weights is not None:
        cluster.apply(models_manifests(f"models-{name}", name, weights))
    try:
        yield name
    finally:
        _remove(cluster, name)
        if weights is not None:
            cluster.delete("persistentvolume", f"models-{name}", wait=False)


def _remove(cluster: Cluster, name: str) -> None:
    cluster.delete("namespace", name, wait=False)
    try:
        eventually(lambda: cluster.find("namespace", name) is None, REMOVAL_LIMIT_S, f"namespace {name} is gone")
    except NotYetError:
        left = cluster.find("namespace", name) or {}
        held = [it.get("message") for it in left.get("status", {}).get("conditions", []) if it["status"] == "True"]
        raise AssertionError(f"namespace {name} is still there after {REMOVAL_LIMIT_S:g} s: {held}") from None


def namespaces_of_tests(cluster: Cluster) -> list[str]:
    """Those that are there now."""
    found = cluster.kubectl("get", "namespaces", f"--selector={_LABEL}=true")["items"]
    return [it["metadata"]["name"] for it in found]
