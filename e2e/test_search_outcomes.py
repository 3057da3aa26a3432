"""Searches that do not end in a cheaper server: a promise that nothing keeps, and candidates that cannot run."""

from __future__ import annotations

from e2e.cluster import Object
from e2e.models import WEIGHTS
from e2e.odd_model import ODD, make_odd_model
from e2e.story import Ground, Story

LIMIT_S = 400


def serving(story: Story) -> tuple[int, list[tuple[str, str]]]:
    """The Deployment's generation, and name and identity of each of its ReplicaSets."""
    sets = story.cluster.items("replicasets", story.namespace)
    return (
        story.production()["metadata"]["generation"],
        sorted((one["metadata"]["name"], one["metadata"]["uid"]) for one in sets),
    )


def test_what_nothing_can_keep_is_said_with_what_stands_in_the_way(ground: Ground, spare_gpus: None) -> None:
    asked = ground.owned("chat", ground.dear, ttft="1ms", rollout={"mode": "Auto"})
    story = ground.begin(asked)
    story.wait_for("BaselineMeasured", timeout=LIMIT_S)
    before = serving(story)
    stalled = story.wait_for("Stalled", reason="Infeasible", timeout=LIMIT_S)
    status = story.status()
    assert status["phase"] == "Infeasible"
    assert status["bindingConstraint"]["code"].startswith("TTFT")
    assert "you owe 1 ms" in stalled["message"]
    assert status["bindingConstraint"]["code"] in stalled["message"]
    assert story.condition("SLOMet")["status"] == "False"
    assert story.condition("Ready")["status"] == "False"
    assert status["nearest"]["trial"] in story.ended()
    assert "recommendation" not in status
    row = story.cluster.text("get", "lld", "chat", "--output=wide", namespace=story.namespace).splitlines()[1]
    assert status["bindingConstraint"]["code"] in row.split()
    assert serving(story) == before
    assert story.chat()["choices"]


def test_candidates_that_cannot_run_are_told_apart_and_the_search_goes_on(ground: Ground, spare_gpus: None) -> None:
    """Of two candidates one has a cache that its heads do not fit into, the other one that the pod's memory does not
    hold. What serves today is then the answer.
    """
    make_odd_model(ground.weights)
    models = [{"name": name, "path": f"/models/{WEIGHTS[name]}"} for name in ("Q8_0", "Q4_0")]
    asked = ground.owned(
        models=[*models, {"name": "odd", "path": f"/models/{ODD}"}],
        space={"models": ["Q4_0", "odd"], "cacheTypes": ["q4_0"], "contextSizePerSlot": [8192], "parallelSlots": [64]},
        rollout={"mode": "Auto"},
    )
    story = ground.begin(asked)
    story.wait_for("SearchCompleted", reason="Found", timeout=LIMIT_S)
    failed = {one["spec"]["candidate"]["model"]: one for one in story.ended().values() if failure(one)}
    assert failed.keys() == {"Q4_0", "odd"}
    assert failure(failed["odd"])["class"] == "BadFlag"
    assert failure(failed["odd"])["knob"] == "cacheTypeK"
    assert "does not divide" in failed["odd"]["status"]["message"]
    assert failure(failed["Q4_0"])["class"].startswith("OutOfMemory")
    assert failure(failed["Q4_0"])["knob"] in {"contextSizePerSlot", "cacheRAMMiB"}
    for trial in failed.values():
        assert trial["status"]["outcome"] == "Fail"
        assert trial["status"]["reason"] == failure(trial)["class"]
    assert {one["code"] for one in story.status()["rejected"]} >= {failure(one)["class"] for one in failed.values()}
    story.wait_for("RolledOut")
    generation, [_] = serving(story)
    assert generation == 1


def failure(trial: Object) -> Object:
    """Why its server could not be measured; empty when it could."""
    found: Object = trial["status"].get("failure", {})
    return found
