"""What the status of a GPUClass says: how many nodes there are of it, and how many GPUs they offer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from slotune.api.kubernetes_types import Condition
from slotune.api.quantities import QuantityError, parse_quantity
from slotune.api.v1alpha1 import GPUClass
from slotune.api.v1alpha1.gpu_class import GPUClassStatus
from slotune.controller.cluster import Object
from slotune.controller.conditions import timestamp
from slotune.controller.store import labels_of

__all__ = ["class_status"]


def class_status(gpu_class: GPUClass, nodes: Iterable[Object], now: datetime) -> GPUClassStatus:
    """The status for these nodes of the cluster; equal to the present one when nothing has changed.

    A node counts that carries every label of the selector and, where the class has a resource, offers any of it.
    """
    spec, found, gpus = gpu_class.spec, 0, 0
    for node in nodes:
        labels = labels_of(node)
        if any(labels.get(name) != value for name, value in spec.node_selector.items()):
            continue
        offered = 0 if spec.resource_name is None else _offered(node, spec.resource_name)
        if spec.resource_name is None or offered:
            found, gpus = found + 1, gpus + offered
    before = gpu_class.status or GPUClassStatus()
    known = before.condition("Ready")
    status: Literal["True", "False"] = "True" if found else "False"
    message = f"{found} nodes" if found else _cure(gpu_class)
    ready = Condition(
        type="Ready",
        status=status,
        observed_generation=gpu_class.metadata.generation,
        last_transition_time=(
            known.last_transition_time if known is not None and known.status == status else timestamp(now)
        ),
        reason="NodesFound" if found else "NoNodes",
        message=message,
    )
    return GPUClassStatus(
        observed_generation=gpu_class.metadata.generation,
        conditions=(ready,),
        nodes=found,
        gpus=None if spec.resource_name is None else gpus,
    )


def _cure(gpu_class: GPUClass) -> str:
    spec = gpu_class.spec
    wanted = [f"{name}={value}" for name, value in spec.node_selector.items()]
    wanted += [] if spec.resource_name is None else [f"offers {spec.resource_name}"]
    asked = f" that {' and '.join(wanted)}" if wanted else ""
    return (
        f"No node{asked} is there now: label one, correct spec.nodeSelector or spec.resourceName, or let an autoscaler "
        "add one when a trial waits."
    )


def _offered(node: Object, resource: str) -> int:
    stated = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    try:
        return max(0, int(parse_quantity(str(stated))))
    except (QuantityError, ValueError):
        return 0
