"""What slotune chose for a silent spec stands in the status, and what of a pod no trial has is said."""

from __future__ import annotations

from typing import Any

from slotune.api.v1alpha1 import LlamaDeployment
from slotune.controller.defaults import defaults_of
from tests.controller import manifests
from tests.controller.manifests import owned, target, targeting
from tests.controller.simulation import Simulation, world


def chosen(manifest: Any) -> dict[str, str]:
    return defaults_of(LlamaDeployment.from_manifest(manifest).spec, manifest["spec"], "llama")


def test_only_what_the_spec_leaves_open_is_told():
    found = chosen(owned(measurement={"runs": 3}, replicas=None, rollout__mode=None))
    assert found["measurement.confidence"] == "0.95"
    assert "measurement.runs" not in found
    assert "search.budget.trials" not in found  # it is written
    assert found["rollout.mode"] == "Recommend"
    assert found["rollout.allowDowntime"] == "false"
    assert found["sandbox.capacityTimeout"] == "30m"
    assert found["retune.triggers"] == "ImageChange, ModelChange, WorkloadChange, HardwareChange"
    assert (found["container"], found["replicas"]) == ("llama", "1")
    assert list(found) == sorted(found)


def test_what_is_written_is_no_choice_of_ours():
    found = chosen(owned(container="llama", rollout__mode="Auto", search__explain="Off"))
    assert not {"container", "replicas", "rollout.mode", "search.explain"} & set(found)
    assert "replicas" not in chosen(targeting())


async def test_a_status_tells_the_defaults_and_what_no_trial_has():
    template = manifests.with_changes(manifests.TEMPLATE, {"spec__hostNetwork": True})
    template["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(target(template=template), targeting(container="llama"))
    await simulation.run(lambda: simulation.flying() != [], most_s=60)
    assert simulation.status()["defaults"]["sandbox.mode"] == "SpareGPU"
    message = simulation.condition("TargetResolved")["message"]
    assert "container proxy is not in a trial: a Job waits for every container to end." in message
    assert "hostNetwork is not used in a trial." in message
