"""The thin layer of kopf: watches fill the store and wake, one daemon per LlamaDeployment schedules.

Nothing is decided here. There are no create, update or delete handlers and no timers: kopf would write its own notes
into the users' objects for them, and they lose a retry when causes supersede each other (dask-kubernetes#976). With a
daemon and event handlers alone it writes the finalizer and nothing else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from collections.abc import Mapping, Set
from typing import Any, Protocol

import kopf

from slotune.api.labels import DEPLOYMENT_LABEL, FINALIZER, MANAGED_BY, MANAGED_BY_LABEL, TRIAL_LABEL
from slotune.controller.cluster import Object
from slotune.controller.contact import Contact
from slotune.controller.kinds import (
    DEPLOYMENT,
    GPU_CLASS,
    JOB,
    LLAMA_DEPLOYMENT,
    LLAMA_TRIAL,
    LLAMA_WORKLOAD,
    NODE,
    Kind,
    kind_of,
)
from slotune.controller.kopf_session import with_contact
from slotune.controller.kube_cluster import PAGE
from slotune.controller.no_notes import NoDifferences, NoProgress
from slotune.controller.store import Key, Store, key_of, labels_of
from slotune.controller.wakes import Wakes
from slotune.controller.world import holds_a_place

__all__ = ["Scheduled", "at_service_address", "build_registry", "settings_for", "take"]

RELEASE_LIMIT_S = 24 * 3600.0
"""How long a deletion may take, as long as it takes to give production its GPU back."""

JITTER = 0.1
"""Share by which a wait is stretched at random, so that a fleet does not wake in step."""


class Scheduled(Protocol):
    """What the daemons drive."""

    async def reconcile(self, key: Key) -> float:
        """Look once and act once. Never raises. Seconds until it wants to look again at the latest."""
        ...

    def woken(self) -> None:
        """Something happened before the time of the next look had come."""
        ...

    async def release(self, key: Key) -> float:
        """The object is being deleted: give back what was borrowed, before the finalizer goes. Never raises. Seconds
        until it is to be tried again; 0 when nothing is left to give back."""
        ...


def settings_for(*, cluster_wide: bool) -> kopf.OperatorSettings:
    """kopf's settings, each for a reason that others have paid for."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # a "default" peering object of somebody else would pause us (kopf#734)
    settings.scanning.disabled = (
        not cluster_wide
    )  # without the right to list namespaces it retries for a minute (#1153)
    settings.persistence.finalizer = FINALIZER
    settings.persistence.diffbase_storage = NoDifferences()
    settings.persistence.progress_storage = NoProgress()
    settings.posting.enabled = False  # events are our own: on transitions only, deduplicated
    settings.watching.server_timeout = 300  # a float would become "300.0", which the API server refuses
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = PAGE  # a fleet in one answer is tens of megabytes
    settings.queueing.idle_timeout = 1  # memory of an object that was quiet for so long is given back
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    # kopf waits so long for the daemon, and then sees to the finalizer. Amid a reconcile a daemon needs more than the
    # default, and kopf would come back by way of an annotation: where it may write none, never.
    settings.background.instant_exit_timeout = RELEASE_LIMIT_S
    settings.background.cancellation_polling = 5  # the default of 60 s delays every deletion
    return settings


def build_registry(
    scheduled: Scheduled, store: Store, wakes: Wakes, *, watched: Set[Kind], contact: Contact
) -> kopf.OperatorRegistry:
    """A registry of its own, so that two operators in one process never share handlers.

    Args:
        scheduled: what the daemons drive.
        store: what the watches fill.
        wakes: whom they wake.
        watched: kinds that the operator may follow; Deployments are followed in any case.
        contact: hears of every answer that kopf gets.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**kwargs: Any) -> kopf.AiohttpSession | None:
        info = kopf.login_with_service_account(**kwargs)
        info = at_service_address(info, os.environ) if info else kopf.login_with_kubeconfig(**kwargs)
        return with_contact(info, contact) if info else None

    def follow(kind: Kind, **filters: Any) -> None:
        _follow(registry, store, wakes, kind, **filters)

    ours: dict[str, Any] = {"labels": {MANAGED_BY_LABEL: MANAGED_BY}}
    follow(LLAMA_DEPLOYMENT)
    follow(LLAMA_TRIAL)
    follow(LLAMA_WORKLOAD)
    follow(JOB, **ours)
    follow(DEPLOYMENT)
    for kind in (GPU_CLASS, NODE):
        if kind in watched:
            follow(kind)

    @kopf.daemon(
        LLAMA_DEPLOYMENT.group,
        LLAMA_DEPLOYMENT.version,
        LLAMA_DEPLOYMENT.plural,
        registry=registry,
        id="schedule",
        # No cancellation_timeout: kopf would cancel a release in the middle, and take the finalizer off.
        cancellation_backoff=30,
    )
    async def schedule(*, stopped: Any, name: str, namespace: str | None, **_: Any) -> None:
        await _schedule(scheduled, wakes, (namespace or "", name), stopped)

    return registry


async def _schedule(scheduled: Scheduled, wakes: Wakes, key: Key, stopped: Any) -> None:
    """Look, and look again when something happens or the time has come, until the object or the operator goes."""
    wake = wakes.begin(key)
    while not stopped:
        wake.clear()
        seconds = await scheduled.reconcile(key)
        await _first_of(wake, stopped, seconds * (1 + JITTER * random.random()))  # noqa: S311 - no secret
        if wake.is_set():
            scheduled.woken()
    if kopf.DaemonStoppingReason.RESOURCE_DELETED in stopped.reason:
        while (seconds := await scheduled.release(key)) > 0:
            if kopf.DaemonStoppingReason.OPERATOR_EXITING in stopped.reason:
                return  # the finalizer stays, and the next operator begins with it
            await asyncio.sleep(seconds)
    wakes.forget(key, wake)


def at_service_address(info: kopf.ConnectionInfo, environment: Mapping[str, str]) -> kopf.ConnectionInfo:
    """The API server where a pod's environment says it is. kopf takes a DNS name in place of it, and then a cluster
    whose DNS fails has an operator that writes and sees nothing.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        return info
    return dataclasses.replace(info, server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")


def _follow(registry: kopf.OperatorRegistry, store: Store, wakes: Wakes, kind: Kind, **filters: Any) -> None:
    """Put every object of a kind into the store, and wake whom it concerns."""

    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"see-{kind.plural}", **filters)
    async def see(type: str | None, event: Any, body: kopf.Body, **_: Any) -> None:  # noqa: A002 - kopf's names
        store.slim(kind, event["object"])  # kopf keeps it, too
        manifest: Object = {"apiVersion": kind.api_version, "kind": kind.name} | dict(body)
        before = store.get(kind, *key_of(manifest))
        if take(store, manifest, gone=type == "DELETED"):
            wake_those_concerned(store, wakes, kind, manifest)
            if kind == LLAMA_DEPLOYMENT and before is not None:  # its old target may be another one's now
                wakes.wake(_on_the_same_target(store, before))


