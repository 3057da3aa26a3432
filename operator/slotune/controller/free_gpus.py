"""How many more pods of a class the nodes have room for, computed as the scheduler does, and never too many.

Pure: nodes and pods in, a number out. Whatever cannot be read counts as taken. What waits to be placed and would fit
counts as placed: its GPU is gone before ours is asked for. Affinity, spread constraints, volumes and host ports are not
looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from slotune.api.quantities import QuantityError, parse_quantity
from slotune.api.v1alpha1 import GPUClass

__all__ = ["room_for"]

JSON = Mapping[str, Any]
Amounts = dict[str, Decimal]

_PODS: Final = "pods"
"""Resource of a node: every pod takes one."""
_MOST_PODS: Final = Decimal(110)
"""kubelet's own limit, for a node that states none."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
_BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})


def room_for(
    gpu_class: GPUClass, nodes: Iterable[JSON], pods: Iterable[JSON], template: JSON | None = None
) -> int | None:
    """Pods with one GPU of ``gpu_class`` each that could be placed now.

    Args:
        gpu_class: whose nodes and resource are meant.
        nodes: every Node of the cluster.
        pods: every Pod of the cluster.
        template: the pod template that would be placed. With it, its other requests, its node selector and its
            tolerations count too.

    Returns:
        None when nobody can tell: a class without a resource is only limited by what the pod asks for besides.
    """
    if gpu_class.spec.resource_name is None and template is None:
        return None
    asked = _asked(gpu_class, template)
    if asked is None:
        return None
    spec: JSON = {} if template is None else template.get("spec") or {}
    stated = [toleration.to_manifest() for toleration in gpu_class.spec.tolerations]
    tolerations = [*stated, *(spec.get("tolerations") or ())]
    selector = {**(spec.get("nodeSelector") or {}), **gpu_class.spec.node_selector}
    here = sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    places = {
        place.name: place
        for node in here
        if (place := _Place.from_node(node)) and place.takes(selector, tolerations, asked)
    }
    waiting = []
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _OVER:
            continue
        on = (pod.get("spec") or {}).get("nodeName")
        if not on:
            waiting.append(pod)
        elif on in places and not places[on].hold(pod):
            del places[on]
    for pod in sorted(waiting, key=_age):
        _place(pod, list(places.values()))
    return sum(place.room(asked) for place in places.values())


@dataclass(slots=True)
class _Place:
    """A node, with what is left on it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[JSON, ...]
    left: Amounts

    @classmethod
    def from_node(cls, node: JSON) -> _Place | None:
        """None for a node on which nothing is placed."""
        metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
        ready = next((one for one in status.get("conditions") or () if one.get("type") == "Ready"), None)
        if metadata.get("deletionTimestamp") or spec.get("unschedulable"):
            return None
        if ready is not None and ready.get("status") != "True":
            return None
        try:
            left = {_PODS: _MOST_PODS} | _amounts(status.get("allocatable") or {})
        except QuantityError:
            return None
        taints = tuple(taint for taint in spec.get("taints") or () if taint.get("effect") in _BLOCKING)
        return cls(str(metadata["name"]), metadata.get("labels") or {}, taints, left)

    def takes(self, selector: Mapping[str, str], tolerations: Sequence[JSON], asked: Amounts) -> bool:
        """Whether labels and taints allow a pod here."""
        if any(self.labels.get(name) != value for name, value in selector.items()):
            return False
        return all(
            # Clusters that taint nodes by their resource let pods that ask for it through (ExtendedResourceToleration).
            taint.get("key") in asked or any(_tolerates(one, taint) for one in tolerations)
            for taint in self.taints
        )

    def hold(self, pod: JSON) -> bool:
        """Take away what a pod holds; False when that cannot be read."""
        try:
            held = _requests(pod["spec"])
        except QuantityError:
            return False
        for name, amount in held.items():
            self.left[name] = self.left.get(name, Decimal(0)) - amount
        return True

    def room(self, asked: Amounts) -> int:
        """Pods of that size that fit in what is left."""
        counts = [self.left.get(name, Decimal(0)) / amount for name, amount in asked.items() if amount]
        return max(0, math.floor(min(counts)))


def _asked(gpu_class: GPUClass, template: JSON | None) -> Amounts | None:
    """What one pod takes; None when the template's numbers cannot be read."""
    resource = gpu_class.spec.resource_name
    try:
        asked = _requests({} if template is None else template.get("spec") or {})
    except QuantityError:
        return None
    if resource is not None and resource not in asked:  # the template is still that of another class
        asked = {name: amount for name, amount in asked.items() if "/" not in name}
        asked[resource] = Decimal(1)
    return asked


def _place(pod: JSON, places: Sequence[_Place]) -> None:
    """Put a pod that waits onto the first node that it fits on; one that fits nowhere is in nobody's way."""
    spec = pod.get("spec") or {}
    if spec.get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
        return
    try:
        asked = _requests(spec)
    except QuantityError:
        return
    for place in places:
        if place.room(asked) and place.takes(spec.get("nodeSelector") or {}, spec.get("tolerations") or (), asked):
            place.hold(pod)
            return


def _age(pod: JSON) -> tuple[str, str, str]:
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata.get("namespace")), str(metadata.get("name"))


def _requests(spec: JSON) -> Amounts:
    """What the scheduler sets aside for a pod (PodRequests of k8s.io/component-helpers): containers and sidecars
    together, or the largest init container with the sidecars that run beside it, whichever is more."""
    together: Amounts = {}
    for container in spec.get("containers") or ():
        together = _sum(together, _stated(container.get("resources") or {}))
    largest: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.get("initContainers") or ():
        stated = _stated(container.get("resources") or {})
        if container.get("restartPolicy") == "Always":
            sidecars = _sum(sidecars, stated)
            stated = {}
        largest = _most(largest, _sum(sidecars, stated))
    whole = _most(_sum(together, sidecars), largest)
    whole |= _stated(spec.get("resources") or {})
    return _sum(whole, {_PODS: Decimal(1)}, _amounts(spec.get("overhead") or {}))


def _stated(resources: JSON) -> Amounts:
    """Requests; the limit where only that is written, as the API server fills it in."""
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(stated: JSON) -> Amounts:
    return {str(name): parse_quantity(str(amount), f"resource {name}") for name, amount in stated.items()}


def _sum(*parts: Amounts) -> Amounts:
    return {name: sum((part.get(name, Decimal(0)) for part in parts), Decimal(0)) for name in _names(parts)}


def _most(*parts: Amounts) -> Amounts:
    return {name: max(part.get(name, Decimal(0)) for part in parts) for name in _names(parts)}


def _names(parts: Iterable[Amounts]) -> Iterator[str]:
    return iter(dict.fromkeys(name for part in parts for name in part))


def _tolerates(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    operator, key = toleration.get("operator") or "Equal", toleration.get("key")
    if operator == "Exists":
        return key in {None, "", taint.get("key")}
    return (
        operator == "Equal"
        and key == taint.get("key")
        and (toleration.get("value") or "") == (taint.get("value") or "")
    )
