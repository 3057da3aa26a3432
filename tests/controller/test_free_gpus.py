"""How many more pods of a class the nodes have room for."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1 import GPUClass
from slotune.controller.free_gpus import room_for

GPU = "nvidia.com/gpu"


def gpu_class(name: str = "l4", *, resource: str | None = GPU, **spec: Any) -> GPUClass:
    """A class, by default of the nodes with label gpu=l4."""
    manifest: dict[str, Any] = {"metadata": {"name": name}, "spec": {"pricePerHour": "0.80", **spec}}
    manifest["spec"].setdefault("nodeSelector", {"gpu": "l4"})
    if resource is not None:
        manifest["spec"]["resourceName"] = resource
    return GPUClass.from_manifest(manifest)


def node(name: str = "n1", gpus: int = 2, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A node that is ready."""
    allocatable = {GPU: str(gpus), "cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "labels": labels or {"gpu": "l4"}},
        "spec": spec,
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(on: str | None = "n1", *, phase: str = "Running", name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod with one GPU."""
    spec.setdefault("containers", [{"resources": {"limits": {GPU: "1"}}}])
    if on is not None:
        spec["nodeName"] = on
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": {"phase": phase}}


def asking(**requests: str) -> list[dict[str, Any]]:
    return [{"resources": {"requests": requests}}]


def test_what_no_pod_holds_on_nodes_of_the_class_is_free() -> None:
    nodes = [node("n1", 2), node("n2", 4), node("other", 8, labels={"gpu": "h100"})]
    assert room_for(gpu_class(), nodes, [pod("n1"), pod("n2"), pod("other")]) == 4


def test_a_pod_that_has_ended_holds_nothing_and_one_that_ends_still_does() -> None:
    ends = pod()
    ends["metadata"]["deletionTimestamp"] = "2026-03-02T12:00:00Z"
    assert room_for(gpu_class(), [node()], [pod(phase="Succeeded"), pod(phase="Failed"), ends]) == 1


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(node(unschedulable=True), id="cordoned"),
        pytest.param(node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}]), id="tainted"),
        pytest.param(
            node() | {"status": {"allocatable": {GPU: "2"}, "conditions": [{"type": "Ready", "status": "Unknown"}]}},
            id="lost",
        ),
        pytest.param(node() | {"status": {"allocatable": {GPU: "many"}}}, id="with numbers that can't be read"),
        pytest.param(node() | {"status": {}}, id="without the resource"),
    ],
)
def test_nothing_is_free_on_a_node_that_takes_no_pods(bad: dict[str, Any]) -> None:
    assert room_for(gpu_class(), [bad], []) == 0


@pytest.mark.parametrize(
    ("taint", "toleration"),
    [
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, {"key": "team", "value": "a"}),
        ({"key": "team", "value": "a", "effect": "NoExecute"}, {"key": "team", "operator": "Exists"}),
        ({"key": "team", "effect": "NoSchedule"}, {"operator": "Exists"}),
        ({"key": GPU, "value": "present", "effect": "NoSchedule"}, None),
        ({"key": "team", "value": "a", "effect": "PreferNoSchedule"}, None),
    ],
    ids=["equal", "exists", "everything", "named after the resource", "only a preference"],
)
def test_a_taint_that_is_tolerated_keeps_nothing_away(taint: dict[str, str], toleration: dict[str, str] | None) -> None:
    tolerations = [] if toleration is None else [toleration]
    assert room_for(gpu_class(tolerations=tolerations), [node(taints=[taint])], []) == 2


def test_a_toleration_of_another_effect_or_value_does_not_help() -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    others = [{"key": "team", "value": "b"}, {"key": "team", "operator": "Exists", "effect": "NoExecute"}]
    assert room_for(gpu_class(tolerations=others), [node(taints=[taint])], []) == 0


def test_a_pod_that_waits_and_would_fit_has_its_gpu_already() -> None:
    assert room_for(gpu_class(), [node()], [pod(None, phase="Pending")]) == 1


def test_a_pod_that_waits_for_something_else_takes_no_gpu() -> None:
    waiting = [
        pod(None, phase="Pending", nodeSelector={"gpu": "h100"}),
        pod(None, phase="Pending", containers=[{"resources": {"limits": {GPU: "8"}}}]),
        pod(None, phase="Pending", schedulingGates=[{"name": "kueue"}]),
        pod(None, phase="Pending", containers=[{}]),
    ]
    assert room_for(gpu_class(), [node()], waiting) == 2


def test_a_node_with_a_pod_that_cannot_be_read_has_nothing_free() -> None:
    odd = pod(containers=[{"resources": {"limits": {GPU: "one"}}}])
    assert room_for(gpu_class(), [node("n1"), node("n2")], [odd]) == 2


def test_sidecars_count_beside_containers_and_init_containers_only_where_they_are_larger() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {GPU: "1"}}}
    fetches = {"resources": {"limits": {GPU: "1"}}}
    both = pod(initContainers=[sidecar, fetches], containers=[{}])
    assert room_for(gpu_class(), [node("n1", 4)], [both]) == 2
    served = pod(initContainers=[fetches], containers=[{"resources": {"limits": {GPU: "1"}}}])
    assert room_for(gpu_class(), [node("n1", 4)], [served]) == 3


def test_a_template_needs_room_for_its_other_requests_too() -> None:
    big = {"spec": {"containers": [{"resources": {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {GPU: "1"}}}]}}
    assert room_for(gpu_class(), [node("n1", 8)], [], big) == 2
    assert room_for(gpu_class(), [node("n1", 8)], [pod(containers=asking(cpu="2500m"))], big) == 1


def test_a_template_goes_only_where_its_own_selector_leads() -> None:
    picky = {"spec": {"containers": [{}], "nodeSelector": {"zone": "a"}}}
    nodes = [node("n1", 2), node("n2", 1, labels={"gpu": "l4", "zone": "a"})]
    assert room_for(gpu_class(), nodes, [], picky) == 1


def test_a_template_of_another_class_is_counted_with_the_resource_of_the_new_one() -> None:
    amd = {"spec": {"containers": [{"resources": {"limits": {"amd.com/gpu": "1", "cpu": "1"}}}]}}
    assert room_for(gpu_class(), [node("n1", 2)], [], amd) == 2


def test_without_a_resource_only_the_template_says_how_much_a_pod_takes() -> None:
    cpu = gpu_class(resource=None)
    assert room_for(cpu, [node()], []) is None
    template = {"spec": {"containers": asking(cpu="3", memory="2Gi")}}
    assert room_for(cpu, [node("n1"), node("n2")], [pod("n1", containers=asking(cpu="6"))], template) == 2


@given(
    gpus=st.lists(st.integers(0, 4), max_size=4),
    held=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8),
    waiting=st.lists(st.integers(0, 2), max_size=4),
)
def test_another_pod_never_makes_more_room(gpus: list[int], held: list[tuple[int, int]], waiting: list[int]) -> None:
    nodes = [node(f"n{number}", count) for number, count in enumerate(gpus)]

    def holder(on: str | None, count: int, name: str) -> dict[str, Any]:
        return pod(on, name=name, containers=[{"resources": {"limits": {GPU: str(count)}}}])

    pods = [holder(f"n{on}", count, f"h{number}") for number, (on, count) in enumerate(held)]
    pods += [holder(None, count, f"w{number}") for number, count in enumerate(waiting)]
    rooms = [room_for(gpu_class(), nodes, pods[:count]) or 0 for count in range(len(pods) + 1)]
    assert rooms[0] == sum(gpus)
    assert all(before >= after >= 0 for before, after in itertools.pairwise(rooms))
