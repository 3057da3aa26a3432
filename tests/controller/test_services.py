"""A Service that somebody deletes or changes is put right soon, and one that nobody touches costs nothing."""

from __future__ import annotations

import asyncio

import pytest

from slotune.controller.kinds import DEPLOYMENT, LLAMA_DEPLOYMENT, SERVICE
from slotune.controller.services import Services, look_after_services
from slotune.controller.store import Store
from slotune.controller.wakes import Wakes
from tests.controller.fake_cluster import FakeCluster
from tests.controller.manifests import NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, world

HOUR = 3600.0
KEY = (NAMESPACE, "chat")


async def served() -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(owned())
    await simulation.until_decided()
    return simulation


def of(simulation: Simulation) -> Services:
    assert simulation.life is not None
    return Services(simulation.cluster, simulation.life.store, ())


async def test_a_service_that_is_deleted_or_changed_wakes_its_llama_deployment_once() -> None:
    simulation = await served()
    services = of(simulation)
    assert await services.changed() == set()
    assert await services.changed() == set()
    simulation.cluster.change(SERVICE, *KEY, spec={"selector": {"app": "other"}})
    assert await services.changed() == {KEY}
    assert await services.changed() == set()
    simulation.cluster.remove(SERVICE, *KEY)
    assert await services.changed() == {KEY}
    assert await services.changed() == set()


async def test_whoever_is_woken_makes_it_anew() -> None:
    simulation = await served()
    simulation.cluster.remove(SERVICE, *KEY)
    await simulation.reconcile(KEY)
    assert simulation.cluster.find(SERVICE, *KEY) is not None


async def test_it_asks_for_metadata_of_its_own_services_and_only_where_there_may_be_one() -> None:
    class Asked(FakeCluster):
        labels = ""

        async def list_metadata(self, kind, namespace, labels=""):  # type: ignore[no-untyped-def]  # as the protocol's
            Asked.labels = labels
            return await super().list_metadata(kind, namespace, labels)

    cluster, store = Asked(), Store()
    services = Services(cluster, store, ("shop", "team"))
    store.put(cluster.put(targeting()))
    assert await services.changed() == set()
    assert cluster.requests == []
    store.put(cluster.put(owned("other")))
    assert await services.changed() == set()
    assert [(one.verb, one.kind, one.namespace) for one in cluster.requests] == [
        ("list", "Service", "shop"),
        ("list", "Service", "team"),
    ]
    assert Asked.labels == "app.kubernetes.io/managed-by=slotune"


async def test_a_role_that_may_not_list_them_ends_nothing() -> None:
    simulation = await served()
    assert simulation.life is not None
    wakes, services = Wakes(), of(simulation)
    event = wakes.begin(KEY)
    await services.changed()
    simulation.cluster.forbidden = {("list", "Service")}
    task = asyncio.create_task(look_after_services(services, wakes, 0.001))
    simulation.cluster.remove(SERVICE, *KEY)
    while sum(one.kind == "Service" for one in simulation.cluster.requests[-3:]) < 3:  # noqa: ASYNC110 - a fake's list
        await asyncio.sleep(0)
    assert not event.is_set()
    simulation.cluster.forbidden = set()
    await asyncio.wait_for(event.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(("kind", "within_s"), [(DEPLOYMENT, 5), (SERVICE, 121)], ids=["Deployment", "Service"])
async def test_what_stood_in_the_way_is_looked_for_again_when_it_goes(kind, within_s) -> None:  # type: ignore[no-untyped-def]  # rows
    foreign = target("chat")
    if kind == SERVICE:
        spec = {"selector": {"app": "x"}, "ports": [{"port": 80}]}
        foreign = {"apiVersion": "v1", "kind": "Service", "metadata": foreign["metadata"], "spec": spec}
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(foreign, owned())
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "TargetConflict"), most_s=60)
    await simulation.run(most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "TargetConflict")
    simulation.cluster.remove(kind, *KEY)
    at = simulation.now
    await simulation.run(lambda: simulation.says("Stalled") == ("", ""), most_s=HOUR)
    assert (simulation.now - at).total_seconds() <= within_s
    await simulation.until_decided()
    assert simulation.cluster.find(LLAMA_DEPLOYMENT, *KEY) is not None
