"""Sees that a Service of slotune's was deleted or changed, and has its LlamaDeployment look again.

Services are not watched: a fleet has one each, and a watch keeps every one in memory for a change that comes once a
year. One question for all of them, of which the answers hold no more than metadata, costs next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from slotune.controller.cluster import Cluster, ClusterError
from slotune.controller.kinds import LLAMA_DEPLOYMENT, SERVICE
from slotune.controller.store import Key, Store, key_of, labels_of
from slotune.controller.wakes import Wakes

__all__ = ["SERVICES_EVERY_S", "Services", "look_after_services"]

SERVICES_EVERY_S = 60.0

log = logging.getLogger("slotune.controller")


class Services:
    """The Services of owned mode, as they were found last."""

    def __init__(self, cluster: Cluster, store: Store, namespaces: tuple[str, ...]) -> None:
        self._cluster, self._store = cluster, store
        self._places: tuple[str | None, ...] = namespaces or (None,)
        self._seen: dict[Key, tuple[Key, object]] = {}
        """LlamaDeployment and version by Service."""

    async def changed(self) -> set[Key]:
        """LlamaDeployments whose Service is gone or another than it was found last."""
        if not any("template" in (raw.get("spec") or {}) for raw in self._store.of(LLAMA_DEPLOYMENT).values()):
            return set()
        found: dict[Key, tuple[Key, object]] = {}
        for place in self._places:
            for one in await self._cluster.list_metadata(SERVICE, place, f"{MANAGED_BY_LABEL}={MANAGED_BY}"):
                found[key_of(one)] = (_whose(one), one["metadata"].get("resourceVersion"))
        before, self._seen = self._seen, found
        return {whose for key, (whose, version) in before.items() if found.get(key) != (whose, version)}


async def look_after_services(services: Services, wakes: Wakes, every_s: float = SERVICES_EVERY_S) -> None:
    """Wake whom it concerns, for as long as it runs."""
    while True:
        try:
            wakes.wake(await services.changed())
        except ClusterError as error:
            log.info("Services are looked at later: %s", error)
        await asyncio.sleep(every_s)


def _whose(service: Mapping[str, Any]) -> Key:
    namespace, name = key_of(service)
    return namespace, labels_of(service).get(DEPLOYMENT_LABEL, name)
