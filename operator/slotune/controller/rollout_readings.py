"""What the planner of a rollout wants to know of the cluster: free GPUs, answers at work, and what users get now.

Every reading is bounded in time and fails closed: what cannot be seen is None or Inconclusive, with the cause and the
cure in words. Only an API server that is down is an error, since then nothing else can be done either.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import GPUClass, LlamaDeployment
from slotune.api.v1alpha1.meta import KeyReference
from slotune.controller.cluster import Cluster, ClusterError, ForbiddenError, NotFoundError, Object, UnavailableError
from slotune.controller.free_gpus import room_for
from slotune.controller.kinds import NODE, POD, SECRET
from slotune.controller.listening import Listening
from slotune.controller.pod_http import NotAskedError, ask_server
from slotune.controller.serving_pods import ServingPod, labels_to_ask, newest_pods, pods_of
from slotune.controller.store import Store
from slotune.controller.verification_look import Seen, from_prometheus, probe_pods, probes_due, together
from slotune.llama.server_http import LlamaServer
from slotune.load.demand import Demand
from slotune.production.looks import Reader, take_look
from slotune.production.prometheus import PrometheusReader
from slotune.production.queries import Pods, queries_for
from slotune.production.readings import Reading, Unreachable
from slotune.report.figures import plural
from slotune.rollout.facts import Capacity, Look, Slots
from slotune.verdict.promise import Promise

__all__ = ["ClosedReader", "RolloutReader", "prometheus_reader"]

AT_ONCE: Final = 32
"""Servers that are asked at the same time."""
LONGEST_QUERY_S: Final = 60.0
"""A query holds up one look; a longer ``observe.prometheus.timeout`` is cut to this."""
LONGEST_MESSAGE: Final = 2048
"""Characters."""


class RolloutReader:
    """Reads for rollouts. It keeps nothing between two readings."""

    def __init__(self, cluster: Cluster, store: Store, clock: Callable[[], datetime]) -> None:
        self._cluster, self._store, self._clock = cluster, store, clock

    async def capacity(
        self, gpu_class: GPUClass, todays: GPUClass, now: datetime, *, template: Object | None = None
    ) -> Capacity:
        """GPUs of ``gpu_class`` that nobody holds.

        Args:
            gpu_class: what the candidate runs on.
            todays: what runs today's pods. Only the same class is released by them.
            now: the moment of the look; what is read is always the present.
            template: the pod template that would be placed; with it, room for its other requests counts too.

        A class without a resource (CPU) has room for as many pods as their requests leave, so only ``template`` can
        tell; without it nobody knows. Neither does an operator that may not list the pods of all namespaces, or knows
        no node.
        """
        released = gpu_class.metadata.name == todays.metadata.name
        nodes = list(self._store.of(NODE).values())
        if not nodes:
            return Capacity(None, released)
        try:
            pods = await self._cluster.list(POD, None)
        except UnavailableError:
            raise
        except ClusterError:
            return Capacity(None, released)
        return Capacity(room_for(gpu_class, nodes, pods, template), released)

    async def slots(self, serving: Object, listening: Listening, now: datetime) -> Slots:
        """Requests at work on every pod of the Deployment, whether it is ready or not; 0 where no container runs."""
        try:
            pods = await self._pods(serving)
        except UnavailableError:
            raise
        except ClusterError as error:
            return Slots(now, None, _not_listed(error))
        at_once = asyncio.Semaphore(AT_ONCE)

        async def busy_in(pod: ServingPod) -> int | NotAskedError:
            async with at_once:
                try:
                    return await ask_server(pod, listening, _busy_slots, path="/slots", cure="start it with --slots")
                except NotAskedError as error:
                    return error

        found = await asyncio.gather(*(busy_in(pod) for pod in pods if pod.is_running))
        unseen = [one for one in found if isinstance(one, NotAskedError)]
        if unseen:
            more = f", and {plural(len(unseen) - 1, 'more pod')} can't be asked either" if len(unseen) > 1 else ""
            return Slots(now, None, f"{unseen[0]}{more}"[:LONGEST_MESSAGE])
        return Slots(now, sum(one for one in found if isinstance(one, int)))

    async def look(
        self,
        deployment: LlamaDeployment,
        serving: Object,
        listening: Listening,
        demand: Demand | None,
        promise: Promise | None,
        *,
        number: int,
        prometheus: Reader | None,
        now: datetime,
    ) -> Look:
        """One look at the new configuration in production, by probes and by Prometheus at the same time.

        Args:
            deployment: whose ``rollout.verify`` and ``observe.prometheus`` say what is asked.
            serving: the Deployment.
            listening: how its servers are reached.
            demand: what trials of it send; None when it is not known now, and no probe is sent.
            promise: by which a probe is judged; None as for ``demand``.
            number: of this look in its window; 0 is the first.
            prometheus: who answers queries; None: Prometheus is not asked.
            now: the moment that Prometheus is asked about.
        """
        newest, problem = await self._newest(serving)
        known: list[Seen] = []
        asked: list[Awaitable[Seen]] = []
        if count := probes_due(deployment.spec.rollout.verify, number):
            if demand is None or promise is None:
                known.append(Seen("Inconclusive", "no probe was sent: what one would send is not known now"))
            elif problem:
                known.append(Seen("Inconclusive", f"no probe was sent: {problem}"))
            else:
                ready = [pod for pod in newest if pod.is_ready]
                seed = int(now.timestamp() * 1000)
                first = number * count
                asked.append(probe_pods(ready, listening, demand, promise, count=count, first=first, seed=seed))
        if prometheus is not None and deployment.spec.observe.prometheus is not None:
            template_hash = newest[0].template_hash if newest else None
            pods = Pods(serving["metadata"]["namespace"], serving["metadata"]["name"], template_hash)
            asked.append(_ask_prometheus(prometheus, deployment, pods, now))
        seen = together([*known, *await asyncio.gather(*asked)])
        return Look(self._clock(), seen.outcome, seen.message[:LONGEST_MESSAGE])

    async def _newest(self, serving: Object) -> tuple[tuple[ServingPod, ...], str]:
        """The new pods, and why they are not known."""
        try:
            return newest_pods(serving, await self._pods(serving)), ""
        except UnavailableError:
            raise
        except ClusterError as error:
            return (), _not_listed(error)

    async def _pods(self, serving: Object) -> tuple[ServingPod, ...]:
        namespace = serving["metadata"]["namespace"]
        return pods_of(serving, await self._cluster.list(POD, namespace, labels_to_ask(serving)))


class ClosedReader:
    """Stands for a Prometheus that is not asked, since its token can't be had."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    async def scalar(self, query: str, at: datetime) -> Reading:
        """See :class:`slotune.production.looks.Reader`."""
        return Unreachable(self.reason)


