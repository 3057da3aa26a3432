"""Writes to the cluster: actions, statuses and events, each so that doing it twice does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from slotune.api.labels import STATUS_MANAGER
from slotune.controller.actions import Action, Apply, Create, Delete, Patch, StartTrial
from slotune.controller.children import check_child, for_child, is_child, owner_of
from slotune.controller.cluster import AlreadyExistsError, Cluster, ClusterError, NotFoundError, Object
from slotune.controller.kinds import SECRET, kind_of
from slotune.controller.store import Store
from slotune.controller.world import running_trials

__all__ = ["Hands", "SlotTakenError"]


class SlotTakenError(Exception):
    """As many trials run as may."""


class Hands:
    """Writes to the cluster, and to the store what the cluster answers.

    Args:
        cluster: where to.
        store: what is known.
        max_trials: trials that may run at the same time.
    """

    def __init__(self, cluster: Cluster, store: Store, max_trials: int) -> None:
        self._cluster, self._store, self._max_trials = cluster, store, max_trials
        self._starting = asyncio.Lock()

    async def apply_status(self, manifest: Object, status: Object) -> bool:
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
        self._store.put(await self._cluster.apply(body, STATUS_MANAGER, subresource="status"))
        return True

    async def carry_out(self, actions: Sequence[Action]) -> None:
        """Do it, in order. The first action that fails ends it: what follows may rest on it.

        Raises:
            SlotTakenError: another trial was quicker.
            TakenError: an object that others made has the name.
            ClusterError: the API server did not do it.
        """
        for action in actions:
            if isinstance(action, StartTrial):
                await self._start(action)
            else:
                await self._do(action)

    async def _start(self, action: StartTrial) -> None:
        # One at a time, each counting anew: two that look at once would both see the last free place.
        async with self._starting:
            if running_trials(self._store) >= self._max_trials:
                raise SlotTakenError
            await self._do(Create(action.job))

    async def _do(self, action: Create | Apply | Patch | Delete) -> None:
        match action:
            case Create():
                try:
                    self._store.put(await self._cluster.create(action.manifest))
                except AlreadyExistsError:  # by an earlier try, whose answer was lost, or by somebody else
                    if kind_of(action.manifest) != SECRET:  # which may be made and not read: see recordings
                        await self._see_whose(action.manifest)
            case Apply():
                manifest = action.manifest
                if not action.subresource:  # a status names the uid that was seen
                    manifest = await for_child(self._cluster, manifest)
                applied = await self._cluster.apply(
                    manifest, action.manager, force=action.force, subresource=action.subresource
                )
                self._store.put(applied)
            case Patch():
                patched = await self._cluster.patch(
                    action.kind, action.namespace, action.name, action.patch, action.subresource, manager=action.manager
                )
                if action.subresource != "scale":
                    self._store.put(patched)
            case Delete():
                await self._cluster.delete(action.kind, action.namespace, action.name, uid=action.uid)
                await self._see_the_end(action)

    async def _see_whose(self, manifest: Object) -> None:
        """What has the name of a new object may only be that object."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        try:
            live = await self._cluster.get(kind, metadata.get("namespace"), metadata["name"])
        except NotFoundError:  # it went meanwhile; another look makes it
            return
        if (owner := owner_of(manifest)) is not None:
            check_child(live, kind, owner)
            if not is_child(live, owner["uid"]):
                # An earlier owner left it behind. To change its owner takes a right that nothing else needs: it goes,
                # and the next look makes it anew.
                self._store.put(live)
                await self._do(Delete(kind, metadata["namespace"], metadata["name"], live["metadata"]["uid"]))
                return
        self._store.put(live)

    async def _see_the_end(self, action: Delete) -> None:
        """The watch tells of it later: until then a look would find the object, and take its end for news."""
        seen = self._store.get(action.kind, action.namespace, action.name)
        if seen is None or seen["metadata"].get("uid") != action.uid:
            return
        try:
            left = await self._cluster.get(action.kind, action.namespace, action.name)
        except NotFoundError:
            left = {"metadata": {}}
        if left["metadata"].get("uid") == action.uid:  # a finalizer holds it
            self._store.put(left)
        else:
            self._store.remove({"apiVersion": action.kind.api_version, "kind": action.kind.name} | seen)

    async def tell(self, events: Sequence[Object]) -> None:
        """Post events. They are for people: one that can't be posted stops nothing."""
        for event in events:
            try:
                await self._cluster.create(event)
            except ClusterError:  # also one that was said by a life of this operator that was cut short
                continue
