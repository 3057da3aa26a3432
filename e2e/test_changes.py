"""Minds change: one is deleted, suspended or changed while a trial runs, or claims what another one has."""

from __future__ import annotations

import time

from e2e.cluster import Object
from e2e.manifests import quick_deployment, server_template, target_deployment
from e2e.story import Ground, Story
from e2e.waiting import eventually

RELEASE_LIMIT_S = 10.0
"""Of the finalizer. Seen: under 1 s."""
REMOVAL_LIMIT_S = 90.0
"""Of everything, the end of pods included."""


def second_trial_runs(story: Story) -> str:
    """Wait until the baseline's trial has ended and the next one runs; the name of the latter."""

    def check() -> str:
        assert story.ended()
        name: str = story.running_trial()["metadata"]["labels"]["slotune.dev/trial"]
        assert name not in story.ended()
        return name

    return eventually(check, 200, "the trial after the baseline's runs")


def measured_at(story: Story) -> dict[str, tuple[str, str]]:
    """Identity of each trial that ended, and when it did: neither changes unless it is measured again."""
    return {name: (trial["metadata"]["uid"], trial["status"]["completedAt"]) for name, trial in story.ended().items()}


def test_deletion_while_a_trial_runs_leaves_nothing(ground: Ground, spare_gpus: None) -> None:
    story = ground.begin(ground.owned())
    second_trial_runs(story)
    began = time.monotonic()
    story.cluster.delete("llamadeployment", "chat", story.namespace, wait=False)
    eventually(lambda: not story.deployment(), RELEASE_LIMIT_S, "the finalizer is released")
    assert time.monotonic() - began < RELEASE_LIMIT_S
    kinds = "jobs,pods,llamatrials,configmaps,networkpolicies,deployments,services"

    def nothing_left() -> bool:
        left = [
            f"{one['kind']}/{one['metadata']['name']}"
            for one in story.cluster.kubectl("get", kinds, namespace=story.namespace)["items"]
            if one["metadata"]["name"] != "kube-root-ca.crt"
        ]
        assert not left, left
        return True

    eventually(nothing_left, REMOVAL_LIMIT_S, "everything is gone")


def test_what_was_measured_before_suspend_is_not_measured_again_after(ground: Ground, spare_gpus: None) -> None:
    story = ground.begin(ground.owned())
    interrupted = second_trial_runs(story)
    before, serves = measured_at(story), story.production()["metadata"]["resourceVersion"]
    story.change(suspend=True)
    assert story.wait_for("Ready", "False", "Suspended", 30)
    eventually(lambda: not story.jobs(), 30, "the trial's Job is gone")
    assert story.status()["phase"] == "Suspended"
    assert measured_at(story) == before
    story.change(suspend=False)
    eventually(lambda: interrupted in story.ended(), 200, "the trial that was cut short is measured")
    assert before.items() <= measured_at(story).items()
    assert story.ended()[interrupted]["status"]["outcome"] == "Pass"
    assert story.production()["metadata"]["resourceVersion"] == serves


def test_a_changed_spec_starts_a_new_search_that_keeps_the_trials_which_still_answer(
    ground: Ground, spare_gpus: None
) -> None:
    story = ground.begin(ground.owned())
    second_trial_runs(story)
    before, search = measured_at(story), story.status()["progress"]["inputs"]
    serves = story.production()["metadata"]["resourceVersion"]
    story.change(gpuClasses=[{"name": ground.dear, "maxReplicas": 2}, {"name": ground.cheap, "maxReplicas": 2}])
    eventually(lambda: story.status()["progress"]["inputs"] != search, 60, "a new search has begun")
    assert story.wait_for("BaselineMeasured", timeout=30)  # without a measurement of its own
    story.wait_for("SearchCompleted", reason="Found", timeout=300)
    assert before.items() <= measured_at(story).items()
    assert story.status()["progress"]["trials"] == len(story.ended())
    assert story.production()["metadata"]["resourceVersion"] == serves
    # Another promise is another question: nothing measured for the old one answers it.
    story.change(slo={"ttftP95": "7s", "quality": "Off"})
    eventually(lambda: asked_for(story, "7s"), 90, "a trial is asked for the new promise")
    assert story.production()["metadata"]["resourceVersion"] == serves


def asked_for(story: Story, ttft: str) -> list[Object]:
    """Trials of that promise."""
    return [one for one in story.trials() if one["spec"]["promise"]["ttftP95"] == ttft]


def test_the_older_of_two_keeps_the_target_and_the_other_takes_over_when_it_goes(
    ground: Ground, spare_gpus: None
) -> None:
    server = target_deployment("web", server_template(ground.image, model="Q8_0"))
    first = quick_deployment("first", ground.dear, targetRef={"name": "web"})
    older = ground.begin(server, first)
    older.wait_for("TargetResolved")
    # The API server's clock has whole seconds, and two of the same second are told apart by name.
    ground.cluster.apply(quick_deployment("second", ground.dear, targetRef={"name": "web"}), older.namespace)
    newer = ground.story(older.namespace, "second")
    stalled = newer.wait_for("Stalled", reason="TargetConflict")
    assert "first" in stalled["message"]
    assert "web" in stalled["message"]
    assert newer.condition("TargetResolved")["status"] == "False"
    assert newer.trials() == newer.jobs() == []
    assert older.condition("TargetResolved")["status"] == "True"
    ground.cluster.delete("llamadeployment", "first", older.namespace)
    newer.wait_for("TargetResolved", reason="Resolved")
    assert not newer.condition("Stalled")