async def prometheus_reader(deployment: LlamaDeployment, cluster: Cluster, namespace: str) -> Reader:
    """Who answers the queries of ``observe.prometheus``, which must be there.

    The token is read each time and kept nowhere else, so a new one counts at once. UnavailableError when the API server
    is down; any other obstacle is what every query of the reader says.
    """
    prometheus = deployment.spec.observe.prometheus
    assert prometheus is not None
    timeout_s = min(LONGEST_QUERY_S, float(parse_duration(prometheus.timeout)))
    reference = prometheus.bearer_token_secret_ref
    if reference is None:
        return PrometheusReader(prometheus.url, timeout_s)
    try:
        token = await _token(cluster, namespace, reference)
    except _NoTokenError as error:
        return ClosedReader(f"observe.prometheus.bearerTokenSecretRef is {reference.name}: {error}")
    return PrometheusReader(prometheus.url, timeout_s, token)


class _NoTokenError(Exception):
    """Why a Secret gives no token, with the cure."""


async def _token(cluster: Cluster, namespace: str, reference: KeyReference) -> str:
    try:
        secret = await cluster.get(SECRET, namespace, reference.name)
    except NotFoundError as error:
        raise _NoTokenError(f"there is no such Secret in namespace {namespace}: create it") from error
    except ForbiddenError as error:
        cure = "name it in the chart's permissions.secrets, or give its role get on it"
        raise _NoTokenError(f"slotune may not read that Secret: {cure}") from error
    except UnavailableError:
        raise
    except ClusterError as error:
        raise _NoTokenError(f"the API server does not give that Secret (HTTP {error.status})") from error
    stored = (secret.get("data") or {}).get(reference.key)
    if stored is None:
        raise _NoTokenError(f"that Secret has no key {reference.key}: put the token there")
    try:
        token = base64.b64decode(stored, validate=True).decode("ascii").strip()
    except (binascii.Error, ValueError):
        token = ""
    if not token or not token.isprintable():
        # Without the cause: its text would show a part of what is stored.
        raise _NoTokenError(f"its key {reference.key} is no token: store the bare token, one line of ASCII") from None
    return token


async def _busy_slots(server: LlamaServer) -> int:
    return sum(slot.processing for slot in await server.slots())


async def _ask_prometheus(reader: Reader, deployment: LlamaDeployment, pods: Pods, now: datetime) -> Seen:
    prometheus = deployment.spec.observe.prometheus
    assert prometheus is not None
    return from_prometheus(await take_look(reader, queries_for(prometheus, pods), now), deployment.spec.slo)


def _not_listed(error: ClusterError) -> str:
    if isinstance(error, ForbiddenError):
        return "slotune's role may not list pods in this namespace: give it list on pods"
    return f"the pods can't be listed: {error.message}"
