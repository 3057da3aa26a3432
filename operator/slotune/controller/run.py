"""One operator process: it connects, fills the store, starts the watches, and serves its health until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import kopf
from pydantic import ValidationError

from slotune.api.labels import FINALIZER, MANAGED_BY, MANAGED_BY_LABEL
from slotune.api.v1alpha1 import GPUClass
from slotune.controller.act import Hands
from slotune.controller.cluster import Cluster, ClusterError, ForbiddenError, NotFoundError, Object
from slotune.controller.contact import WATCHES_S, Contact, keep_in_touch, troubles
from slotune.controller.gpu_classes import class_status
from slotune.controller.handlers import build_registry, settings_for
from slotune.controller.health import serve_health, serve_metrics
from slotune.controller.heartbeat import Heartbeat, keep_beating
from slotune.controller.kinds import (
    GPU_CLASS,
    JOB,
    LLAMA_DEPLOYMENT,
    LLAMA_TRIAL,
    LLAMA_WORKLOAD,
    NODE,
    Kind,
)
from slotune.controller.kube_cluster import KubeCluster
from slotune.controller.metrics import OperatorMetrics
from slotune.controller.observe import Observer
from slotune.controller.reconcile import AT_ONCE, Reconciler
from slotune.controller.services import Services, look_after_services
from slotune.controller.settings import Settings
from slotune.controller.store import Key, Store
from slotune.controller.wakes import Wakes

__all__ = ["CRDsMissingError", "describe_classes", "fill", "hold_on", "release_the_deleted", "run_operator"]


CLASSES_EVERY_S = 15.0
GHOSTS_EVERY_S = 300.0
_FOLLOWED = (LLAMA_DEPLOYMENT, LLAMA_TRIAL, LLAMA_WORKLOAD, JOB)
"""Kinds of namespaces that are listed at the start."""

# For kopf's peering, which is not used. Left to itself kopf asks for the user's name, and a pod's user may have none.
_IDENTITY: Any = "slotune"

RELEASE_ATTEMPTS = 5
Sleep = Callable[[float], Awaitable[object]]

log = logging.getLogger("slotune.controller")


class CRDsMissingError(Exception):
    """The cluster does not know slotune's kinds."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the cluster does not know slotune's kinds ({what}): "
            "apply its CRDs first (slotune crds | kubectl apply -f -)"
        )


