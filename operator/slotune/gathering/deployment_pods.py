"""The pods of a Deployment with all that other objects say about them: nodes, events, claims, volumes, settings.

What is the same for several pods is asked for once. Only the pods themselves are needed; whatever else can't be read is
left out and said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from slotune.api.kubernetes_types import PodTemplate
from slotune.controller.cluster import Cluster, ForbiddenError, Object
from slotune.controller.kinds import CONFIG_MAP, NODE, POD, RESOURCE_CLAIM_TEMPLATE, Kind
from slotune.controller.listening import Listening
from slotune.controller.serving_pods import labels_to_ask, pods_of
from slotune.diagnose.symptoms import NodeFacts, PodFacts
from slotune.gathering.claimed_gpus import claim_templates_of, claimed_gpus, claimed_parts
from slotune.gathering.command_words import server_flags
from slotune.gathering.deployments import Meant
from slotune.gathering.look_errors import FIELD, MissingRightError, NoPodsError, right
from slotune.gathering.optional_reads import OptionalReads
from slotune.gathering.pod_facts import node_facts, pod_facts
from slotune.gathering.volume_kinds import claims_of, volume_name
from slotune.gathering.which_container import listening_of, running_container, server_name
from slotune.tuning.pod_reading import read_pod

__all__ = ["MOST_PODS", "SeenPod", "see_pods"]

MOST_PODS: Final = 6
"""Pods that are looked at; others are named."""

EVENT: Final = Kind("Event", "", "v1", "events")
"""As kubectl lists them: the role ``view`` has them."""
CLAIM: Final = Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
VOLUME: Final = Kind("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False)

Objects = Mapping[str, Object]
"""By name."""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """One pod."""

    facts: PodFacts
    node: NodeFacts | None
    container: str
    flags: tuple[str, ...]
    listening: Listening
    is_running: bool
    """Whether the server's container runs, so that there is something to ask."""
    has_earlier_log: bool
    """Whether there is a log of the instance before: while a container waits to be started again, the present log is
    that of the instance that ended."""
    has_started: bool = True
    """Whether the server's container ever ran, so that there is a log."""

    @property
    def name(self) -> str:
        """Of the pod."""
        return self.facts.name


async def see_pods(
    cluster: Cluster, namespace: str, meant: Meant, container: str | None, reads: OptionalReads
) -> tuple[SeenPod, ...]:
    """The pods, those that are worse off first.

    Raises:
        NoServerContainerError: which container is llama-server can't be told, or the one that was named is not there.
        NoPodsError: there is none.
        MissingRightError: pods may not be listed.
        ClusterError: the API server does not answer.
    """
    name = server_name(meant, container, reads)
    try:
        listed = await cluster.list(POD, namespace, labels_to_ask(meant.deployment))
    except ForbiddenError as error:
        raise MissingRightError(meant.name, right("list", POD, namespace), error.status) from error
    chosen = _chosen(meant, listed, name, reads)
    if not chosen:
        raise NoPodsError(FIELD, meant.name, _why_none(meant.deployment))
    settings, templates, nodes, claims, events = await asyncio.gather(
        _by_name(_settings_of(chosen, name), lambda one: _read(reads, CONFIG_MAP, namespace, one)),
        _by_name(_each(chosen, claim_templates_of), lambda one: _read(reads, RESOURCE_CLAIM_TEMPLATE, namespace, one)),
        _by_name(_each(chosen, _node_of), lambda one: _read(reads, NODE, None, one)),
        _by_name(_each(chosen, claims_of), lambda one: _read(reads, CLAIM, namespace, one)),
        asyncio.gather(*(_events(reads, namespace, _name(pod)) for pod in chosen)),
    )
    bound = [volume for claim in claims.values() if (volume := volume_name(claim))]
    volumes = await _by_name(bound, lambda one: _read(reads, VOLUME, None, one))
    around = _Around(settings, templates, nodes, claims, volumes)
    return tuple(around.seen(pod, name, said, reads) for pod, said in zip(chosen, events, strict=True))


@dataclass(frozen=True, slots=True)
class _Around:
    """What was read beside the pods."""

    settings: Objects
    templates: Objects
    nodes: Objects
    claims: Objects
    volumes: Objects

    def seen(self, pod: Object, name: str, events: Sequence[Object], reads: OptionalReads) -> SeenPod:
        template = _template(pod)
        container = None if template is None else running_container(template, name)
        reading = None
        if template is not None and container is not None:
            reading = read_pod(template, container, {one: _text(held) for one, held in self.settings.items()})
            for note in reading.notes:
                reads.note(note)
        facts = pod_facts(
            pod,
            name,
            reading,
            events=events,
            claims=self.claims,
            volumes=self.volumes,
            claimed_gpus=claimed_gpus(pod, self.templates),
            claimed_parts=claimed_parts(pod, self.templates),
            now=datetime.now(UTC),
        )
        node = self.nodes.get(_node_of(pod)[0]) if _node_of(pod) else None
        return SeenPod(
            facts=facts,
            node=None if node is None else node_facts(node),
            container=name,
            flags=() if container is None or reading is None else server_flags(container, reading),
            listening=listening_of(container, reading),
            is_running=_runs(pod, name),
            has_earlier_log=facts.restarts > 0 and _runs(pod, name),
            has_started=_runs(pod, name) or facts.restarts > 0 or facts.last_exit is not None,
        )


