"""Carries out a plan: the status first, since it holds what must be known if the operator dies right after; then the
actions in their order; then the events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slotune.api.labels import STATUS_MANAGER
from slotune.controller.actions import Action, Apply, Create, Delete, Patch
from slotune.controller.cluster import AlreadyExistsError, Cluster, ClusterError, Object
from slotune.controller.store import Store

__all__ = ["apply_status", "carry_out", "post_events"]


async def apply_status(cluster: Cluster, store: Store, manifest: Object, status: Object) -> bool:
    """Write a status if it says anything new. Whether it was written."""
    if (manifest.get("status") or {}) == status:
        return False
    metadata = manifest["metadata"]
    body: Object = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        # The uid makes sure that a status never lands on another object of the same name.
        "metadata": {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata},
        "status": status,
    }
    store.put(await cluster.apply(body, STATUS_MANAGER, subresource="status"))
    return True


async def carry_out(cluster: Cluster, store: Store, actions: Sequence[Action]) -> None:
    """Do it, in order. The first action that fails ends it: what follows may rest on it."""
    for action in actions:
        match action:
            case Create():
                try:
                    store.put(await cluster.create(action.manifest))
                except AlreadyExistsError:  # an earlier try, whose answer was lost; the watch brings the object
                    continue
            case Apply():
                applied = await cluster.apply(
                    action.manifest, action.manager, force=action.force, subresource=action.subresource
                )
                store.put(applied)
            case Patch():
                patched = await cluster.patch(
                    action.kind, action.namespace, action.name, action.patch, action.subresource
                )
                if action.subresource != "scale":
                    store.put(patched)
            case Delete():
                await cluster.delete(action.kind, action.namespace, action.name, uid=action.uid)


async def post_events(cluster: Cluster, events: Sequence[Object]) -> None:
    """Post events. They are for people: one that can't be posted stops nothing."""
    for event in events:
        try:
            await cluster.create(event)
        except AlreadyExistsError:
            continue  # said already, by a life of this operator that was cut short
        except ClusterError:
            await asyncio.sleep(0)
