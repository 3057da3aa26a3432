"""What production delivers is shown wherever there is a production, whatever became of the tuning; and who does not ask
for it pays nothing."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import pytest

from slotune.controller import observe
from slotune.controller.kinds import DEPLOYMENT, GPU_CLASS, LLAMA_DEPLOYMENT
from slotune.production.readings import Reading, Value
from tests.controller.manifests import ARGS, NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0
WATCHED = {"observe": {"prometheus": {"url": "http://prometheus.invalid:9090", "ttftQuery": "ttft", "interval": "1m"}}}
AUTO = {"rollout__mode": "Auto", "rollout__allowDowntime": True, "rollout__verify": {"window": "2m", "interval": "30s"}}


class Prometheus:
    """Says how late production's first tokens are."""

    def __init__(self) -> None:
        self.ttft_s, self.asked = 0.71, 0

    async def scalar(self, query: str, at: datetime) -> Reading:
        self.asked += query == "ttft"
        return Value(self.ttft_s if query == "ttft" else 30.0)


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> Prometheus:
    found = Prometheus()

    async def reader(*_: Any) -> Prometheus:
        return found

    monkeypatch.setattr(observe, "prometheus_reader", reader)
    return found


def simulated(*manifests: Any) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(*manifests)
    return simulation


def said(simulation: Simulation, name: str = "chat") -> str:
    """What is told of production; empty when nothing is."""
    return str((simulation.status(name).get("production") or {}).get("message", ""))


def change(simulation: Simulation, **spec: Any) -> None:
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec=spec)


async def until_phase(simulation: Simulation, phase: str) -> None:
    await simulation.run(lambda: simulation.status().get("phase") == phase, most_s=2 * HOUR)
    assert simulation.status()["phase"] == phase, simulation.status()["conditions"]


async def until_seen(simulation: Simulation, prometheus: Prometheus, ttft_s: float) -> None:
    """Until a number that was not there before is told."""
    prometheus.ttft_s = ttft_s
    await simulation.run(lambda: f"{ttft_s:.2f}".rstrip("0") in said(simulation), most_s=200)


SETS = {
    "owned, rolled out": ((owned(**WATCHED, **AUTO),), "Tuned"),
    "owned, as before": ((owned(**WATCHED),), "Recommended"),
    "a target": ((target(), targeting(**WATCHED)), "Recommended"),
}


@pytest.mark.parametrize(("manifests", "phase"), SETS.values(), ids=SETS)
async def test_who_suspends_tuning_still_sees_what_production_delivers(manifests, phase, prometheus):
    simulation = simulated(*manifests)
    await until_phase(simulation, phase)
    await simulation.run(most_s=120)
    change(simulation, suspend=True)
    await until_phase(simulation, "Suspended")
    await simulation.run(most_s=120)
    mark, asked = len(simulation.cluster.requests), prometheus.asked
    await until_seen(simulation, prometheus, 1.37)
    assert "production p95 TTFT 1.37 s, measured " in said(simulation)
    await simulation.run(most_s=HOUR)
    assert 55 <= prometheus.asked - asked <= 65
    requests = simulation.cluster.requests[mark:]
    assert {str(one) for one in requests} == {"apply LlamaDeployment chat/status"}
    assert len(requests) <= 8
    assert_good_statuses(simulation)


async def test_one_that_was_always_suspended_sees_its_target_and_an_operator_that_starts_anew_goes_on(prometheus):
    simulation = simulated(target(), targeting(**WATCHED, suspend=True))
    await simulation.run(lambda: bool(said(simulation)), most_s=60)
    assert "production p95 TTFT 0.71 s" in said(simulation)
    assert "measured" not in said(simulation)
    simulation.kill()
    await until_seen(simulation, prometheus, 1.37)
    assert "production p95 TTFT 1.37 s" in said(simulation)
    assert simulation.status()["phase"] == "Suspended"
    assert simulation.trials() == simulation.jobs() == []


async def test_what_stands_in_the_way_of_a_search_hides_no_production(prometheus):
    simulation = simulated(target(), targeting(**WATCHED))
    simulation.cluster.remove(GPU_CLASS, None, "cpu")
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "ReferenceNotFound"), most_s=60)
    await until_seen(simulation, prometheus, 1.37)
    assert "production p95 TTFT 1.37 s" in said(simulation)
    assert simulation.says("Stalled") == ("True", "ReferenceNotFound")
    assert_good_statuses(simulation)


async def test_a_server_that_is_refused_is_watched_all_the_same(prometheus):
    shell = ["/bin/sh", "-c", "exec llama-server -m /models/f16.gguf"]
    simulation = simulated(
        target(template__spec__containers__0__command=shell, template__spec__containers__0__args=None),
        targeting(**WATCHED),
    )
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "Refused"), most_s=600)
    assert simulation.says("Stalled") == ("True", "Refused")
    await until_seen(simulation, prometheus, 1.37)
    assert "production p95 TTFT 1.37 s" in said(simulation)


async def test_an_answer_that_was_taken_back_leaves_production_watched(prometheus):
    simulation = simulated(owned(**WATCHED, **AUTO))
    simulation.reader.outcome = "Missed"
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "RolledBack"), most_s=2 * HOUR)
    await until_seen(simulation, prometheus, 1.37)
    assert "production p95 TTFT 1.37 s" in said(simulation)
    simulation.cluster.remove(GPU_CLASS, None, "cpu")
    await until_seen(simulation, prometheus, 1.52)
    assert "production p95 TTFT 1.52 s" in said(simulation)
    assert_good_statuses(simulation)


