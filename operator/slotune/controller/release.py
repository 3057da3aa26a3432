"""Lets go of LlamaDeployments after the operator itself is gone: gives back what was borrowed, then takes the finalizer
off, without which nothing could ever delete them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from slotune.api.labels import BORROW_MANAGER, FINALIZER
from slotune.controller.cluster import Cluster, NotFoundError, Object
from slotune.controller.kinds import DEPLOYMENT, LLAMA_DEPLOYMENT

__all__ = ["release", "restore_production"]


async def release(cluster: Cluster, namespace: str | None, name: str | None) -> AsyncIterator[str]:
    """Release every LlamaDeployment of a namespace (None: of all), or the one called ``name``; a sentence for each.

    Raises ClusterError when something can't be done; what was released before stays so.
    """
    for raw in await cluster.list(LLAMA_DEPLOYMENT, namespace):
        metadata = raw["metadata"]
        if name is not None and metadata["name"] != name:
            continue
        told = await restore_production(cluster, raw)
        kept = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
        if len(kept) != len(metadata.get("finalizers") or ()):
            patch = {"metadata": {"finalizers": kept or None, "resourceVersion": metadata["resourceVersion"]}}
            await cluster.patch(LLAMA_DEPLOYMENT, metadata["namespace"], metadata["name"], patch)
            told = told or "released"
        yield f"{metadata['namespace']}/{metadata['name']}: {told or 'was not held'}"


async def restore_production(cluster: Cluster, raw: Object) -> str:
    """Scale production back to what it had before its GPU was borrowed. What was done, in words; empty for nothing.

    Another Deployment of the same name, and one that somebody has scaled up meanwhile, are left alone.
    """
    intent = (raw.get("status") or {}).get("restore")
    if not intent:
        return ""
    namespace = raw["metadata"]["namespace"]
    try:
        found = await cluster.get(DEPLOYMENT, namespace, intent["name"])
    except NotFoundError:
        return f"Deployment {intent['name']} is gone, so nothing is given back"
    if found["metadata"]["uid"] != intent["uid"]:
        return f"Deployment {intent['name']} is another one than the borrowed, so it is left alone"
    if found["spec"].get("replicas", 1) > 0:
        return f"Deployment {intent['name']} has {found['spec'].get('replicas', 1)} replicas already"
    patch = {"metadata": {"uid": intent["uid"]}, "spec": {"replicas": intent["replicas"]}}
    await cluster.patch(DEPLOYMENT, namespace, intent["name"], patch, manager=BORROW_MANAGER)
    return f"Deployment {intent['name']} got its {intent['replicas']} replicas back"
