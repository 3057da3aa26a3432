"""What people are told of the way to production: a phase that was left does not come back while production stays as it
is, and nothing is said to be rolled out that serves already."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import pytest

from slotune.api.v1alpha1 import RolloutRecord
from slotune.controller.kinds import DEPLOYMENT, EVENT
from slotune.controller.reasons import REASONS_OF, ConditionType
from slotune.controller.rollout_story import rollout_news
from slotune.rollout.memory import Memory
from slotune.rollout.steps import Apply, Drain, Verify, Wait, WriteAhead
from tests.controller.fake_cluster import START, written
from tests.controller.manifests import ARGS, NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0
AUTO = {"rollout__mode": "Auto", "rollout__allowDowntime": True}
VERIFY = {"rollout__verify": {"window": "2m", "interval": "30s"}}
TODAY_WINS = {"search__space__parallelSlots": [1]}
"""No other candidate is cheaper than what runs: four replicas with one slot each."""
WAY = ("RollingOut", "Verifying", "Tuned")


def simulated(*manifests: Any) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*manifests)
    return simulation


def phases(simulation: Simulation, since: int = 0) -> list[str]:
    """Each phase that was ever written, in order, without repeats."""
    told = [one.object for one in simulation.cluster.changes[since:] if one.object["kind"] == "LlamaDeployment"]
    found = [one["status"]["phase"] for one in told if "phase" in (one.get("status") or {})]
    return [one for place, one in enumerate(found) if found[place - 1 : place] != [one]]


def told(simulation: Simulation) -> list[str]:
    """Reasons of the events, in order."""
    return [one["reason"] for one in sorted(simulation.cluster.all_of(EVENT), key=lambda one: one["eventTime"])]


async def until_phase(simulation: Simulation, phase: str) -> None:
    await simulation.run(lambda: simulation.status().get("phase") == phase, most_s=2 * HOUR)
    assert simulation.status()["phase"] == phase, simulation.status()["conditions"]


# ------------------------------------------------------------------- what serves already


@pytest.mark.parametrize("mode", ["Auto", "Recommend", "RequireApproval"])
@pytest.mark.parametrize("is_owned", [True, False])
async def test_a_baseline_that_is_the_answer_is_not_rolled_out(mode, is_owned):
    policy = {"rollout__mode": mode, **TODAY_WINS}
    manifests = (owned(replicas=4, **policy),) if is_owned else (target(replicas=4), targeting(**policy))
    simulation = simulated(*manifests)
    await until_phase(simulation, "Tuned")
    await simulation.run(most_s=HOUR)
    assert simulation.says("RolledOut") == ("True", "AlreadyServing")
    assert simulation.says("Ready") == ("True", "AlreadyServing")
    assert not {"RollingOut", "Verifying", "Recommended"} & set(phases(simulation))
    assert not {"RollingOut", "RolledOut", "Progressing"} & set(told(simulation)[1:])
    assert told(simulation).count("AlreadyServing") == 1
    assert "rollout" not in simulation.status()
    assert_good_statuses(simulation)


async def test_an_answer_that_waits_for_an_approval_is_not_said_to_be_rolled_out():
    simulation = simulated(owned(rollout__mode="RequireApproval"))
    await until_phase(simulation, "AwaitingApproval")
    assert "RollingOut" not in {*phases(simulation), *told(simulation)}
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- phases


async def test_the_phase_of_a_rollout_never_goes_back():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until_phase(simulation, "Tuned")
    await simulation.run(most_s=HOUR)
    way = [one for one in phases(simulation) if one in WAY]
    assert way == list(WAY)
    reasons = told(simulation)
    assert [reasons.count(one) for one in ("RollingOut", "Verifying", "RolledOut")] == [1, 1, 1]
    assert_good_statuses(simulation)


@pytest.mark.parametrize("missing", [1, 2])
@pytest.mark.parametrize("answer", [{}, TODAY_WINS], ids=["rolled out", "served already"])
async def test_a_pod_that_is_gone_for_a_moment_takes_no_phase_back(answer, missing):
    """Of two replicas that were rolled out, or of eight that served before."""
    load = {"workload__inline__load": {"requestRate": "8"}}
    simulation = simulated(owned(**AUTO, **VERIFY, replicas=8, **load, **answer))
    await until_phase(simulation, "Tuned")
    await simulation.run(most_s=120)
    said, mark = simulation.says("RolledOut"), len(simulation.cluster.changes)
    simulation.node.unwell = missing
    await simulation.run(most_s=120)
    nobody = not deployment(simulation)["status"]["availableReplicas"]
    assert simulation.says("RolledOut") == (("False", "ProductionNotReady") if nobody else said)
    assert simulation.says("SLOMet")[0] == "Unknown"
    simulation.node.unwell = 0
    await simulation.run(most_s=HOUR)
    assert simulation.says("RolledOut") == said
    assert simulation.says("SLOMet")[0] == "True"
    assert phases(simulation, mark) == ["Tuned"]
    assert_good_statuses(simulation)


async def test_an_answer_that_saves_too_little_is_not_rolled_out_for_a_pod_that_was_gone_for_a_moment():
    simulation = simulated(owned(**AUTO, replicas=4, rollout__minSavingPercent=100))
    await until_phase(simulation, "Recommended")
    await simulation.run(most_s=120)
    assert simulation.says("RolledOut") == ("False", "SavesTooLittle")
    simulation.node.unwell = 1
    await simulation.run(most_s=120)
    simulation.node.unwell = 0
    await simulation.run(most_s=HOUR)
    assert "RollingOut" not in {*phases(simulation), *told(simulation)}
    assert deployment(simulation)["spec"]["template"]["spec"]["containers"][0]["args"] == ARGS
    assert simulation.says("RolledOut") == ("False", "SavesTooLittle")
    assert_good_statuses(simulation)


async def test_a_candidate_that_goes_back_is_told_in_one_direction_too():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.outcome, simulation.reader.busy = "Missed", 0
    await until_phase(simulation, "Verifying")
    simulation.reader.busy = 1
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "RolledBack"), most_s=2 * HOUR)
    assert simulation.says("Stalled") == ("True", "RolledBack")
    way = [one for one in phases(simulation) if one in {*WAY, "RolledBack"}]
    assert way == ["RollingOut", "Verifying", "RolledBack"]
    assert told(simulation).count("SLOMissed") == 1
    assert_good_statuses(simulation)


async def test_pods_that_somebody_replaces_are_a_rollout_of_their_own():
    """Production has really changed again, so the way is gone once more."""
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until_phase(simulation, "Tuned")
    mark = len(simulation.cluster.changes)
    template = deployment(simulation)["spec"]["template"]
    container = {**template["spec"]["containers"][0], "args": ARGS}
    old = {"metadata": {"annotations": None}, "spec": {"containers": [container]}}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "chat", spec={"template": old})
    await simulation.run(most_s=HOUR)
    assert written(simulation.cluster.requests, DEPLOYMENT)
    assert phases(simulation, mark)[-1] in {"Tuned", "Failed"}
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- steps and stages

STAGES = get_args(RolloutRecord.model_fields["stage"].annotation)


def record(stage: str) -> RolloutRecord:
    moment = "2026-03-02T12:00:00Z"
    return RolloutRecord(candidate_hash="0123456789", stage=stage, started_at=moment, since=moment)  # type: ignore[arg-type]  # a Literal


STEPS = [
    Wait("ProductionNotReady", "1 of 2"),
    Drain("1 answer runs", START),
    Verify(START, "2 looks"),
    Apply("0123456789", 2, None, "now"),
]


@pytest.mark.parametrize("stage", STAGES)
def test_the_steps_of_one_stage_have_one_phase(stage):
    seen = {rollout_news(step, record(stage)).phase for step in STEPS}
    assert len(seen) == 1
    order = {phase: place for place, phase in enumerate(("Recommended", *WAY, "RolledBack", "Failed"))}
    before = rollout_news(WriteAhead(Memory(rollout=record(stage)), "noted"))
    if stage not in {"Done", "Halted"}:
        assert order[before.phase] == order[seen.pop()]


@pytest.mark.parametrize("stage", STAGES)
def test_what_is_written_down_gives_a_reason_that_the_conditions_may_give(stage):
    news = rollout_news(WriteAhead(Memory(rollout=record(stage)), "noted"))
    assert news.claim.reason in REASONS_OF[ConditionType.ROLLED_OUT]
    asked = ConditionType.STALLED if news.state == "Refused" else ConditionType.RECONCILING
    assert news.claim.reason in REASONS_OF[asked]


def test_stages_of_a_way_have_phases_in_its_order():
    stages = ["Draining", "Applying", "Verifying", "Done"]
    way = [rollout_news(WriteAhead(Memory(rollout=record(stage)), "")).phase for stage in stages]
    assert all(WAY.index(one) <= WAY.index(other) for one, other in pairwise(way))


def deployment(simulation: Simulation) -> Any:
    found = simulation.cluster.find(DEPLOYMENT, NAMESPACE, "chat")
    assert found is not None
    return found
