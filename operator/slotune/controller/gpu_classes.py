"""What the status of a GPUClass says: how many nodes there are of it, and how many GPUs they offer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, TypeVar

from slotune.api.kubernetes_types import Condition
from slotune.api.quantities import QuantityError, parse_quantity
from slotune.api.v1alpha1 import GPUClass
from slotune.api.v1alpha1.gpu_class import GPUClassStatus
from slotune.controller.cluster import Object
from slotune.controller.conditions import timestamp
from slotune.controller.store import labels_of
from slotune.sandbox.judgement import Blocked, Waiting

__all__ = ["class_status", "naming_the_class"]

J = TypeVar("J")

_NO_NODE = frozenset({"Scheduling", "Unschedulable", "NoCapacity"})
"""Reasons of a pod that waits for a node."""


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


def naming_the_class(judgement: J, gpu_class: GPUClass, index: int, nodes: Sequence[Object], now: datetime) -> J:
    """The judgement of a pod that finds no node; where no node there is of its class, it says so.

    Args:
        judgement: of a trial or a survey.
        gpu_class: the one that the pod is for.
        index: its place in ``spec.gpuClasses``.
        nodes: all of the cluster; empty when they can't be seen, and then the scheduler's words are all there is.
        now: with time zone.
    """
    if not isinstance(judgement, Blocked | Waiting) or judgement.reason not in _NO_NODE:
        return judgement
    if not nodes or class_status(gpu_class, nodes, now).nodes:
        return judgement
    words = f"spec.gpuClasses[{index}].name is {gpu_class.metadata.name}: {_cure(gpu_class)} Meanwhile: "
    return replace(judgement, message=words + judgement.message)


def _wanted(gpu_class: GPUClass) -> str:
    spec = gpu_class.spec
    wanted = [f"has the label {name}={value}" for name, value in spec.node_selector.items()]
    wanted += [] if spec.resource_name is None else [f"offers {spec.resource_name}"]
    return f" that {' and '.join(wanted)}" if wanted else ""


def _cure(gpu_class: GPUClass) -> str:
    return (
        f"No node{_wanted(gpu_class)} is there now: label one, correct nodeSelector or resourceName of the GPUClass, "
        "or let an autoscaler add one when a trial waits."
    )


def _offered(node: Object, resource: str) -> int:
    stated = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    try:
        return max(0, int(parse_quantity(str(stated))))
    except (QuantityError, ValueError):
        return 0