def _chosen(meant: Meant, listed: Sequence[Object], container: str, reads: OptionalReads) -> list[Object]:
    """Pods that are looked at. One that has ended has a successor, and only its end is worth a word."""
    own = {one.name for one in pods_of(meant.deployment, listed)}
    live = []
    for pod in listed:
        if _name(pod) not in own or pod["metadata"].get("deletionTimestamp"):
            continue
        status = pod.get("status") or {}
        if status.get("phase") in {"Failed", "Succeeded"}:
            reason, message = status.get("reason") or "ended", status.get("message") or ""
            reads.note(f"pod {_name(pod)} is gone: {reason}: {' '.join(message.split())}".removesuffix(": "))
        else:
            live.append(pod)
    live.sort(key=lambda pod: _rank(pod, container))
    if left := [_name(pod) for pod in live[MOST_PODS:]]:
        reads.note(f"{MOST_PODS} of {len(live)} pods are looked at; left out: {', '.join(left)}")
    return live[:MOST_PODS]


def _rank(pod: Object, container: str) -> tuple[bool, int, str]:
    status = _status_of(pod, container)
    return bool(status.get("ready")), -int(status.get("restartCount") or 0), _name(pod)


def _why_none(deployment: Object) -> str:
    if deployment["spec"].get("replicas") == 0:
        return "has no pods, since its replicas are 0: scale it up, and look again"
    conditions = (deployment.get("status") or {}).get("conditions") or ()
    said = [one.get("message") for one in conditions if one.get("type") == "ReplicaFailure" and one.get("message")]
    why = f" ({said[0]})" if said else ""
    return f"has no pods that run or wait{why}: kubectl describe says what keeps them from being made"


def _template(pod: Object) -> PodTemplate | None:
    """None of a pod that this slotune cannot read: then its status still says something."""
    try:
        return PodTemplate.from_manifest({"metadata": pod["metadata"], "spec": pod["spec"]})
    except ValidationError:
        return None


def _runs(pod: Object, container: str) -> bool:
    return "running" in (_status_of(pod, container).get("state") or {})


def _status_of(pod: Object, container: str) -> Mapping[str, Any]:
    status = pod.get("status") or {}
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return next((one for one in every if one.get("name") == container), {})


def _settings_of(pods: Iterable[Object], container: str) -> list[str]:
    """Names of the ConfigMaps that the server's variables come from."""
    names: dict[str, None] = {}
    for pod in pods:
        for one in (*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())):
            if one.get("name") != container:
                continue
            sources = [source.get("configMapRef") for source in one.get("envFrom") or ()]
            sources += [(variable.get("valueFrom") or {}).get("configMapKeyRef") for variable in one.get("env") or ()]
            names |= {str(source["name"]): None for source in sources if source and source.get("name")}
    return list(names)


async def _events(reads: OptionalReads, namespace: str, pod: str) -> list[Object]:
    about = f"involvedObject.name={pod}"  # of any type: a kill for a probe is told as something normal
    return await reads.list(EVENT, namespace, about, lost="what events say about the pods")


_LOST: Final = {
    CONFIG_MAP: "the variables that come from ConfigMaps",
    RESOURCE_CLAIM_TEMPLATE: "the GPUs that ResourceClaims ask for",
    NODE: "the nodes, with their cores and GPUs,",
    CLAIM: "what the volumes are",
    VOLUME: "whether the volumes are network shares",
}


async def _read(reads: OptionalReads, kind: Kind, namespace: str | None, name: str) -> Object | None:
    return await reads.get(kind, namespace, name, lost=_LOST[kind])


async def _by_name(names: Iterable[str], read: Callable[[str], Awaitable[Object | None]]) -> dict[str, Object]:
    every = list(dict.fromkeys(names))
    found = await asyncio.gather(*(read(name) for name in every))
    return {name: one for name, one in zip(every, found, strict=True) if one is not None}


def _each(pods: Iterable[Object], names: Callable[[Object], Iterable[str]]) -> list[str]:
    return [name for pod in pods for name in names(pod)]


def _node_of(pod: Object) -> tuple[str, ...]:
    name = pod["spec"].get("nodeName")
    return (str(name),) if name else ()


def _text(config_map: Object) -> dict[str, str]:
    return {str(key): str(value) for key, value in (config_map.get("data") or {}).items()}


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
