"""An answer is looked for again when the spec says so, and no sooner; then it is really measured anew."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from slotune.api.v1alpha1 import GPUClass, LlamaDeploymentStatus, Production, Question, Retune
from slotune.controller.devices import devices_of
from slotune.controller.kinds import DEPLOYMENT, GPU_CLASS, LLAMA_DEPLOYMENT, NODE
from slotune.controller.retune import Asked, Verdict, changes, judge
from tests.controller import manifests
from tests.controller.fake_cluster import START
from tests.controller.manifests import NAMESPACE, owned, target, targeting, workload
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR, DAY = 3600.0, 86_400.0
OLD = Question(spec="s", server="i", models="m", workload="w", hardware="h", devices=("L4 580", "L4 570"))


def status(**more: Any) -> LlamaDeploymentStatus:
    """Of a search that ended at START."""
    completed = {
        "type": "SearchCompleted",
        "status": "True",
        "reason": "Found",
        "message": "",
        "lastTransitionTime": "2026-03-02T12:00:00Z",
    }
    said = {
        "conditions": [completed],
        "progress": {"inputs": "old", "search": "context", "question": OLD.to_manifest()},
        "lastSearchTime": "2026-03-02T12:00:00Z",
    }
    return LlamaDeploymentStatus.from_manifest(said | more)


def asked(inputs: str = "new", context: str = "another", **changed: Any) -> Asked:
    return Asked(inputs, context, OLD.model_copy(update=changed))


def verdict(of: Asked, hours: float = 1, *, production: Production | None = None, **retune: Any) -> Verdict:
    return judge(status(), Retune(**retune), of, production, START + timedelta(hours=hours))


# ------------------------------------------------------------------- what counts


@pytest.mark.parametrize(
    ("changed", "trigger"),
    [
        ({"server": "j"}, "ImageChange"),
        ({"models": "n"}, "ModelChange"),
        ({"workload": "x"}, "WorkloadChange"),
        ({"hardware": "k"}, "HardwareChange"),
        ({"devices": ("H100 580",)}, "HardwareChange"),
    ],
)
def test_each_change_has_its_trigger(changed, trigger):
    assert changes(OLD, OLD.model_copy(update=changed)) == {trigger}


def test_a_driver_that_is_renewed_node_by_node_is_another_when_the_last_node_has_it():
    assert changes(OLD, OLD.model_copy(update={"devices": ("L4 570", "L4 590")})) == set()
    assert changes(OLD, OLD.model_copy(update={"devices": ()})) == set()
    assert changes(OLD, OLD.model_copy(update={"devices": ("L4 590",)})) == {"HardwareChange"}


@pytest.mark.parametrize(
    "of",
    [
        pytest.param(asked(spec="t"), id="the spec"),
        pytest.param(asked(epoch="1", workload="x"), id="an epoch that was written for it"),
        pytest.param(asked(context="context", hardware="k"), id="nothing that was measured is void: a price"),
        pytest.param(asked(), id="nobody knows what: another slotune"),
    ],
)
def test_what_counts_whatever_the_triggers_and_the_cooldown_say(of):
    assert verdict(of, triggers=(), cooldown="1000h") == Verdict()


def test_without_an_answer_every_question_may_be_asked():
    searching = status(conditions=[])
    assert judge(searching, Retune(triggers=()), asked(workload="x"), None, START) == Verdict()


def test_a_change_waits_for_the_cooldown_and_says_until_when():
    held = verdict(asked(workload="x"), hours=1)
    assert held.stays.startswith("The workload has changed")
    assert "2026-03-03T12:00:00Z (retune.cooldown)" in held.stays
    assert held.is_stale
    assert held.due == START + timedelta(days=1)
    assert verdict(asked(workload="x"), hours=24) == Verdict()


def test_a_change_that_no_trigger_names_leaves_the_answer_for_good():
    held = verdict(asked(workload="x", server="j"), hours=1000, triggers=("ModelChange",))
    assert "retune.triggers does not name ImageChange and WorkloadChange" in held.stays
    assert (held.is_stale, held.due) == (False, None)
    assert verdict(asked(workload="x", server="j"), hours=1000, triggers=("ImageChange",)) == Verdict()


def test_new_drivers_are_in_no_digest_and_begin_a_search_of_their_own():
    of = asked("old", "context", devices=("L4 590",))
    assert verdict(of, hours=25).begins
    assert verdict(of, hours=1) == Verdict(due=START + timedelta(days=1))
    assert verdict(of, hours=25, triggers=("ImageChange",)) == Verdict()


def breach(last: str = "2026-03-04T12:00:00Z", observed: str | None = None) -> Production:
    return Production(
        observed_at=observed or last, state="Value", breached_since="2026-03-04T11:00:00Z", last_breach_time=last
    )


def test_a_breach_that_lasts_begins_a_search_after_the_cooldown():
    of, triggers = asked("old", "context"), ("SLOBreach",)
    assert verdict(of, 48, production=breach(), triggers=triggers).begins == "production has missed the SLO for 30m"
    assert not verdict(of, 48, production=breach(), triggers=triggers, breach_for="2h").begins
    assert not verdict(of, 48, production=breach(), triggers=triggers, cooldown="72h").begins
    assert not verdict(of, 48, production=breach()).begins
    assert not verdict(of, 48, production=breach(observed="2026-03-04T12:01:00Z"), triggers=triggers).begins


def test_only_a_time_that_was_announced_is_due():
    of, retune = asked("old", "context"), Retune(schedule="0 3 * * 6", time_zone="Europe/Berlin")
    late = datetime.fromisoformat("2026-03-07T05:00:00Z")
    announced = status(nextSearchTime="2026-03-07T02:00:00Z")
    assert judge(announced, retune, of, None, late).begins
    assert judge(status(), retune, of, None, late).due == datetime.fromisoformat("2026-03-14T02:00:00Z")
    other = status(nextSearchTime="2026-03-07T02:30:00Z")
    assert not judge(other, retune, of, None, late).begins


def test_the_nodes_of_a_class_name_its_devices():
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "pool": "a"}
    full = {"nvidia.com/cuda.driver-version.full": "580.65.06"}
    parts = {"nvidia.com/cuda.driver.major": "570", "nvidia.com/cuda.driver.minor": "124"}
    nodes = [{"metadata": {"labels": labels | more}} for more in (full, parts, full, {}, full | {"pool": "b"})]
    one = {
        **manifests.GPU_CLASS,
        "spec": {
            "pricePerHour": "1",
            "resourceName": "nvidia.com/gpu",
            "memory": "24Gi",
            "nodeSelector": {"pool": "a"},
        },
    }
    assert devices_of([GPUClass.from_manifest(one)], nodes) == ("NVIDIA-L4 570.124", "NVIDIA-L4 580.65.06")
    assert devices_of([GPUClass.from_manifest(manifests.GPU_CLASS)], nodes) == ()


# ------------------------------------------------------------------- in a cluster


async def decided(*objects: Any) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*objects)
    await simulation.until_decided()
    await simulation.run(most_s=60)
    return simulation


def traffic(**more: Any) -> Any:
    return owned(workload__inline=None, workload__ref={"name": "traffic"}, **more)


async def searched_again(simulation: Simulation, *, most_s: float = HOUR) -> bool:
    before = simulation.status()["progress"]["search"]
    await simulation.run(lambda: simulation.status()["progress"]["search"] != before, most_s=most_s)
    return bool(simulation.status()["progress"]["search"] != before)


async def test_the_old_answer_stays_until_the_cooldown_is_over():
    simulation = await decided(workload(), traffic())
    answer, measured = simulation.status()["recommendation"], len(simulation.node.measured)
    simulation.apply(workload(load={"requestRate": "2"}))
    assert not await searched_again(simulation, most_s=20 * HOUR)
    assert simulation.status()["recommendation"] == answer
    assert simulation.says("Ready") == ("True", "Recommended")
    assert "The workload has changed" in simulation.condition("TargetResolved")["message"]
    assert simulation.status()["nextSearchTime"].startswith("2026-03-03T12:0")
    assert len(simulation.node.measured) == measured
    mark = len(simulation.cluster.writes)
    await simulation.run(most_s=HOUR)
    assert len(simulation.cluster.writes) == mark  # said once
    assert await searched_again(simulation, most_s=5 * HOUR)
    await simulation.until_decided()
    assert "has changed" not in simulation.condition("TargetResolved")["message"]
    assert_good_statuses(simulation)


async def test_what_stays_is_said_again_after_it_was_suspended():
    simulation = await decided(workload(), traffic())
    simulation.apply(workload(load={"requestRate": "2"}))
    await simulation.run(most_s=60)
    for suspend in (True, False):
        simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"suspend": suspend})
        await simulation.run(most_s=60)
    assert simulation.status()["phase"] == "Recommended"
    assert simulation.says("Ready") == ("True", "Recommended")
    assert_good_statuses(simulation)


async def test_a_change_of_the_spec_counts_at_once():
    simulation = await decided(owned(retune={"triggers": []}))
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"slo": {"ttftP95": "2s"}})
    assert await searched_again(simulation, most_s=10)


async def test_another_image_of_a_target_waits():
    simulation = await decided(target(), targeting())
    image = {"containers": [{**manifests.TEMPLATE["spec"]["containers"][0], "image": f"{manifests.IMAGE}-2"}]}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", spec={"template": {"spec": image}})
    assert not await searched_again(simulation, most_s=HOUR)
    assert "The server has changed" in simulation.condition("TargetResolved")["message"]
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"retune": {"cooldown": "0s"}})
    assert await searched_again(simulation, most_s=10)


async def test_another_price_is_answered_from_what_was_measured():
    simulation = await decided(owned())
    before, measured = simulation.status()["recommendation"]["monthlyCost"], len(simulation.node.measured)
    simulation.cluster.change(GPU_CLASS, None, "cpu", spec={"pricePerHour": "0.20"})
    await simulation.run(most_s=60)
    assert float(simulation.status()["recommendation"]["monthlyCost"]) == pytest.approx(2 * float(before))
    assert len(simulation.node.measured) == measured


async def test_a_schedule_measures_everything_anew_at_its_time():
    simulation = await decided(owned(retune={"schedule": "0 3 * * *"}))
    measured = len(simulation.node.measured)
    assert simulation.status()["nextSearchTime"] == "2026-03-03T03:00:00Z"
    assert await searched_again(simulation, most_s=DAY)
    assert simulation.now >= datetime.fromisoformat("2026-03-03T03:00:00Z")
    assert simulation.now <= datetime.fromisoformat("2026-03-03T03:01:00Z")
    await simulation.until_decided()
    await simulation.run(most_s=60)
    assert len(simulation.node.measured) == 2 * measured
    assert simulation.status()["nextSearchTime"] == "2026-03-04T03:00:00Z"
    assert_good_statuses(simulation)


async def test_new_drivers_on_every_node_begin_a_search():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/cuda.driver-version.full": "580"}},
        "spec": {},
    }
    simulation = Simulation(world(seconds=lambda _: 2.0))
    gpu = {**manifests.GPU_CLASS, "spec": {"pricePerHour": "0.10", "resourceName": "nvidia.com/gpu", "memory": "24Gi"}}
    simulation.apply(node, gpu, owned(retune={"cooldown": "0s"}))
    await simulation.until_decided()
    await simulation.run(most_s=60)
    assert simulation.status()["progress"]["question"]["devices"] == ["580"]
    simulation.cluster.change(NODE, None, "n", metadata={"labels": {"nvidia.com/cuda.driver-version.full": "590"}})
    assert await searched_again(simulation)


async def test_a_rerun_counts_once_and_nothing_measured_before_counts_for_it():
    simulation = await decided(owned())
    measured = len(simulation.node.measured)
    refused = ("0123456789",)
    simulation.cluster.change(
        LLAMA_DEPLOYMENT,
        NAMESPACE,
        "chat",
        spec={"rerun": {"reason": "new card"}},
        status={"refusedCandidates": refused},
    )
    assert await searched_again(simulation, most_s=30)
    assert simulation.status()["lastHandledRerun"] == "new card"
    assert not simulation.status().get("refusedCandidates")
    await simulation.until_decided()
    await simulation.run(most_s=60)
    assert len(simulation.node.measured) == 2 * measured
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"rerun": None})
    assert not await searched_again(simulation)
    assert simulation.status()["lastHandledRerun"] == "new card"
    assert simulation.says("Ready")[0] == "True"
    assert_good_statuses(simulation)


async def test_a_time_zone_of_the_schedule_that_nobody_knows_is_refused():
    simulation = Simulation(world())
    simulation.apply(owned(retune={"schedule": "0 3 * * *", "timeZone": "Europe/Atlantis"}))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("TargetResolved") == ("False", "InvalidSpec")
    assert "spec.retune.timeZone" in simulation.condition("Stalled")["message"]
