"""Namespaces of the tests: enforcing Pod Security ``restricted``, with models where wanted, and gone afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster import Cluster, Object
from e2e.models import models_manifests
from e2e.waiting import NotYetError, eventually

__all__ = ["namespaces_of_tests", "new_namespace", "wait_until_gone"]

REMOVAL_LIMIT_S = 90.0
"""For a namespace and all that is in it. Pods may take 30 s to end."""
_LABEL = "slotune-e2e"


@contextlib.contextmanager
def new_namespace(cluster: Cluster, weights: Path | None = None, *, wait: bool = True) -> Iterator[str]:
    """A namespace that enforces ``restricted``; with ``weights`` it has the claim of :mod:`e2e.models`.

    Args:
        cluster: Where.
        weights: A folder of this machine.
        wait: Until it is gone, afterwards. Otherwise :func:`wait_until_gone` does that for all of them at once.

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
        cluster.delete("namespace", name, wait=False)
        if wait:
            wait_until_gone(cluster, name)
        if weights is not None:
            cluster.delete("persistentvolume", f"models-{name}", wait=False)


def wait_until_gone(cluster: Cluster, *names: str) -> None:
    """Until namespaces that were deleted are no more; all of them when none is named.

    Raises:
        AssertionError: one is still there; the message says what Kubernetes says about it.
    """

    def left() -> list[Object]:
        found = cluster.kubectl("get", "namespaces", f"--selector={_LABEL}=true")["items"]
        going = [it for it in found if "deletionTimestamp" in it["metadata"]]
        return [it for it in going if not names or it["metadata"]["name"] in names]

    try:
        eventually(lambda: not left(), REMOVAL_LIMIT_S, "namespaces are gone")
    except NotYetError:
        held = {
            it["metadata"]["name"]: [
                one.get("message") for one in it["status"].get("conditions", []) if one["status"] == "True"
            ]
            for it in left()
        }
        raise AssertionError(f"still there after {REMOVAL_LIMIT_S:g} s: {held}") from None


def namespaces_of_tests(cluster: Cluster) -> list[str]:
    """Those that are there now, and are to stay."""
    found = cluster.kubectl("get", "namespaces", f"--selector={_LABEL}=true")["items"]
    return [it["metadata"]["name"] for it in found if "deletionTimestamp" not in it["metadata"]]
