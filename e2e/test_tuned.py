"""From ``kubectl apply`` to a chat request that the cheapest configuration answers, and what a person sees of it."""

from __future__ import annotations

import base64
import gzip
import json
from typing import NamedTuple

import pytest

from e2e.cluster import Object
from e2e.models import WEIGHTS
from e2e.story import Ground, Story, Witness

TUNED_LIMIT_S = 400
"""Three trials of 15 s, a rollout and its verification: 75 s, and several times that on a busy machine."""


class Tuned(NamedTuple):
    """What has happened."""

    story: Story
    witness: Witness
    waited: str
    """What ``kubectl wait`` said."""


@pytest.fixture(scope="module")
def tuned(shared_ground: Ground, spare_gpus: None) -> Tuned:
    """One LlamaDeployment that owns its server, from apply to the rollout's end."""
    verify = {"window": "4s", "interval": "1s", "probeRequests": 2}
    story = shared_ground.begin(shared_ground.owned(rollout={"mode": "Auto", "verify": verify}))
    witness = Witness(story)
    with witness.watching():
        story.wait_for("RolledOut", timeout=TUNED_LIMIT_S)
        wait = ("wait", "llamadeployment/chat", "--for=condition=SLOMet", "--timeout=60s")
        waited = story.cluster.text(*wait, namespace=story.namespace)
    return Tuned(story, witness, waited)


def test_the_winner_serves_behind_the_service(tuned: Tuned, bare_ground: Ground) -> None:
    assert tuned.waited == "llamadeployment.slotune.dev/chat condition met\n"
    answer = tuned.story.chat()
    assert answer["choices"][0]["message"]["content"]
    assert WEIGHTS["Q4_0"] in answer["model"]
    [server] = tuned.story.production()["spec"]["template"]["spec"]["containers"]
    status = tuned.story.status()
    assert server["args"] == status["applied"]["args"]
    assert f"/models/{WEIGHTS['Q4_0']}" in server["args"]
    assert (status["recommendation"]["gpuClass"], status["phase"]) == (bare_ground.cheap, "Tuned")


def test_the_columns_say_what_it_costs_and_that_the_promise_is_kept(tuned: Tuned) -> None:
    header, row = tuned.story.cluster.text("get", "lld", "chat", namespace=tuned.story.namespace).splitlines()
    assert header.split() == ["NAME", "GPU", "REPLICAS", "TTFT-P95", "TOK/S", "$/MONTH", "SLO", "PHASE", "AGE"]
    name, gpu, replicas, ttft, speed, monthly, kept, phase, _age = row.split()
    assert (name, gpu, replicas, monthly, kept, phase) == ("chat", "e2e-cheap", "1", "584", "True", "Tuned")
    assert ttft.endswith("s")
    assert float(speed) > 0


def test_describe_tells_the_story(tuned: Tuned) -> None:
    told = " ".join(tuned.story.cluster.text("describe", "lld", "chat", namespace=tuned.story.namespace).split())
    for words in (
        "What runs today, 1 × e2e-dear, keeps the promise: p95 TTFT",
        "The promise kept for $1,168 a month today can be kept for $584. (4 trials,",
        "What serves, 1 × e2e-cheap with 2 slots, prefix cache, Q4_0, keeps the promise: p95 TTFT",
        "nothing among 3 candidates can be cheaper",
        "confidence was lowered to 80 % for this run",
        "Saving Percent: 50",
    ):
        assert words in told
    reasons = {event["reason"] for event in events_of(tuned.story)}
    assert reasons >= {
        "Resolved", "Measuring", "Measured", "Searching", "Confirming", "Found", "RollingOut", "Verifying", "RolledOut",
        "TrialPassed", "ServingKeepsSLO",
    }  # fmt: skip
    assert all(event["type"] == "Normal" for event in events_of(tuned.story))


def events_of(story: Story) -> list[Object]:
    """Events about the LlamaDeployment."""
    found = story.cluster.items("events", story.namespace)
    return [it for it in found if it["involvedObject"]["kind"] == "LlamaDeployment"]


