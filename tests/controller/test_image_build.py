"""What the survey can't ask, the first trial tells: what runs today is read again by the build that runs it."""

from __future__ import annotations

import pytest

from slotune.controller.kinds import CONFIG_MAP
from tests.controller.manifests import owned
from tests.controller.simulation import Simulation, assert_good_statuses, world

IMAGE = "template__spec__containers__0__image"


def kept_builds(simulation: Simulation) -> list[str | None]:
    """Of every survey's facts."""
    kept = [one.get("data") or {} for one in simulation.cluster.all_of(CONFIG_MAP)]
    return [data.get("build") for data in kept if "facts.json" in data]


@pytest.mark.parametrize(("image", "again"), [("llama.cpp:server", True), ("llama.cpp:server-b11549", False)])
async def test_the_build_that_the_first_trial_says_is_kept_and_what_runs_is_read_again(image: str, again: bool) -> None:
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.node.build = 1  # as a program says that was built without its history
    simulation.apply(owned(**{IMAGE: image}))
    await simulation.run(lambda: bool(kept_builds(simulation)), most_s=60)
    assert kept_builds(simulation) == [None]

    await simulation.until_decided()

    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert kept_builds(simulation) == (["11549"] if again else [None])
    assert simulation.status()["environment"].get("engine") == ("b11549" if again else None)
    baselines = [one for one in simulation.trials() if one["spec"]["purpose"] == "Baseline"]
    assert len({one["spec"]["contextDigest"] for one in baselines}) == (2 if again else 1)
    assert_good_statuses(simulation)
