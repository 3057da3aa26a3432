"""Whose an object is: nothing is written to one that slotune did not make for this very owner.

A child's name follows from its owner's, so that no look makes a second one; an object of somebody else's may have that
name already. Server-side apply would take it over, and its new owner reference would have it deleted together with the
LlamaDeployment. Labels prove nothing, since they are copied; the owner's uid does. Where an owner went and left its
children behind (``--cascade=orphan``), its successor of the same name takes over what nobody owns and slotune wrote:
whoever copies an object is the field manager of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, ROLLOUT_MANAGER, SANDBOX_MANAGER
from slotune.api.v1alpha1.meta import GROUP
from slotune.controller.cluster import Cluster, ClusterError, NotFoundError, Object
from slotune.controller.kinds import CONFIG_MAP, NETWORK_POLICY, Kind, kind_of
from slotune.sandbox.job import network_policy_name

__all__ = [
    "Names",
    "TakenError",
    "adoption",
    "check_child",
    "for_child",
    "is_child",
    "is_orphan",
    "owner_of",
    "recommendation_name",
]

AGAIN = timedelta(seconds=120)
"""Between two looks at names that nobody has yet, while there is anything to look for."""


class TakenError(ClusterError):
    """A child's name is an object's that was not made for its owner. Nothing was written to it."""

    def __init__(self, kind: str, name: str, owner: Mapping[str, Any], *, goes: bool) -> None:
        self.goes = goes
        """Whether it is of an earlier owner of the same name, and goes by itself."""
        whose = f"{owner['kind']} {owner['name']}"
        words = (
            f"it is still that of an earlier {whose}, and goes by itself; delete it if it does not"
            if goes
            else f"it is there already, slotune did not make it for {whose}, and it is left as it is: rename or delete "
            "it, or give the LlamaDeployment another metadata.name"
        )
        super().__init__(f"{kind} {name}", None, words)


def is_child(live: Mapping[str, Any], uid: str) -> bool:
    """Whether the owner with that uid owns an object."""
    return any(owner.get("uid") == uid for owner in live["metadata"].get("ownerReferences") or ())


def is_orphan(live: Mapping[str, Any], deployment: str) -> bool:
    """Whether slotune made an object for a LlamaDeployment of that name that has gone without it."""
    metadata = live["metadata"]
    labels = metadata.get("labels") or {}
    is_marked = labels.get(MANAGED_BY_LABEL) == MANAGED_BY and labels.get(DEPLOYMENT_LABEL) == deployment
    writers = {one.get("manager") for one in metadata.get("managedFields") or ()}
    return is_marked and not metadata.get("ownerReferences") and bool(writers & {ROLLOUT_MANAGER, SANDBOX_MANAGER})


def adoption(live: Mapping[str, Any], owner: Mapping[str, Any]) -> Object:
    """The merge patch by which an owner takes over exactly the orphan that was seen; nothing else of it changes."""
    seen = {name: live["metadata"][name] for name in ("uid", "resourceVersion")}
    return {"metadata": {**seen, "ownerReferences": [dict(owner)]}}


def check_child(live: Object, kind: Kind, owner: Mapping[str, Any]) -> None:
    """Raise :class:`TakenError` unless the owner that a reference names owns an object."""
    if is_child(live, owner["uid"]) or (owner["kind"] == "LlamaDeployment" and is_orphan(live, owner["name"])):
        return
    metadata = live["metadata"]
    goes = any(
        str(one.get("apiVersion")).startswith(f"{GROUP}/") and (one.get("kind"), one.get("name")) == _named(owner)
        for one in metadata.get("ownerReferences") or ()
    )
    raise TakenError(kind.name, metadata["name"], owner, goes=goes)


def recommendation_name(deployment: str) -> str:
    """Name of the ConfigMap with the answer."""
    return f"{deployment}-recommendation"


class Names:
    """Looks whether the names that every LlamaDeployment needs are its own, before it measures anything for them.

    What was seen to be its own stays so. Other names hold a digest; they are looked at when they are written.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._again: dict[str, datetime] = {}
        """When to look again, by uid of the LlamaDeployment."""

    async def taken(self, owner: Mapping[str, Any], namespace: str, now: datetime) -> TakenError | None:
        """What has such a name although ``owner``, a reference to a LlamaDeployment, does not own it."""
        if (again := self._again.get(owner["uid"])) is not None and now < again:
            return None
        name, free = owner["name"], False
        for kind, of in ((CONFIG_MAP, recommendation_name(name)), (NETWORK_POLICY, network_policy_name(name))):
            try:
                check_child(await self._cluster.get(kind, namespace, of), kind, owner)
            except NotFoundError:
                free = True
            except TakenError as error:
                return error
        self._again[owner["uid"]] = now + AGAIN if free else datetime.max.replace(tzinfo=now.tzinfo)
        return None


def owner_of(manifest: Object) -> Mapping[str, Any] | None:
    """The reference to whom a manifest is made for; None where it is no child."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    found: Mapping[str, Any] | None = next(iter(owners), None)
    return found


async def for_child(cluster: Cluster, manifest: Object) -> Object:
    """A manifest for server-side apply that lands on no object but the owner's own.

    Raises TakenError.
    """
    owner, kind, metadata = owner_of(manifest), kind_of(manifest), manifest["metadata"]
    if owner is None:
        return manifest
    try:
        live = await cluster.get(kind, metadata.get("namespace"), metadata["name"])
    except NotFoundError:
        return manifest
    check_child(live, kind, owner)
    return {**manifest, "metadata": {**metadata, "uid": live["metadata"]["uid"]}}


def _named(owner: Mapping[str, Any]) -> tuple[object, object]:
    return owner.get("kind"), owner.get("name")
