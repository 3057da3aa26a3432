"""What becomes of a trial is told apart: the candidate's fault ends its question, chance is tried again, and what takes
a person is said with its cure, at a pace that follows from the status."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from slotune.api.v1alpha1 import LlamaTrial
from slotune.controller.flights import MOST_INTERRUPTIONS
from slotune.controller.kinds import DEPLOYMENT, JOB, LLAMA_DEPLOYMENT, LLAMA_TRIAL, POD
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.search.trial import Trial
from tests.controller import fake_node
from tests.controller.manifests import GPU_CLASS, NAMESPACE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0


class Failing(dict[Candidate, FailureClass]):
    """Servers that fail, by a rule."""

    def __init__(self, rule: Callable[[Candidate], FailureClass | None]) -> None:
        super().__init__()
        self._rule = rule

    def get(self, candidate: Any, default: Any = None) -> Any:
        return self._rule(candidate) or default


def simulated(rule: Callable[[Candidate], FailureClass | None] = lambda _: None, **more: Any) -> Simulation:
    return Simulation(world(failures=Failing(rule), seconds=lambda _: 2.0), **more)


def statuses(simulation: Simulation) -> list[Any]:
    return [LlamaTrial.from_manifest(raw).status for raw in simulation.trials()]


# ------------------------------------------------------------------- the candidate's fault


async def test_out_of_memory_and_a_bad_flag_are_told_apart_and_the_search_goes_on():
    faults = {4: FailureClass.OUT_OF_MEMORY_KV, 2: FailureClass.BAD_FLAG}
    simulation = simulated(lambda one: faults.get(one.parallel_slots))
    simulation.apply(owned())
    await simulation.until_decided()
    reasons = {status.failure.failure_class for status in statuses(simulation) if status.failure is not None}
    assert reasons == {"OutOfMemoryKV", "BadFlag"}
    assert {found.id for status in statuses(simulation) for found in status.findings} >= {"SLT204", "SLT201"}
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert simulation.status()["recommendation"]["candidate"]["parallelSlots"] == 1
    assert all(count == 1 for count in simulation.node.pods_of.values())
    said = [one for one in simulation.cluster.objects if one[0] == "Event"]
    notes = [simulation.cluster.objects[key]["note"] for key in said]
    assert any("OutOfMemoryKV" in note for note in notes)
    assert_good_statuses(simulation)


async def test_a_baseline_that_does_not_start_is_reported_as_such_and_blames_no_candidate():
    simulation = simulated(lambda one: FailureClass.BAD_FLAG if one.gpu_layers == "auto" else None)
    simulation.apply(target(), targeting(rollout__mode="Auto"))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "BaselineDoesNotStart")
    assert simulation.says("BaselineMeasured") == ("False", "BaselineDoesNotStart")
    assert len(simulation.trials()) == 1
    asked = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert len(simulation.trials()) == 1
    assert simulation.jobs() == []
    assert len(simulation.cluster.requests) - asked <= 60
    assert simulation.says("SearchCompleted")[0] == "False"
    assert simulation.cluster.find(DEPLOYMENT, NAMESPACE, "web")["metadata"]["generation"] == 1
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"rerun": {"reason": "the node is repaired"}})
    simulation.world.failures = {}
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- chance


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
async def test_a_disrupted_trial_is_measured_again_and_counts_once(seed):
    simulation = simulated(late=None if seed is None else Random(seed))
    interrupted: set[str] = set()

    def fate(trial: Trial, number: int) -> str:
        if trial.candidate.parallel_slots == 4 and number == 1:
            interrupted.add(trial.key())
            return "disrupted"
        return "measured"

    simulation.node.fate = fate
    simulation.apply(owned())
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert len(interrupted) > 0
    counts = {key.rsplit("-")[-1]: count for key, count in simulation.node.pods_of.items()}
    assert sorted(counts.values())[-len(interrupted) :] == [2] * len(interrupted)
    assert sum(status.interruptions for status in statuses(simulation)) == len(interrupted)
    assert_good_statuses(simulation)


async def test_after_many_interruptions_in_a_row_a_person_is_asked_and_it_is_tried_ever_more_rarely():
    simulation = simulated()
    simulation.node.fate = lambda _trial, _number: "disrupted"
    simulation.apply(owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "Disrupted")
    assert f"{MOST_INTERRUPTIONS} times in a row" in simulation.condition("Stalled")["message"]
    pods = simulation.node.pods_of.total()
    await simulation.run(most_s=HOUR)
    assert 1 <= simulation.node.pods_of.total() - pods <= 24
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert_good_statuses(simulation)


async def test_a_job_that_somebody_deletes_is_made_again():
    simulation = simulated()
    simulation.apply(owned())
    await simulation.run(lambda: simulation.flying() != [], most_s=60)
    (job,) = simulation.flying()
    simulation.cluster.remove(JOB, NAMESPACE, job["metadata"]["name"])
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert simulation.node.most_at_once == 1


# ------------------------------------------------------------------- what takes a person


async def test_a_gpu_that_never_comes_is_no_failed_candidate():
    simulation = simulated()
    simulation.node.fate = lambda _trial, _number: "unschedulable"
    simulation.apply(owned(sandbox__capacityTimeout="10m"))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "NoCapacity")
    assert "sandbox.capacityTimeout" in simulation.condition("Stalled")["message"]
    assert [status.phase for status in statuses(simulation)] == ["Pending"]
    assert simulation.flying() != []  # it goes on waiting, so that it starts when a GPU comes
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert len(simulation.cluster.requests) - mark < 500
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert all(count == 1 for count in simulation.node.pods_of.values())
    assert_good_statuses(simulation)


def two_classes(simulation: Simulation) -> None:
    """Of the second one there is no node."""
    simulation.apply({**GPU_CLASS, "metadata": {"name": "gpu"}})
    simulation.node.fate = lambda trial, _: "unschedulable" if trial.candidate.gpu_class == "gpu" else "measured"


@pytest.mark.parametrize("seed", [None, 1])
async def test_a_trial_that_gets_no_gpu_keeps_no_other_from_being_measured(seed):
    simulation = simulated(late=None if seed is None else Random(seed))
    two_classes(simulation)
    simulation.apply(owned("first", gpuClasses__0__name="gpu"))
    await simulation.run(lambda: bool(simulation.flying()), most_s=HOUR)
    simulation.apply(owned("second"))
    began = simulation.now
    await simulation.until_decided("second", most_s=HOUR)
    assert (simulation.now - began).total_seconds() < 600
    assert simulation.says("SearchCompleted", "second") == ("True", "Found")
    await simulation.run(most_s=6 * HOUR)
    assert simulation.says("Stalled", "first") == ("True", "NoCapacity")
    assert simulation.node.most_placed_at_once == 1
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided("first")
    assert simulation.says("SearchCompleted", "first") == ("True", "Found")
    assert simulation.node.most_placed_at_once == 1
    assert_good_statuses(simulation)


async def test_a_trial_that_gets_its_gpu_while_another_is_measured_waits_for_that_one():
    simulation = simulated(max_trials=1)
    two_classes(simulation)
    simulation.apply(owned("first", gpuClasses__0__name="gpu"))
    await simulation.run(lambda: bool(simulation.flying()), most_s=HOUR)
    simulation.apply(owned("second"))
    await simulation.run(lambda: len(simulation.node.measured) == 1, most_s=HOUR)
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided("first")
    await simulation.until_decided("second")
    assert {simulation.says("SearchCompleted", one) for one in ("first", "second")} == {("True", "Found")}
    assert simulation.node.most_placed_at_once == 1
    assert_good_statuses(simulation)


async def test_a_trial_that_a_queue_holds_back_keeps_no_other_from_being_measured():
    simulation = simulated()
    simulation.apply(owned("first"))
    await simulation.run(lambda: bool(simulation.flying()), most_s=60)
    (job,) = simulation.flying()
    simulation.cluster.change(JOB, NAMESPACE, job["metadata"]["name"], spec={"suspend": True})
    simulation.cluster.remove(POD, NAMESPACE, f"{job['metadata']['name']}-{job['metadata']['uid']}")
    simulation.apply(owned("second"))
    await simulation.until_decided("second", most_s=HOUR)
    assert simulation.says("SearchCompleted", "first")[0] == "False"
    assert simulation.says("SearchCompleted", "second") == ("True", "Found")
    simulation.cluster.change(JOB, NAMESPACE, job["metadata"]["name"], spec={"suspend": False})
    await simulation.until_decided("first", most_s=HOUR)
    assert simulation.says("SearchCompleted", "first") == ("True", "Found")
    assert_good_statuses(simulation)


NODE: Any = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"gpu": "h100"}},
    "status": {"allocatable": {"nvidia.com/gpu": "1"}},
}


@pytest.mark.parametrize("survey", [False, True])
async def test_a_class_that_no_node_has_is_named_with_its_field_where_nodes_can_be_seen(survey):
    simulation = simulated()
    simulation.apply(NODE, {**GPU_CLASS, "spec": {"pricePerHour": "1", "nodeSelector": {"gpu": "l4"}}})
    simulation.node.fate = lambda _trial, _number: "unschedulable"
    simulation.node.survey_fate = "unschedulable" if survey else "measured"
    simulation.apply(owned(sandbox__capacityTimeout="10m"))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "NoCapacity")
    message = simulation.condition("Stalled")["message"]
    assert message.startswith("spec.gpuClasses[0].name is cpu: No node that has the label gpu=l4 is there")
    assert "0/1 nodes: no GPU" in message


@pytest.mark.parametrize("nodes", [[], [NODE]])
async def test_a_gpu_that_is_only_taken_is_told_in_the_schedulers_words(nodes):
    simulation = simulated()
    simulation.apply(*nodes)
    simulation.node.fate = lambda _trial, _number: "unschedulable"
    simulation.apply(owned(sandbox__capacityTimeout="10m"))
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.condition("Stalled")["message"].startswith("no node took the trial's pod")


async def test_an_image_that_cannot_be_pulled_is_said_and_tried_ever_more_rarely():
    simulation = simulated()
    simulation.node.fate = lambda _trial, _number: "image pull"
    simulation.apply(owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "ImagePullFailed")
    assert "imagePullSecrets" in simulation.condition("Stalled")["message"]
    pods, mark = simulation.node.pods_of.total(), len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert simulation.node.pods_of.total() - pods <= 16
    assert len(simulation.cluster.requests) - mark < 2_500
    assert simulation.says("Stalled") == ("True", "ImagePullFailed")  # also while another try is under way
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


async def test_a_survey_whose_image_cannot_be_pulled_is_said_and_tried_ever_more_rarely():
    simulation = simulated()
    simulation.node.survey_fate = "image pull"
    simulation.apply(owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "ImagePullFailed")
    pods = simulation.node.pods_of.total()
    await simulation.run(most_s=HOUR)
    assert simulation.node.pods_of.total() - pods <= 16
    simulation.node.survey_fate = "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert_good_statuses(simulation)


async def test_a_server_image_that_cannot_be_had_is_said_before_any_trial_waits_for_a_gpu():
    simulation = simulated()
    simulation.node.survey_fate = "server image pull"
    simulation.node.fate = lambda _trial, _number: "unschedulable"
    simulation.apply(owned())
    began = simulation.now
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert (simulation.now - began).total_seconds() < 200
    assert simulation.says("Stalled") == ("True", "ImagePullFailed")
    message = simulation.condition("Stalled")["message"]
    assert "container llama: image ghcr.io/ggml-org/llama.cpp:server-b11549 can't be had (no such image)" in message
    pods = simulation.node.pods_of.total()
    await simulation.run(most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "ImagePullFailed")
    assert simulation.node.pods_of.total() - pods <= 16
    assert simulation.trials() == []
    simulation.node.survey_fate = "measured"
    simulation.node.fate = lambda _trial, _number: "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert simulation.status()["environment"]["engine"] == "b11549"  # not what was known while it could not be had
    assert_good_statuses(simulation)


async def test_what_failed_before_a_server_was_refused_is_not_said_of_the_next_one():
    simulation = simulated()
    simulation.node.survey_fate = "image pull"
    simulation.apply(target(), targeting())
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "ImagePullFailed"), most_s=HOUR)
    simulation.apply(target(template__spec__containers__0__command=["sh", "-c", "llama-server -m x"]))
    await simulation.run(lambda: simulation.says("Stalled") == ("True", "Refused"), most_s=60)
    assert simulation.says("Stalled") == ("True", "Refused")
    await simulation.run(most_s=60)
    assert simulation.jobs() == []
    simulation.node.survey_fate = "unschedulable"
    simulation.apply(target())
    await simulation.run(lambda: simulation.jobs() != [] and simulation.says("Stalled")[0] != "True", most_s=30)
    assert simulation.says("Stalled") == ("", "")
    assert simulation.says("Reconciling") == ("True", "Progressing")
    assert_good_statuses(simulation)


async def test_a_survey_that_is_always_interrupted_is_tried_ever_more_rarely_and_then_a_person_is_asked():
    simulation = simulated()
    simulation.node.survey_fate = "disrupted"
    simulation.apply(owned())
    await simulation.run(
        lambda: simulation.says("Stalled")[0] == "True" or simulation.node.pods_of.total() > 50, most_s=HOUR
    )
    assert simulation.says("Stalled") == ("True", "Disrupted")
    assert simulation.node.pods_of.total() == MOST_INTERRUPTIONS
    assert f"{MOST_INTERRUPTIONS} times in a row" in simulation.condition("Stalled")["message"]
    await simulation.run(most_s=HOUR)
    assert simulation.node.pods_of.total() - MOST_INTERRUPTIONS <= 16
    simulation.node.survey_fate = "measured"
    await simulation.until_decided()
    assert simulation.says("Stalled") == ("", "")
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert_good_statuses(simulation)


async def test_a_quota_that_refuses_pods_is_told_in_the_api_servers_words():
    simulation = simulated()
    simulation.apply(owned())
    simulation.node.refused = "exceeded quota: gpus, requested: 1, used: 1, limited: 1"
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=2 * HOUR)
    assert simulation.says("Stalled") == ("True", "QuotaExceeded")
    assert "exceeded quota: gpus" in simulation.condition("Stalled")["message"]
    simulation.node.refused = ""
    await simulation.until_decided()
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- what a newer spec or another version makes stale


async def test_a_pod_that_waits_is_is_gone_when_the_spec_asks_for_another():
    simulation = simulated()
    simulation.node.fate = lambda _trial, _number: "unschedulable"
    simulation.apply(owned())
    await simulation.run(lambda: bool(simulation.flying()), most_s=HOUR)
    (before,) = simulation.flying()
    resources = {"cpu": "250m", "memory": "128Mi"}
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"sandbox": {"loadClient": resources}})
    await simulation.run(
        lambda: [job["metadata"]["uid"] for job in simulation.flying()] not in ([], [before["metadata"]["uid"]]),
        most_s=HOUR,
    )
    (after,) = simulation.flying()
    assert after["metadata"]["name"] == before["metadata"]["name"]
    client = after["spec"]["template"]["spec"]["containers"][0]
    assert client["resources"]["limits"] == resources
    assert_good_statuses(simulation)


async def test_a_trial_of_another_version_holds_no_name_and_the_answer_is_the_same():
    simulation = simulated()
    simulation.apply(owned())
    await simulation.until_decided()
    answer = simulation.status()["recommendation"]
    (first, *_) = simulation.trials()
    simulation.cluster.change(LLAMA_TRIAL, NAMESPACE, first["metadata"]["name"], spec={"unheardOf": True})
    simulation.kill()

    def is_gone() -> bool:
        found = simulation.cluster.find(LLAMA_TRIAL, NAMESPACE, first["metadata"]["name"])
        return found is None or found["metadata"]["uid"] != first["metadata"]["uid"]

    await simulation.run(is_gone, most_s=HOUR)
    assert is_gone()
    await simulation.until_decided()
    assert simulation.status()["recommendation"]["candidateHash"] == answer["candidateHash"]


async def test_what_a_servers_log_and_limits_say_is_found_of_its_trial(monkeypatch):
    refused = (
        "srv  send_error: task id = {}, error: request (9000 tokens) exceeds the available context size (1024 tokens), "
        "try increasing it\n"
    )
    usual = fake_node.server_log
    monkeypatch.setattr(fake_node, "server_log", lambda asked: usual(asked) + "".join(map(refused.format, range(9))))
    simulation = simulated()
    simulation.apply(owned())
    await simulation.until_decided()
    found = [one for status in statuses(simulation) for one in status.findings if one.id == "SLT031"]
    assert found
    assert found[0].message.startswith("9 requests were refused")
    assert found[0].evidence.startswith("log:")
    assert found[0].knobs[0] == "contextSizePerSlot"
    assert_good_statuses(simulation)