async def test_no_measurement_is_told_beside_pods_that_somebody_has_changed_since(prometheus):
    simulation = simulated(target(), targeting(**WATCHED))
    await until_phase(simulation, "Recommended")
    change(simulation, suspend=True)
    await until_phase(simulation, "Suspended")
    await until_seen(simulation, prometheus, 1.37)
    assert "measured" in said(simulation)
    await simulation.run(most_s=60)
    simulation.apply(target(template__spec__containers__0__args=[*ARGS, "--verbose"]))
    await simulation.run(most_s=60)
    await until_seen(simulation, prometheus, 1.52)
    assert "production p95 TTFT 1.52 s" in said(simulation)
    assert "measured" not in said(simulation)


async def test_production_of_another_one_is_not_ones_own(prometheus):
    simulation = simulated(target(), targeting(**WATCHED))
    await simulation.run(most_s=5)
    simulation.apply(targeting("younger", **WATCHED), targeting("asleep", **WATCHED, suspend=True))
    await simulation.run(lambda: simulation.says("Stalled", "younger") == ("True", "TargetConflict"), most_s=60)
    await simulation.run(most_s=120)
    assert said(simulation)
    assert not said(simulation, "younger")
    assert not said(simulation, "asleep")


async def test_a_deployment_that_slotune_did_not_make_is_not_its_production(prometheus):
    simulation = simulated(target("chat"), owned(**WATCHED))
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "TargetConflict"), most_s=60)
    await simulation.run(most_s=120)
    assert not said(simulation)
    assert prometheus.asked == 0


@pytest.mark.parametrize("suspend", [True, False])
async def test_nothing_is_told_of_a_deployment_that_is_gone_and_nobody_looks_for_it_all_the_time(suspend, prometheus):
    simulation = simulated(target(), targeting(**WATCHED, suspend=suspend))
    await simulation.run(lambda: bool(said(simulation)), most_s=60)
    simulation.cluster.remove(DEPLOYMENT, NAMESPACE, "web")
    await simulation.run(most_s=120)
    assert "production" not in simulation.status()
    mark, looks = len(simulation.cluster.requests), len(simulation.requeues)
    await simulation.run(most_s=HOUR)
    assert len(simulation.requeues) - looks <= (7 if suspend else 35)
    assert not [one for one in simulation.cluster.requests[mark:] if one.is_write]
    simulation.apply(target())
    await simulation.run(lambda: bool(said(simulation)), most_s=60)
    assert said(simulation)


async def test_a_fleet_that_is_suspended_and_not_watched_asks_nothing():
    names = [f"chat-{number}" for number in range(20)]
    simulation = simulated(*(owned(name, suspend=True) for name in names))
    await simulation.run(lambda: all(simulation.status(name).get("phase") for name in names), most_s=60)
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=2 * HOUR)
    assert simulation.cluster.requests[mark:] == []


async def test_a_fleet_that_is_suspended_and_watched_costs_one_write_in_ten_minutes_each(prometheus):
    names = [f"chat-{number}" for number in range(20)]
    simulation = simulated(*(target(f"web-{name}") for name in names))
    simulation.apply(*(targeting(name, f"web-{name}", **WATCHED, suspend=True) for name in names))
    await simulation.run(lambda: all(said(simulation, name) for name in names), most_s=60)
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert {one.verb for one in simulation.cluster.requests[mark:]} == {"apply"}
    assert len(simulation.cluster.requests) - mark <= 7 * len(names)
    assert prometheus.asked >= 50 * len(names)


class Silent:
    """Never answers, until it is told to."""

    def __init__(self) -> None:
        self.answers, self.asked = asyncio.Event(), 0

    async def scalar(self, query: str, at: datetime) -> Reading:
        self.asked += 1
        await self.answers.wait()
        return Value(0.71 if query == "ttft" else 30.0)


async def test_a_prometheus_that_never_answers_holds_up_nobody_and_is_heard_when_it_does(monkeypatch):
    silent = Silent()

    async def reader(*_: Any) -> Silent:
        return silent

    monkeypatch.setattr(observe, "prometheus_reader", reader)
    names = [f"quiet-{number}" for number in range(40)]
    simulation = simulated(target(), targeting(suspend=True))
    for name in names:  # each with a target of its own
        simulation.apply(target(name), targeting(name, target=name, **WATCHED, suspend=True))
    life = await simulation.alive()
    began = time.monotonic()
    looks = [asyncio.create_task(life.reconciler.reconcile((NAMESPACE, name))) for name in names]
    await asyncio.sleep(0)
    await life.reconciler.reconcile((NAMESPACE, "chat"))
    assert time.monotonic() - began < 5
    assert simulation.status()["phase"] == "Suspended"
    waits = await asyncio.gather(*looks)
    assert min(waits) >= 60
    assert silent.asked == len(names)
    assert not said(simulation, names[0])
    event = life.wakes.begin((NAMESPACE, names[0]))
    await life.reconciler.reconcile((NAMESPACE, names[0]))
    assert silent.asked == len(names)
    silent.answers.set()
    await asyncio.wait_for(event.wait(), 10)
    await life.reconciler.reconcile((NAMESPACE, names[0]))
    assert "production p95 TTFT 0.71 s" in said(simulation, names[0])
