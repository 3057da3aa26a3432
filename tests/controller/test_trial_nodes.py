"""Where a trial ran stands in its status, and a look at a machine is sent to the machine that it is about."""

from __future__ import annotations

from typing import Any

from slotune.api.v1alpha1 import LlamaTrial
from slotune.controller.kinds import JOB
from slotune.load.summary import IdleProbe
from slotune.search.trial import Purpose
from slotune.tuning.trial_objects import result_of, trial_of
from tests.controller.fake_cluster import Request
from tests.controller.manifests import owned
from tests.controller.simulation import Simulation, world

WISH = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}


async def test_a_sentinel_prefers_the_node_whose_trials_it_judges_and_the_others_prefer_none():
    simulation = Simulation(world(probe=IdleProbe(0.001, 10_000.0, 0.01)))
    made: dict[str, Any] = {}

    def keep(request: Request) -> None:
        if request.kind == JOB.name and request.is_write:
            made.update({job["metadata"]["name"]: job for job in simulation.jobs()})

    simulation.cluster.after = keep
    simulation.apply(owned(measurement__sentinelEvery=2))
    await simulation.until_decided()
    trials = {raw["metadata"]["name"]: LlamaTrial.from_manifest(raw) for raw in simulation.trials()}
    results = [result_of(trial) for trial in trials.values()]
    assert {result.node for result in results if result is not None} == {"node-1"}
    assert {t.status.environment.node for t in trials.values() if t.status and t.status.environment} == {"node-1"}
    sentinels = {name for name, trial in trials.items() if trial_of(trial.spec).purpose is Purpose.SENTINEL}
    assert sentinels
    assert made.keys() >= trials.keys()
    for name in trials:
        nodes = made[name]["spec"]["template"]["spec"]["affinity"].get("nodeAffinity", {})
        wish = nodes.get("preferredDuringSchedulingIgnoredDuringExecution")
        assert wish == ([{"weight": 100, "preference": WISH}] if name in sentinels else None)
