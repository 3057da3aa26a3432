"""A tag that leads to another image during a search: its trials say so, and nothing is compared across two builds."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.controller.kinds import CONFIG_MAP
from slotune.search.trial import Trial
from tests.controller.manifests import NAMESPACE, owned
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0
NAME = "ghcr.io/ggml-org/llama.cpp"
OLD, NEW = f"{NAME}@sha256:{'a' * 64}", f"{NAME}@sha256:{'b' * 64}"


def simulated(image_id: str = OLD) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 20.0))
    simulation.node.image_id = image_id
    simulation.apply(owned())
    return simulation


def outcomes(simulation: Simulation) -> list[tuple[str, str, str]]:
    """(image, outcome, reason) of each trial that has ended, in their order."""
    ended = [one["status"] for one in simulation.trials() if (one.get("status") or {}).get("phase") == "Complete"]
    ended.sort(key=lambda status: status["completedAt"])
    return [(one["environment"]["image"], one["outcome"], one["reason"]) for one in ended]


async def test_trials_of_a_moved_image_are_invalid_with_both_digests_and_the_cure():
    simulation = simulated()
    await simulation.run(lambda: len(simulation.node.measured) == 2, most_s=HOUR)
    simulation.node.image_id = NEW
    await simulation.until_decided()
    found = outcomes(simulation)
    assert {(outcome, reason) for image, outcome, reason in found if image == NEW} == {("Invalid", "ImageMoved")}
    assert {image for image, outcome, _ in found if outcome in {"Pass", "Fail"}} == {OLD}
    (message,) = {one["status"]["message"] for one in simulation.trials() if one["status"]["reason"] == "ImageMoved"}
    assert "a" * 40 in message
    assert "b" * 40 in message
    assert "spec.rerun" in message
    assert_good_statuses(simulation)


async def test_it_shows_as_soon_as_the_server_has_started():
    simulation = simulated()
    await simulation.run(lambda: len(simulation.node.measured) == 2, most_s=HOUR)
    simulation.node.image_id = NEW
    measured = len(simulation.node.measured)
    await simulation.until_decided()
    assert len(simulation.node.measured) == measured


async def test_where_the_survey_saw_no_image_the_first_trial_says_it():
    simulation = simulated("")
    await simulation.run(lambda: bool(simulation.flying()), most_s=HOUR)
    simulation.node.image_id = OLD
    await simulation.run(lambda: len(simulation.node.measured) == 2, most_s=HOUR)
    simulation.node.image_id = NEW
    await simulation.until_decided()
    assert (NEW, "Invalid", "ImageMoved") in outcomes(simulation)
    assert not [one for one in outcomes(simulation) if one[0] == NEW and one[1] != "Invalid"]


async def test_the_same_image_under_another_name_is_the_same_and_the_search_finds_what_it_would():
    plain = simulated("")
    await plain.until_decided()
    known = simulated(OLD)
    await known.run(lambda: len(known.node.measured) == 2, most_s=HOUR)
    known.node.image_id = f"mirror.example/copy@sha256:{'a' * 64}"
    await known.until_decided()
    asked: Any = [[trial.key() for trial in one.node.measured] for one in (plain, known)]
    assert asked[0] == asked[1]
    assert known.says("SearchCompleted") == ("True", "Found")


async def test_a_new_search_takes_the_new_image():
    simulation = simulated()
    await simulation.until_decided()
    before: list[Trial] = list(simulation.node.measured)
    simulation.node.image_id = NEW
    simulation.apply(owned(rerun={"reason": "the image has moved"}))
    await simulation.run(lambda: simulation.says("SearchCompleted")[0] != "True", most_s=HOUR)
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert len(simulation.node.measured) > len(before)
    kept = [one.get("data", {}).get("imageID") for one in simulation.cluster.all_of(CONFIG_MAP, NAMESPACE)]
    assert {one for one in kept if one} == {OLD, NEW}


@pytest.mark.parametrize("image_id", [OLD, ""])
async def test_what_was_measured_of_one_image_answers_nothing_about_another(image_id):
    """Two LlamaDeployments that ask the same question share their trials only where they run the same program."""
    simulation = simulated(image_id)
    await simulation.until_decided()
    first = len(simulation.node.measured)
    simulation.node.image_id = NEW if image_id else ""
    simulation.apply(owned("other"))
    await simulation.until_decided("other")
    assert (len(simulation.node.measured) == first) == (not image_id)
