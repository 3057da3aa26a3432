"""What others made stays theirs: no object is written, taken over or deleted for having a name that slotune needs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from slotune.controller.children import Names
from slotune.controller.cluster import Object
from slotune.controller.flights import owner_reference
from slotune.controller.kinds import CONFIG_MAP, LLAMA_DEPLOYMENT, kind_of
from tests.controller.fake_cluster import FakeCluster
from tests.controller.manifests import NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, drive, world

HOUR = 3600.0
AUTO = {"rollout__mode": "Auto", "rollout__allowDowntime": True}
MADE_UP = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")


def simulated(*manifests: Object) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*manifests)
    return simulation


def foreign(child: Object, *, labelled: bool = True) -> Object:
    """An object of somebody else's with a child's name."""
    made = copy.deepcopy(child)
    made.pop("status", None)
    for name in (*MADE_UP, "ownerReferences", *(() if labelled else ("labels",))):
        made["metadata"].pop(name, None)
    if made["kind"] == "Job" and not labelled:
        made["spec"]["suspend"] = True
    if made["kind"] == "ConfigMap":
        made = {name: made[name] for name in ("apiVersion", "kind", "metadata")} | {"data": {"mine": "keep me"}}
    return made


def written_of(simulation: Simulation, child: Object) -> Object:
    """What people wrote of the object with a child's name, and what slotune might have: no status."""
    found = simulation.cluster.find(kind_of(child), NAMESPACE, child["metadata"]["name"])
    assert found is not None
    metadata = {name: value for name, value in found["metadata"].items() if name not in MADE_UP or name == "uid"}
    return {**found, "metadata": metadata, "status": None}


def children_of(simulation: Simulation) -> list[Object]:
    """Everything that slotune has made in the life of a cluster, each in its first form."""
    made: dict[tuple[str, str], Object] = {}
    for change in simulation.cluster.changes:
        kind, metadata = change.object["kind"], change.object["metadata"]
        if change.type == "ADDED" and metadata.get("ownerReferences") and kind != "Pod":
            made.setdefault((kind, metadata["name"]), change.object)
    return list(made.values())


async def _a_life(*manifests: Object) -> list[Object]:
    simulation = simulated(*manifests)
    await simulation.until_decided()
    await simulation.run(most_s=HOUR)
    return children_of(simulation)


def _of_each_sort(children: list[Object]) -> dict[str, Object]:
    """Of the many trials one is enough: the last, which most had to come before."""
    sorts = {}
    for child in children:
        name = child["metadata"]["name"].removeprefix("chat")
        sort = "recommendation" if "recommendation" in name else "template" if "template" in name else ""
        sort = sort or ("record" if name.endswith("-record") else "")
        sort = sort or ("survey" if "slotune.dev/survey" in child["metadata"]["labels"] else "")
        sorts[f"{child['kind']} {sort or 'itself'}"] = child
    return sorts


OWNED = owned(**AUTO)
NAMES = (
    *("ConfigMap recommendation", "ConfigMap record", "ConfigMap survey", "ConfigMap template", "Deployment itself"),
    *("Job itself", "Job survey", "LlamaTrial itself", "NetworkPolicy itself", "Service itself"),
)
FOUND_BY_LABEL = ("Job survey", "Job itself", "ConfigMap survey")
"""Of LlamaTrials one with the labels of a search is a result of that search, whoever restored it."""


@pytest.fixture(scope="module")
def sorts() -> dict[str, Object]:
    return _of_each_sort(drive(_a_life(OWNED)))


def test_the_sorts_of_children_are_those_that_are_known(sorts):
    assert set(sorts) == set(NAMES)


