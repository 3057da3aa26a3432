"""What a diagnosis wants to know of a pod and its node, read from their objects as the API server sends them. Pure.

What an object leaves out is None, empty or 0, never an error: it may be of a newer Kubernetes, and half a pod is worth
more than none. Keys stay where they are: a value that may be one is named, never shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from slotune.api.gpu_resources import devices_in, is_gpu_part, is_gpu_resource
from slotune.api.quantities import QuantityError, parse_bytes, parse_quantity
from slotune.diagnose.symptoms import NodeFacts, PodFacts
from slotune.gathering.command_words import shown_environment, shown_words
from slotune.gathering.object_parts import Object, part, parts
from slotune.gathering.pod_troubles import told, troubles_of, warnings_of
from slotune.gathering.volume_kinds import volume_kinds
from slotune.sandbox.pod_facts import PodFacts as PodStatus
from slotune.tuning.pod_reading import PodReading

__all__ = ["node_facts", "pod_facts"]

_LABELS: Final = (
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "kubernetes.io/arch",
    "nvidia.com/",
    "amd.com/",
    "gpu.intel.com/",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "karpenter.k8s.aws/instance-gpu",
)
"""Beginnings of the labels that say what a node is; a node has a hundred more."""


def pod_facts(
    pod: Object,
    container: str,
    reading: PodReading | None = None,
    *,
    events: Iterable[Object] = (),
    claims: Mapping[str, Object] | None = None,
    volumes: Mapping[str, Object] | None = None,
    claimed_gpus: int = 0,
    claimed_parts: Sequence[str] = (),
    now: datetime | None = None,
) -> PodFacts:
    """The facts of a v1 Pod.

    Args:
        pod: as JSON has it.
        container: name of the one that is llama-server.
        reading: its command line and variables; None where they could not be read.
        events: about the pod, of v1 or events.k8s.io/v1, of any type and order.
        claims: PersistentVolumeClaims that it mounts, by name, as far as they could be read.
        volumes: PersistentVolumes behind them, by name, likewise.
        claimed_gpus: devices that it asks for by ResourceClaims.
        claimed_parts: DeviceClasses of parts of devices by which it does.
        now: with time zone; None: not known, and so neither is how long ago a container ended.
    """
    status = PodStatus.from_object(pod)
    spec = _container(pod, container)
    own = status.containers.get(container)
    ended = None if own is None else own.ended or own.previous
    troubles = tuple(troubles_of(status, container, _unready(pod)))
    return PodFacts(
        name=status.name,
        image=_text(spec.get("image")),
        args=() if reading is None else tuple(shown_words(word.text for word in (*reading.launch, *reading.words))),
        env={} if reading is None else shown_environment(reading.variables.values()),
        cpu_limit=_cores(_limit(pod, spec, "cpu")),
        memory_limit_bytes=_bytes(_limit(pod, spec, "memory")),
        gpus=max(_gpus(pod), claimed_gpus),
        gpu_parts=tuple(
            sorted({name for name, amount in _limits(pod) if is_gpu_part(name, amount)} | {*claimed_parts})
        ),
        restarts=0 if own is None else own.restarts,
        last_exit=None if ended is None else (ended.reason or "Error", ended.exit_code),
        last_exit_ago_s=_seconds_since(None if ended is None else ended.finished_at, now),
        ready=_is_ready(status, part(pod, "status").get("phase") == "Pending"),
        events=(*map(told, troubles), *warnings_of(events, status, container)),
        volumes=volume_kinds(pod, spec, claims or {}, volumes or {}),
        ready_after_s=_ready_after(pod, container, status),
        phase=_text(part(pod, "status").get("phase")),
        age_s=_seconds_since(status.created_at, now),
        running_s=_seconds_since(None if own is None else own.running_since, now),
        troubles=troubles,
        containers=sum(not one.is_init or one.is_sidecar for one in status.containers.values()) or 1,
        last_exit_message="" if ended is None else " ".join(ended.message.split()),
    )


def node_facts(node: Object) -> NodeFacts:
    """The facts of a v1 Node. Its cores are those that the machine has, not those that are left for pods."""
    metadata, status = part(node, "metadata"), part(node, "status")
    swap = part(part(status, "nodeInfo"), "swap").get("capacity")
    labels = {name: str(value) for name, value in sorted(part(metadata, "labels").items()) if name.startswith(_LABELS)}
    pressures = sorted(
        str(one.get("type"))
        for one in parts(status, "conditions")
        if one.get("status") == "True" and str(one.get("type")).endswith("Pressure")
    )
    return NodeFacts(
        name=str(metadata.get("name", "")),
        cores=_cores(_text(part(status, "capacity").get("cpu"))),
        labels=labels,
        pressures=tuple(pressures),
        memory_bytes=_bytes(_text(part(status, "capacity").get("memory"))),
        swap_bytes=swap if isinstance(swap, int) and swap >= 0 else None,
    )


def _container(pod: Object, name: str) -> Object:
    spec = part(pod, "spec")
    every = [*parts(spec, "containers"), *parts(spec, "initContainers")]
    return next((one for one in every if one.get("name") == name), {})


def _limit(pod: Object, container: Object, resource: str) -> str | None:
    """Of the container, else of the pod as a whole (pod-level resources), which is a limit of the container too."""
    for holder in (container, part(pod, "spec")):
        found = _text(part(part(holder, "resources"), "limits").get(resource))
        if found is not None:
            return found
    return None


def _gpus(pod: Object) -> int:
    """Devices of all containers together; a pod that asks for a part of one has one."""
    devices, parts = 0, 0
    for name, amount in _limits(pod):
        devices += devices_in(name, amount)
        parts += bool(amount) and is_gpu_resource(name)
    return devices or min(parts, 1)


def _limits(pod: Object) -> Iterator[tuple[str, Decimal]]:
    """(resource, amount) of each container that goes on; what is no amount is left out."""
    spec = part(pod, "spec")
    beside = (one for one in parts(spec, "initContainers") if one.get("restartPolicy") == "Always")
    for one in (*parts(spec, "containers"), *beside):
        for name, text in part(part(one, "resources"), "limits").items():
            try:
                yield name, parse_quantity(str(text), name)
            except QuantityError:
                continue


def _seconds_since(moment: datetime | None, now: datetime | None) -> float | None:
    """Clocks of nodes differ: what ended after now ended just now."""
    return None if moment is None or now is None else max(0.0, (now - moment).total_seconds())


def _ready_after(pod: Object, container: str, status: PodStatus) -> float | None:
    """From the start of the running container to the pod's readiness."""
    ready = status.conditions.get("Ready")
    own = next((one for one in parts(part(pod, "status"), "containerStatuses") if one.get("name") == container), {})
    started = _text(part(part(own, "state"), "running").get("startedAt"))
    if ready is None or not ready.is_true or ready.since is None or started is None:
        return None
    try:
        passed = (ready.since - datetime.fromisoformat(started)).total_seconds()
    except (ValueError, TypeError):  # no time, or one without a zone
        return None
    return passed if passed >= 0 else None


def _unready(pod: Object) -> list[str]:
    """Containers that run and are not ready."""
    status = part(pod, "status")
    every = [*parts(status, "containerStatuses"), *parts(status, "initContainerStatuses")]
    return [str(one.get("name")) for one in every if part(one, "state").get("running") and one.get("ready") is False]


def _is_ready(status: PodStatus, is_pending: bool) -> bool | None:
    """A pod that no node has taken yet has no such condition."""
    stated = status.conditions.get("Ready")
    if stated is None:
        return False if is_pending else None
    return stated.is_true


def _cores(text: str | None) -> float | None:
    try:
        return None if text is None else float(parse_quantity(text, "cpu"))
    except QuantityError:
        return None


def _bytes(text: str | None) -> int | None:
    """Kubernetes takes ``1500m`` of memory: 1.5 bytes."""
    try:
        if text is None:
            return None
        return math.ceil(parse_quantity(text, "memory")) if text.endswith("m") else parse_bytes(text)
    except QuantityError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
