"""What else a name may mean that is no Deployment: something that runs pods, with the way in which it can be looked at.

Only asked when there is no Deployment of the name, so a miss costs four small requests and a hit none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slotune.controller.cluster import Cluster, ForbiddenError, NotFoundError, Object
from slotune.controller.kinds import POD, Kind

__all__ = ["DAEMON_SET", "REPLICA_SET", "STATEFUL_SET", "other_of_that_name"]

STATEFUL_SET: Final = Kind("StatefulSet", "apps", "v1", "statefulsets")
DAEMON_SET: Final = Kind("DaemonSet", "apps", "v1", "daemonsets")
REPLICA_SET: Final = Kind("ReplicaSet", "apps", "v1", "replicasets")

_DEPLOYMENT: Final = "Deployment"
_MOST_OWNERS: Final = 3


async def other_of_that_name(cluster: Cluster, namespace: str, name: str) -> str:
    """What it is and how to look at it, as a cure; empty where there is no such thing, or it may not be seen.

    Raises:
        ClusterError: the API server does not answer.
    """
    for kind in (STATEFUL_SET, DAEMON_SET, POD, REPLICA_SET):
        if (found := await _get(cluster, kind, namespace, name)) is not None:
            return await _words(cluster, kind, namespace, found)
    return ""


async def _words(cluster: Cluster, kind: Kind, namespace: str, found: Object) -> str:
    name, owned = str(found["metadata"]["name"]), found
    for _ in range(_MOST_OWNERS):
        owner = _owner(owned)
        if owner is None:
            break
        if owner["kind"] == _DEPLOYMENT:
            return f"that is a {kind.name} of Deployment {owner['name']}: name that"
        held = await _get(cluster, REPLICA_SET, namespace, owner["name"]) if owner["kind"] == REPLICA_SET.name else None
        if held is None:
            break
        owned = held
    what = f"{kind.name.lower()}/{name}"
    return (
        f"namespace {namespace} has no Deployment of that name but a {kind.name}: give its log and its address: "
        f"kubectl logs -n {namespace} {what} | slotune diagnose --log -, or kubectl port-forward -n {namespace} {what} "
        "8080 and then slotune diagnose --url http://127.0.0.1:8080"
    )


async def _get(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Object | None:
    try:
        return await cluster.get(kind, namespace, name)
    except (NotFoundError, ForbiddenError):
        return None


def _owner(found: Object) -> Mapping[str, Any] | None:
    """Who made it."""
    owners = found["metadata"].get("ownerReferences") or ()
    return next((one for one in owners if one.get("controller") and one.get("kind") and one.get("name")), None)