async def run_operator(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Run until ``stop`` is set, or SIGTERM or SIGINT comes.

    Raises:
        CRDsMissingError: there is nothing to watch.
        UnavailableError: the API server can't be reached.
    """
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    heartbeat, started = Heartbeat(time.monotonic()), asyncio.Event()
    async with await KubeCluster.connect(settings.kubeconfig) as cluster:
        watches = Contact("watches", WATCHES_S)

        def trouble() -> str:
            return troubles(started.is_set(), [cluster.contact, watches])

        async with _beside(  # from the beginning: a slow API server is no reason to be ended while a fleet is listed
            keep_beating(heartbeat, time.monotonic),
            serve_health(heartbeat, settings.health_port, trouble, time.monotonic),
            keep_in_touch(cluster, cluster.contact),
        ):
            await _operate(settings, cluster, watches, heartbeat, started=started, stop=stop)


async def _operate(
    settings: Settings,
    cluster: KubeCluster,
    watches: Contact,
    heartbeat: Heartbeat,
    *,
    started: asyncio.Event,
    stop: asyncio.Event,
) -> None:
    store, wakes, metrics = Store(), Wakes(), OperatorMetrics()
    watched = await fill(store, cluster, settings.namespaces)
    reconciler = Reconciler(
        Observer(cluster, store, settings, _now, lambda key: wakes.wake([key])),
        Hands(cluster, store, settings.max_trials),
        wakes,
        settings=settings,
        metrics=metrics,
        heartbeat=heartbeat,
        clock=_now,
    )
    await release_the_deleted(reconciler, store)
    registry = build_registry(reconciler, store, wakes, watched=watched, contact=watches)

    @kopf.on.cleanup(registry=registry)
    async def tell_the_flag(**_: Any) -> None:
        stop.set()  # kopf takes the signals over, sets no flag, and waits 5 s for its own task that reads the flag

    async with _beside(
        look_for_ghosts(store, cluster, settings.namespaces),
        look_after_services(Services(cluster, store, settings.namespaces), wakes),
        *([describe_classes(cluster, store)] if {GPU_CLASS, NODE} <= watched else []),
        serve_metrics(metrics, settings.metrics_port),
    ):
        await hold_on(store, cluster)
        await kopf.operator(
            registry=registry,
            identity=_IDENTITY,
            settings=settings_for(cluster_wide=not settings.namespaces),
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            stop_flag=stop,
            ready_flag=started,
        )


async def hold_on(store: Store, cluster: Cluster) -> None:
    """Put the finalizer on LlamaDeployments that came while no operator ran. kopf would do it too, for a whole fleet at
    once, and compares copies of each object to find out what it changes; what fails here is left to it."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def hold(key: Key, metadata: Object) -> None:
        patch = {"finalizers": [*(metadata.get("finalizers") or ()), FINALIZER]}
        async with at_once:
            # The version makes sure that nobody else's finalizer is lost.
            patch["resourceVersion"] = metadata["resourceVersion"]
            with contextlib.suppress(ClusterError):
                store.put(await cluster.patch(LLAMA_DEPLOYMENT, *key, {"metadata": patch}))

    await asyncio.gather(
        *(
            hold(key, raw["metadata"])
            for key, raw in store.of(LLAMA_DEPLOYMENT).items()
            if not raw["metadata"].get("deletionTimestamp")
            and FINALIZER not in (raw["metadata"].get("finalizers") or ())
        )
    )


async def release_the_deleted(reconciler: Reconciler, store: Store, sleep: Sleep = asyncio.sleep) -> None:
    """Give back what LlamaDeployments have borrowed that were deleted while no operator ran: kopf starts no daemon for
    them, and takes the finalizer off."""
    for key, raw in store.of(LLAMA_DEPLOYMENT).items():
        if not raw["metadata"].get("deletionTimestamp") or not (raw.get("status") or {}).get("restore"):
            continue
        for _ in range(RELEASE_ATTEMPTS):
            seconds = await reconciler.release(key)
            if not seconds:
                break
            await sleep(seconds)
        else:
            restore = raw["status"]["restore"]
            log.error(
                "%s/%s goes, and Deployment %s could not be given back: kubectl scale --namespace %s deployment/%s "
                "--replicas=%s",
                *key, restore["name"], key[0], restore["name"], restore["replicas"],
            )  # fmt: skip


async def fill(store: Store, cluster: Cluster, namespaces: tuple[str, ...]) -> frozenset[Kind]:
    """List everything that is watched once, before anything is decided: a plan that has not seen the trials would ask
    them all again. Kinds that may be followed; those of the whole cluster take rights that a namespaced role may lack.
    """
    try:
        for manifest in await _listed(cluster.list, namespaces):
            store.put(manifest)
    except NotFoundError as error:
        raise CRDsMissingError(error.what) from error
    allowed = set(_FOLLOWED)
    for kind in (GPU_CLASS, NODE):
        try:
            for manifest in await cluster.list(kind, None):
                store.put(manifest)
            allowed.add(kind)
        except ForbiddenError:
            store.hidden.add(kind.name)
    return frozenset(allowed)


async def look_for_ghosts(
    store: Store, cluster: Cluster, namespaces: tuple[str, ...], every_s: float = GHOSTS_EVERY_S
) -> None:
    """Forget what went while a watch was broken, for as long as it runs: kopf lists anew then, and tells of nobody's
    end. A Job that is no more would hold its place among the trials for ever."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await lay_ghosts(store, cluster, namespaces)
        except ClusterError as error:
            log.info("what is gone is looked for later: %s", error)


async def lay_ghosts(store: Store, cluster: Cluster, namespaces: tuple[str, ...]) -> int:
    """Remove from the store what is not in the cluster. How many there were. Who is there is all that is asked: whole
    objects of a fleet are tens of megabytes."""
    known = [manifest for kind in _FOLLOWED for manifest in store.of(kind).values()]  # what comes later is no ghost
    there = {manifest["metadata"].get("uid") for manifest in await _listed(cluster.list_metadata, namespaces)}
    ghosts = [manifest for manifest in known if manifest["metadata"].get("uid") not in there]
    for manifest in ghosts:
        store.remove(manifest)
    return len(ghosts)


async def _listed(
    ask: Callable[[Kind, str | None, str], Awaitable[list[Object]]], namespaces: tuple[str, ...]
) -> list[Object]:
    places: tuple[str | None, ...] = namespaces or (None,)
    found = []
    for kind in _FOLLOWED:
        labels = f"{MANAGED_BY_LABEL}={MANAGED_BY}" if kind == JOB else ""
        for namespace in places:
            found += await ask(kind, namespace, labels)
    return found


async def describe_classes(cluster: Cluster, store: Store, every_s: float = CLASSES_EVERY_S) -> None:
    """Keep the statuses of the GPUClasses true, for as long as it runs. They are for people: nothing waits for them."""
    hands = Hands(cluster, store, max_trials=0)
    while True:
        nodes = tuple(store.of(NODE).values())
        for raw in tuple(store.of(GPU_CLASS).values()):
            manifest = {"apiVersion": GPU_CLASS.api_version, "kind": GPU_CLASS.name} | raw
            try:
                status = class_status(GPUClass.from_manifest(manifest), nodes, _now()).to_manifest()
                await hands.apply_status(manifest, status)
            except (ValidationError, ClusterError) as error:
                log.info("GPUClass %s: its status is not written: %s", raw["metadata"]["name"], error)
        await asyncio.sleep(every_s)


@contextlib.asynccontextmanager
async def _beside(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Tasks that run as long as the block does. They start before kopf, which would end tasks that it finds later."""
    tasks = [asyncio.create_task(one) for one in coroutines]
    try:
        await asyncio.sleep(0)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _now() -> datetime:
    return datetime.now(UTC)