def take(store: Store, manifest: Object, *, gone: bool) -> bool:
    """Put what a watch says into the store. Whether it is news to anybody.

    A Deployment that nobody tunes is forgotten: whoever names it later must not find how it was then.
    """
    concerns = kind_of(manifest) != DEPLOYMENT or _is_served(store, manifest)
    if gone:
        store.remove(manifest)
        return concerns
    if not concerns:
        store.forget(manifest)
        return False
    return store.put(manifest)


async def _first_of(wake: asyncio.Event, stopped: Any, seconds: float) -> None:
    """Until something happens, or the time is up. ``stopped.wait()`` is an awaitable and no coroutine, hence the
    wrapper."""

    async def stop() -> None:
        await stopped.wait()

    tasks = [asyncio.create_task(wake.wait()), asyncio.create_task(stop())]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def wake_those_concerned(store: Store, wakes: Wakes, kind: Kind, manifest: Object) -> None:
    """Wake every LlamaDeployment that an object says something about."""
    namespace, name = key_of(manifest)
    if kind == LLAMA_DEPLOYMENT:
        wakes.wake([(namespace, name), *_on_the_same_target(store, manifest)])
    elif kind == GPU_CLASS:
        wakes.wake(key for key, raw in store.of(LLAMA_DEPLOYMENT).items() if _uses_class(raw, name))
    elif kind == LLAMA_WORKLOAD:
        wakes.wake(key_of(raw) for raw in store.within(LLAMA_DEPLOYMENT, namespace) if _workload_of(raw) == name)
    elif kind == DEPLOYMENT:
        owner = labels_of(manifest).get(DEPLOYMENT_LABEL)
        wakes.wake([(namespace, owner)] if owner else [])
        wakes.wake([(namespace, name)] if _has_its_name(store, manifest) else [])
        wakes.wake(key_of(raw) for raw in store.within(LLAMA_DEPLOYMENT, namespace) if _target_of(raw) == name)
    elif owner := labels_of(manifest).get(DEPLOYMENT_LABEL):
        wakes.wake([(namespace, owner)])
    if kind == JOB and TRIAL_LABEL in labels_of(manifest):
        seen = store.get(JOB, namespace, name)
        if seen is None or not holds_a_place(store, seen):
            wakes.slot_is_free()


def _is_served(store: Store, body: Mapping[str, Any]) -> bool:
    """Whether a Deployment is one that somebody tunes: all others of the cluster are none of our business."""
    if labels_of(body).get(DEPLOYMENT_LABEL) or _has_its_name(store, body):
        return True
    namespace, name = key_of(body)
    return any(_target_of(raw) == name for raw in store.within(LLAMA_DEPLOYMENT, namespace))


def _has_its_name(store: Store, body: Mapping[str, Any]) -> bool:
    """Whether a Deployment has the name that one of owned mode needs, whoever made it."""
    own = store.get(LLAMA_DEPLOYMENT, *key_of(body))
    return own is not None and "template" in (own.get("spec") or {})


def _on_the_same_target(store: Store, manifest: Object) -> list[Key]:
    """When the oldest goes, the next one takes over."""
    target = _target_of(manifest)
    if target is None:
        return []
    namespace, _ = key_of(manifest)
    return [key_of(raw) for raw in store.within(LLAMA_DEPLOYMENT, namespace) if _target_of(raw) == target]


def _target_of(raw: Mapping[str, Any]) -> str | None:
    name: str | None = (((raw.get("spec") or {}).get("targetRef")) or {}).get("name")
    return name


def _workload_of(raw: Mapping[str, Any]) -> str | None:
    name: str | None = ((((raw.get("spec") or {}).get("workload")) or {}).get("ref") or {}).get("name")
    return name


def _uses_class(raw: Mapping[str, Any], name: str) -> bool:
    classes = (raw.get("spec") or {}).get("gpuClasses") or ()
    return any(isinstance(one, dict) and one.get("name") == name for one in classes)
