"""What goes wrong becomes a condition and a later look: nothing that was measured is lost, nothing is tried in a storm,
and an API server that is down changes no status."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.controller import reconcile
from slotune.controller.backoff import FIRST_S, LONGEST_S
from slotune.controller.cluster import UnavailableError
from slotune.controller.kinds import LLAMA_DEPLOYMENT
from tests.controller.fake_cluster import Request
from tests.controller.manifests import NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, drive, world

HOUR = 3600.0
KEY = (NAMESPACE, "chat")


def simulated(*manifests: Any, **more: Any) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0), **more)
    simulation.apply(*(manifests or (owned(),)))
    return simulation


async def stalled(simulation: Simulation, most_s: float = HOUR) -> tuple[str, str]:
    """(reason, message) of Stalled."""
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=most_s)
    found = simulation.condition("Stalled")
    assert found
    return found["reason"], found["message"]


# ------------------------------------------------------------------- rights and refusals


@pytest.mark.parametrize(
    ("verb", "kind"), [("create", "Job"), ("apply", "NetworkPolicy"), ("create", "LlamaTrial"), ("list", "Pod")]
)
async def test_a_right_that_is_missing_is_named_and_tried_ever_more_rarely(verb, kind):
    simulation = simulated(target(), targeting())
    simulation.cluster.forbidden = {(verb, kind)}
    reason, message = await stalled(simulation)
    assert reason == "Forbidden"
    assert f"{verb} {kind}" in message
    assert "right" in message
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=4 * HOUR)
    assert simulation.says("Stalled") == ("True", "Forbidden")
    assert len(simulation.cluster.requests) - mark < 400
    simulation.cluster.forbidden = set()
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert simulation.status().get("failures") is None
    assert_good_statuses(simulation)


async def test_what_an_admission_rule_refuses_is_told_in_its_words():
    simulation = simulated()
    simulation.cluster.admission = lambda one: "images come from our registry only" if one["kind"] == "Job" else ""
    reason, message = await stalled(simulation)
    assert reason == "RefusedByCluster"
    assert "images come from our registry only" in message
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=4 * HOUR)
    assert len(simulation.cluster.requests) - mark < 400
    simulation.cluster.admission = lambda _: ""
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


MISSPELT = (
    "failed to create typed patch object (shop/chat; apps/v1, Kind=Deployment): "
    '.spec.template.spec.containers[name="llama"].resourcess: field not declared in schema'
)
AMOUNT = "spec.template.spec.containers[0].resources.limits.cpu is lots: unable to convert unstructured object"
INVALID = 'Deployment.apps "chat" is invalid: spec.template.spec.volumes[1].name: Duplicate value: "v"'


@pytest.mark.parametrize(
    ("said", "begins"),
    [
        (MISSPELT, 'spec.template.spec.containers[name="llama"].resourcess: field not declared in schema. Correct'),
        (AMOUNT, "spec.template.spec.containers[0].resources.limits.cpu is lots: "),
        (INVALID, 'spec.template: Deployment.apps "chat" is invalid: spec.template.spec.volumes[1].name'),
    ],
    ids=["misspelt", "amount", "invalid"],
)
async def test_what_is_wrong_with_a_template_is_told_at_its_field_and_not_of_the_crds(said, begins):
    simulation = simulated()
    simulation.cluster.admission = lambda one: said if one["kind"] == "Deployment" else ""
    reason, message = await stalled(simulation, most_s=60)
    assert reason == "RefusedByCluster"
    assert message.startswith(begins), message
    assert "CRD" not in message
    assert "tried again" not in message
    simulation.cluster.admission = lambda _: ""
    simulation.apply(owned(replicas=1))
    await simulation.until_decided()


async def test_a_defect_of_slotunes_own_is_said_and_tried_again(monkeypatch):
    simulation = simulated()
    await simulation.run(lambda: len(simulation.node.measured) == 1, most_s=HOUR)
    real = reconcile.make_plan

    def broken(_: Any) -> Any:
        raise ZeroDivisionError("secret prompt text")

    monkeypatch.setattr(reconcile, "make_plan", broken)
    reason, message = await stalled(simulation)
    assert reason == "InternalError"
    assert "ZeroDivisionError" in message
    assert "secret" not in message
    mark = len(simulation.requeues)
    await simulation.run(most_s=4 * HOUR)
    assert 10 < len(simulation.requeues) - mark < 60
    monkeypatch.setattr(reconcile, "make_plan", real)
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- an API server that is down


async def test_an_api_server_that_is_down_changes_nothing_and_is_asked_ever_more_rarely():
    simulation = simulated()
    await simulation.run(lambda: len(simulation.node.measured) == 1, most_s=HOUR)
    before = simulation.status()

    def down(request: Request) -> None:
        raise UnavailableError(str(request), None, "the API server does not answer")

    simulation.cluster.before = down
    mark = len(simulation.requeues)
    await simulation.run(most_s=4 * HOUR)
    waits = [seconds for _, seconds in simulation.requeues[mark:]]
    assert waits[0] == FIRST_S
    assert max(waits) == waits[-1] == LONGEST_S
    assert len(waits) < 40
    assert simulation.status() == before
    simulation.cluster.before = lambda _: None
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert max(simulation.node.pods_of.values()) == 1


async def test_an_overloaded_api_server_says_when_it_may_be_asked_again():
    simulation = simulated()

    def busy(request: Request) -> None:
        if request.verb == "get":
            raise UnavailableError(str(request), 429, "too many requests", 17.0)

    simulation.cluster.before = busy
    life = await simulation.alive()
    life.deliver()
    assert await simulation.reconcile(KEY) == 17.0


@settings(deadline=None, max_examples=4)
@given(st.integers(0, 9999))
def test_an_answer_that_is_lost_after_the_write_took_effect_costs_nothing(seed):
    async def law() -> None:
        random = Random(seed)
        simulation = simulated(late=random)

        def lost(request: Request) -> None:
            if request.is_write and random.random() < 0.2:
                raise UnavailableError(str(request), 504, "the connection was cut")

        def failed(request: Request) -> None:
            if random.random() < 0.05:
                raise UnavailableError(str(request), 500, "etcdserver: request timed out")

        await simulation.alive()
        simulation.cluster.before, simulation.cluster.after = failed, lost
        await simulation.until_decided()
        assert simulation.says("SearchCompleted") == ("True", "Found")
        keys = [trial.key() for trial in simulation.node.measured]
        assert len(keys) == len(set(keys))
        assert simulation.node.most_at_once == 1
        assert_good_statuses(simulation)

    drive(law())


# ------------------------------------------------------------------- another version


async def test_crds_of_an_older_slotune_are_said_with_the_cure_and_without_a_storm():
    simulation = simulated()
    simulation.cluster.undeclared = frozenset({"failures", "environment", "progress"})
    reason, message = await stalled(simulation)
    assert reason == "VersionSkew"
    assert "slotune crds | kubectl apply" in message
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=4 * HOUR)
    assert len(simulation.cluster.requests) - mark < 400
    simulation.cluster.undeclared = frozenset()
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


async def test_fields_of_a_newer_slotune_are_said_to_be_such():
    manifest = owned()
    manifest["spec"]["fromTheFuture"] = True
    simulation = simulated(manifest)
    reason, message = await stalled(simulation)
    assert reason == "VersionSkew"
    assert "spec.fromTheFuture" in message
    assert simulation.jobs() == simulation.trials() == []
    assert_good_statuses(simulation)


async def test_a_status_of_a_newer_slotune_is_written_anew():
    simulation = simulated()
    await simulation.until_decided()
    status = {"progress": {"fromTheFuture": 1}, "recommendation": {"sizes": "of another kind"}}
    simulation.cluster.change(LLAMA_DEPLOYMENT, *KEY, status=status)
    measured = len(simulation.node.measured)
    await simulation.run(most_s=60)
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert len(simulation.node.measured) == measured


# ------------------------------------------------------------------- one look


async def test_an_object_that_is_being_deleted_is_not_worked_on():
    simulation = simulated()
    life = await simulation.alive()
    simulation.cluster.remove(LLAMA_DEPLOYMENT, *KEY)
    life.deliver()
    mark = len(simulation.cluster.requests)
    await life.reconciler.reconcile(KEY)
    assert simulation.cluster.requests[mark:] == []


async def test_an_object_that_is_gone_asks_nothing():
    simulation = Simulation()
    life = await simulation.alive()
    mark = len(simulation.cluster.requests)
    assert await life.reconciler.reconcile(KEY) > 60
    assert simulation.cluster.requests[mark:] == []


async def test_the_last_free_place_is_given_away_once_when_two_look_at_the_same_time():
    simulation = simulated(owned("a"), owned("b", workload__inline__output__tokens=17))
    await simulation.run(lambda: len(simulation.trials()) == 2 and simulation.jobs() == [], most_s=60)
    life = await simulation.alive()
    life.deliver()
    await asyncio.gather(*(life.reconciler.reconcile((NAMESPACE, name)) for name in "ab"))
    assert len(simulation.flying()) == 1


async def test_a_request_that_fails_for_ever_is_said_although_the_api_server_answers_all_others():
    simulation = simulated()

    def webhook_is_down(request: Request) -> None:
        if request.verb == "create" and request.kind == "Job":
            raise UnavailableError(
                "POST /apis/batch/v1/namespaces/shop/jobs", 500, "failed calling webhook: no endpoints"
            )

    simulation.cluster.before = webhook_is_down
    reason, message = await stalled(simulation)
    assert reason == "Unavailable"
    assert "failed calling webhook" in message
    simulation.cluster.before = lambda _: None
    await simulation.until_decided()
    assert_good_statuses(simulation)