def test_each_transition_is_told_once(tuned: Tuned) -> None:
    told = [(event["reason"], event["message"]) for event in events_of(tuned.story)]
    assert len(told) == len(set(told))
    assert all(event.get("count", 1) == 1 for event in events_of(tuned.story))


def test_progress_was_visible_while_trials_ran(tuned: Tuned) -> None:
    assert "Measuring" in tuned.witness.stages
    assert any(0 < count < 32 for count in tuned.witness.counted), tuned.witness.counted
    milestones = ["Baselining", "Searching", "Confirming", "RollingOut", "Tuned"]
    # Pods that are not ready for a moment take Verifying back to RollingOut, so the first time of each counts.
    assert [phase for phase in dict.fromkeys(tuned.witness.phases) if phase in milestones] == milestones


def test_trials_ran_one_at_a_time_in_pods_that_hold_nothing_but_the_server(tuned: Tuned) -> None:
    assert tuned.witness.most_at_once == 1
    assert tuned.witness.pods.keys() == tuned.story.ended().keys()
    for pod in tuned.witness.pods.values():
        spec = pod["spec"]
        [server], [client] = spec["initContainers"], spec["containers"]
        assert (server["name"], server["restartPolicy"], client["name"]) == ("llama", "Always", "load-client")
        assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert "nvidia.com/gpu" not in client["resources"]["limits"]
        assert spec["automountServiceAccountToken"] is False
        sources = [source for volume in spec["volumes"] for source in volume.get("projected", {}).get("sources", ())]
        assert not any("serviceAccountToken" in source for source in sources)
        assert (spec["enableServiceLinks"], spec["restartPolicy"]) == (False, "Never")
        assert "slotune.dev/serves" not in pod["metadata"]["labels"]


def test_nobody_reaches_a_trial_and_it_reaches_nobody(tuned: Tuned) -> None:
    [policy] = tuned.story.cluster.items("networkpolicies", tuned.story.namespace)
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & policy["spec"].keys()
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    for pod in tuned.witness.pods.values():
        assert chosen.items() <= pod["metadata"]["labels"].items()
        assert "slotune.dev/sandbox" in pod["metadata"]["labels"]
    assert policy["metadata"]["generation"] == 1  # it was made once, and found as it should be ever since


def test_the_record_of_each_trial_has_a_line_per_request(tuned: Tuned) -> None:
    ended = tuned.story.ended()
    assert len(ended) == 4  # two slots beside today's one must hold at half of their rate too
    for name, trial in ended.items():
        record = tuned.story.cluster.find("configmap", trial["status"]["recordConfigMap"], tuned.story.namespace)
        assert record is not None
        [owner] = record["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("LlamaTrial", name, trial["metadata"]["uid"])
        [packed] = record["binaryData"].values()
        lines = [json.loads(line) for line in gzip.decompress(base64.b64decode(packed)).splitlines()]
        assert len(lines) == trial["status"]["verdict"]["requests"] == 32
        assert {line["status"] for line in lines} == {"ok"}


def test_the_users_object_carries_the_finalizer_and_nothing_else(tuned: Tuned) -> None:
    metadata = tuned.story.deployment()["metadata"]
    assert metadata["finalizers"] == ["slotune.dev/restore"]
    assert metadata.get("annotations", {}).keys() <= {"kubectl.kubernetes.io/last-applied-configuration"}
    assert "labels" not in metadata


def test_no_job_and_no_pod_of_a_trial_is_left(tuned: Tuned) -> None:
    assert tuned.story.jobs() == []
    assert {pod["metadata"]["labels"].get("slotune.dev/serves") for pod in tuned.story.pods()} == {"chat"}


def test_what_has_converged_is_not_written_again(tuned: Tuned) -> None:
    """A change that asks for nothing is looked at and answered, and all that was written stays as it was."""
    before = (tuned.story.production()["metadata"]["resourceVersion"], len(tuned.story.trials()))
    generation = tuned.story.deployment()["metadata"]["generation"]
    tuned.story.change(sandbox={"retainTrials": 50})
    ready = tuned.story.wait_for("Ready", timeout=30)
    assert ready["observedGeneration"] == generation + 1
    assert before == (tuned.story.production()["metadata"]["resourceVersion"], len(tuned.story.trials()))