@pytest.mark.parametrize(
    ("sort", "labelled"),
    [*((sort, False) for sort in NAMES), *((sort, True) for sort in FOUND_BY_LABEL)],
    ids=[*NAMES, *(f"{sort} with slotune's labels" for sort in FOUND_BY_LABEL)],
)
async def test_whatever_has_the_name_of_a_child_is_left_as_it_is_and_named(sort, labelled, sorts):
    simulation = simulated(foreign(sorts[sort], labelled=labelled), OWNED)
    kind, name = kind_of(sorts[sort]), sorts[sort]["metadata"]["name"]
    before = written_of(simulation, sorts[sort])
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "TargetConflict"), most_s=24 * HOUR)
    assert simulation.says("Stalled") == ("True", "TargetConflict")
    assert simulation.says("TargetResolved") == ("False", "TargetConflict")
    message = simulation.condition("Stalled")["message"]
    assert f"{kind.name}" in message
    assert name in message
    assert "rename" in message
    looks = len(simulation.requeues)
    await simulation.run(most_s=HOUR)
    assert len(simulation.requeues) - looks < 200
    simulation.cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    await simulation.run(most_s=60)
    assert simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat") is None
    assert written_of(simulation, sorts[sort]) == before
    assert_good_statuses(simulation)


@pytest.mark.parametrize("sort", ["ConfigMap recommendation", "NetworkPolicy itself"])
async def test_a_name_that_every_one_needs_is_looked_at_before_anything_is_measured(sort, sorts):
    child = sorts[sort]
    simulation = simulated(foreign(child), target(), targeting())
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "TargetConflict"), most_s=60)
    await simulation.run(most_s=HOUR)
    assert {request.kind for request in simulation.cluster.writes} == {"LlamaDeployment", "Event"}
    simulation.cluster.remove(kind_of(child), NAMESPACE, child["metadata"]["name"])
    at = simulation.now
    await simulation.run(lambda: simulation.says("Stalled") == ("", ""), most_s=HOUR)
    assert (simulation.now - at).total_seconds() <= 121
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")


async def test_what_an_earlier_one_of_the_name_has_left_is_waited_for(sorts):
    left = foreign(sorts["ConfigMap recommendation"])
    left["metadata"]["ownerReferences"] = [{**owner_reference(sorts["Deployment itself"]), "uid": "gone"}]
    left["metadata"]["ownerReferences"][0] |= {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaDeployment"}
    simulation = simulated(left, owned())
    await simulation.run(most_s=60)
    assert simulation.says("Stalled") == ("", "")
    assert "earlier" in simulation.condition("Ready")["message"]
    simulation.cluster.remove(CONFIG_MAP, NAMESPACE, "chat-recommendation")
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")


async def test_names_that_are_its_own_are_looked_at_once(sorts):
    cluster = FakeCluster()
    raw = cluster.put(owned())
    owner, now = owner_reference(raw), cluster.now()
    names = Names(cluster)
    assert await names.taken(owner, NAMESPACE, now) is None
    assert await names.taken(owner, NAMESPACE, now) is None
    assert len(cluster.requests) == 2
    for sort in ("ConfigMap recommendation", "NetworkPolicy itself"):
        made = foreign(sorts[sort])
        made["metadata"]["ownerReferences"] = [owner]
        cluster.put(made)
    fresh = Names(cluster)
    for _ in range(3):
        assert await fresh.taken(owner, NAMESPACE, now.replace(year=now.year + 1)) is None
    assert len(cluster.requests) == 4


async def test_an_object_that_is_made_between_the_look_and_the_write_is_no_other_ones(sorts):
    """An apply names the object that was seen, so that one which was made anew meanwhile is not taken over."""
    simulation = simulated(owned())
    await simulation.until_decided()
    mine: dict[str, Any] = foreign(sorts["ConfigMap recommendation"])

    def replaced(request: Any) -> None:
        if (request.verb, request.name) == ("apply", "chat-recommendation"):
            simulation.cluster.before = lambda _: None
            simulation.cluster.remove(CONFIG_MAP, NAMESPACE, "chat-recommendation")
            simulation.cluster.put(mine)

    simulation.cluster.before = replaced
    simulation.apply(owned(slo__ttftP95="4s", rerun={"reason": "again"}))
    await simulation.run(most_s=HOUR)
    found = simulation.cluster.find(CONFIG_MAP, NAMESPACE, "chat-recommendation")
    assert found is not None
    assert found["data"] == {"mine": "keep me"}
    assert not found["metadata"].get("ownerReferences")
