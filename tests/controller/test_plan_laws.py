"""What holds of every reconcile: nothing is written twice, nothing is asked that need not be, and whatever a person
changes meanwhile, production stays as it is."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from typing import Any

import pytest

from slotune.controller import reconcile
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, JOB, LLAMA_DEPLOYMENT, LLAMA_TRIAL, SERVICE
from slotune.controller.plan import make_plan
from tests.controller.fake_cluster import Request, written
from tests.controller.manifests import GPU_CLASS, NAMESPACE, config_map, owned, target, targeting, workload
from tests.controller.simulation import Simulation, assert_good_statuses, world

HOUR = 3600.0
QUICK = {"seconds": lambda _: 2.0}


async def searching(*manifests: Any, trials: int = 1, **more: Any) -> Simulation:
    """A search that has measured so many trials, with the next one under way."""
    simulation = Simulation(world(**QUICK), **more)
    simulation.apply(*(manifests or (owned(),)))
    await simulation.run(lambda: len(simulation.node.measured) >= trials and simulation.flying() != [], most_s=HOUR)
    return simulation


async def decided(*manifests: Any, **more: Any) -> Simulation:
    """A search that has ended, and whose last words were said."""
    simulation = Simulation(world(**QUICK), **more)
    simulation.apply(*(manifests or (owned(),)))
    await simulation.until_decided()
    await simulation.run(most_s=60)
    return simulation


def production(simulation: Simulation, name: str = "web") -> Any:
    """What serves: its spec and who owns what."""
    found = simulation.cluster.find(DEPLOYMENT, NAMESPACE, name)
    assert found is not None
    owners = [(entry["manager"], entry["fieldsV1"]) for entry in found["metadata"]["managedFields"]]
    return found["spec"], found["metadata"].get("annotations"), owners


def patch(simulation: Simulation, name: str = "chat", **spec: Any) -> None:
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, name, spec=spec)


def since(simulation: Simulation, mark: int) -> list[Request]:
    return simulation.cluster.requests[mark:]


# ------------------------------------------------------------------- nothing to do


async def test_a_converged_object_is_looked_at_without_a_write_and_with_few_reads():
    for manifests in ((owned(),), (target(), targeting())):
        simulation = await decided(*manifests)
        mark, looks = len(simulation.cluster.requests), len(simulation.requeues)
        await simulation.run(most_s=HOUR)
        asked, looked = since(simulation, mark), len(simulation.requeues) - looks
        assert [request for request in asked if request.is_write] == []
        assert looked <= 7
        reads = Counter((request.verb, request.kind) for request in asked)
        assert reads.pop(("get", "NetworkPolicy"), 0) <= 1  # whose it is, once
        assert set(reads) <= {("get", "Service"), ("get", "ConfigMap"), ("list", "HorizontalPodAutoscaler")}, reads
        assert all(count <= looked for count in reads.values())


async def test_an_operator_that_starts_anew_writes_nothing_about_a_converged_object():
    simulation = await decided()
    mark = len(simulation.cluster.requests)
    simulation.kill()
    await simulation.run(most_s=60)
    assert [request for request in since(simulation, mark) if request.is_write] == []


async def test_a_suspended_object_costs_no_request_once_its_status_says_so():
    simulation = Simulation(world(**QUICK))
    simulation.apply(owned(suspend=True))
    await simulation.run(lambda: simulation.status().get("phase") == "Suspended", most_s=60)
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=2 * HOUR)
    assert since(simulation, mark) == []
    assert simulation.jobs() == simulation.trials() == []
    assert_good_statuses(simulation)


async def test_a_plan_that_is_made_twice_is_the_same(monkeypatch):
    def twice(observed: Any) -> Any:
        plan = make_plan(observed)
        assert make_plan(observed) == plan
        return plan

    monkeypatch.setattr(reconcile, "make_plan", twice)
    simulation = await decided(owned(rollout__mode="Auto", rollout__allowDowntime=True))
    await simulation.run(lambda: simulation.status().get("phase") == "Tuned", most_s=HOUR)
    assert simulation.says("RolledOut") == ("True", "RolledOut")
    assert_good_statuses(simulation)


async def test_events_come_on_transitions_only_and_none_is_said_twice():
    simulation = await decided()
    posted = [one for one in simulation.cluster.requests if (one.verb, one.kind) == ("create", "Event")]
    assert len(posted) == len({one.name for one in posted})
    mark = len(simulation.cluster.requests)
    simulation.kill()
    await simulation.run(most_s=2 * HOUR)
    assert not [one for one in since(simulation, mark) if one.kind == "Event"]


# ------------------------------------------------------------------- a spec that changes in the middle


async def test_another_question_in_the_middle_of_a_search_ends_the_old_trial_and_leaves_production_alone():
    simulation = await searching(target(), targeting(), trials=2)
    before, old = production(simulation), {job["metadata"]["name"] for job in simulation.jobs()}
    context = simulation.status()["progress"]["search"]
    patch(simulation, slo={"ttftP95": "2s"})
    await simulation.run(lambda: simulation.status()["progress"]["search"] != context, most_s=60)
    await simulation.run(lambda: simulation.jobs() != [], most_s=60)
    assert not old & {job["metadata"]["name"] for job in simulation.jobs()}
    await simulation.until_decided()
    assert simulation.status()["observedGeneration"] == 2
    assert simulation.status()["progress"]["reused"] == 0
    assert production(simulation) == before
    assert simulation.node.most_at_once == 1
    assert_good_statuses(simulation)


@pytest.mark.parametrize(
    "change",
    [
        {"gpuClasses": [{"name": "cpu", "maxReplicas": 5}]},
        {"rollout": {"mode": "RequireApproval"}},
        {"search": {"budget": {"trials": 50}}},
        {"retune": {"cooldown": "12h"}},
    ],
    ids=str,
)
async def test_a_change_that_asks_no_other_question_keeps_every_trial(change):
    simulation = await searching(trials=2)
    uids = {job["metadata"]["uid"] for job in simulation.flying()}
    patch(simulation, **change)
    await simulation.run(lambda: simulation.status()["observedGeneration"] == 2, most_s=1)
    assert {job["metadata"]["uid"] for job in simulation.flying()} == uids
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert all(count == 1 for count in simulation.node.pods_of.values())


async def test_a_candidate_that_may_not_win_any_more_is_not_measured_to_its_end():
    simulation = await searching(trials=1)
    (job,) = simulation.flying()
    patch(simulation, search={"space": {"parallelSlots": [1, 2]}})
    await simulation.until_decided()
    asked = {trial.candidate.parallel_slots for trial in simulation.node.measured}
    assert asked <= {1, 2}
    assert job["metadata"]["uid"] not in {one["metadata"]["uid"] for one in simulation.jobs()}


async def test_results_of_another_one_with_the_same_question_are_reused():
    simulation = await decided()
    measured = len(simulation.node.measured)
    simulation.apply(owned("twin"))
    await simulation.until_decided("twin")
    assert (
        simulation.status("twin")["recommendation"]["candidateHash"]
        == (simulation.status("chat")["recommendation"]["candidateHash"])
    )
    assert len(simulation.node.measured) == measured
    assert simulation.status("twin")["progress"]["reused"] == measured


async def test_a_changed_workload_wakes_whoever_is_owed_it_and_asks_anew():
    manifests = (workload(), owned(workload__inline=None, workload__ref={"name": "traffic"}, retune={"cooldown": "0s"}))
    simulation = await decided(*manifests)
    before = simulation.status()["progress"]["search"]
    simulation.apply(workload(load={"requestRate": "2"}))
    await simulation.run(lambda: simulation.status()["progress"]["search"] != before, most_s=5)
    assert simulation.status()["progress"]["search"] != before
    await simulation.until_decided()
    assert_good_statuses(simulation)


async def test_the_template_that_a_user_changes_before_any_rollout_is_what_serves():
    simulation = await decided()
    args = ["-m", "/models/f16.gguf", "-np", "2", "-c", "1024", "-t", "1", "--cache-ram", "0", "--no-kv-unified"]
    changed = owned(template__spec__containers__0__args=args)
    simulation.apply(changed)
    await simulation.run(most_s=5)
    spec, *_ = production(simulation, "chat")
    assert spec["template"]["spec"]["containers"][0]["args"] == args
    await simulation.until_decided()
    assert simulation.status()["baseline"]["candidate"]["parallelSlots"] == 2


# ------------------------------------------------------------------- suspend, delete, share


async def test_suspending_ends_what_runs_and_resuming_loses_nothing():
    simulation = await searching(trials=2)
    done = len(simulation.node.measured)
    patch(simulation, suspend=True)
    await simulation.run(most_s=600)
    assert simulation.jobs() == []
    waiting = [one["status"] for one in simulation.trials() if one["status"]["phase"] != "Complete"]
    assert [(one["phase"], one["reason"], "progress" in one) for one in waiting] == [("Pending", "Suspended", False)]
    assert simulation.status()["phase"] == "Suspended"
    assert simulation.says("Ready") == ("False", "Suspended")
    assert len(simulation.node.measured) == done
    patch(simulation, suspend=False)
    await simulation.until_decided()
    keys = [trial.key() for trial in simulation.node.measured]
    assert len(keys) == len(set(keys))
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert_good_statuses(simulation)


async def test_a_deletion_in_the_middle_of_a_trial_leaves_nothing():
    simulation = await searching(target(), targeting(), trials=1)
    before = production(simulation)
    simulation.cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    await simulation.run(most_s=HOUR)
    kinds = {kind for kind, *_ in simulation.cluster.objects}
    assert kinds <= {"Deployment", "GPUClass", "Event"}
    assert production(simulation) == before
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert since(simulation, mark) == []


async def test_of_two_on_one_target_the_oldest_wins_and_the_other_takes_over():
    simulation = Simulation(world(**QUICK))
    simulation.apply(target(), targeting("first"))
    await simulation.run(most_s=2)
    simulation.apply(targeting("second"))
    await simulation.run(most_s=60)
    assert simulation.says("Stalled", "second") == ("True", "TargetConflict")
    message = simulation.condition("Stalled", "second")["message"]
    assert "spec.targetRef.name" in message
    assert "first" in message
    assert {trial["spec"]["llamaDeployment"] for trial in simulation.trials()} == {"first"}
    await simulation.until_decided("first")
    assert simulation.says("Stalled", "first") == ("", "")
    simulation.cluster.remove(LLAMA_DEPLOYMENT, NAMESPACE, "first")
    await simulation.run(lambda: simulation.says("Stalled", "second") == ("", ""), most_s=5)
    await simulation.until_decided("second")
    assert simulation.says("TargetResolved", "second") == ("True", "Resolved")
    assert_good_statuses(simulation)


async def test_no_more_trials_run_than_may_and_the_others_say_what_they_wait_for():
    simulation = Simulation(world(seconds=lambda _: 20.0), max_trials=2)
    simulation.node.nodes = 2
    names = ["a", "b", "c"]
    for place, name in enumerate(names):  # each asks about other traffic
        simulation.apply(owned(name, workload__inline__output__tokens=16 + place))
    await simulation.run(lambda: len(simulation.trials()) == len(names), most_s=60)
    await simulation.run(most_s=5)
    running = [job for job in simulation.jobs() if "slotune.dev/trial" in job["metadata"]["labels"]]
    assert len(running) == 2
    waits = [name for name in names if "waits for" in simulation.status(name)["progress"]["message"]]
    assert len(waits) == 1
    for name in names:
        await simulation.until_decided(name)
    assert simulation.node.most_at_once == 2
    assert all(count == 1 for count in simulation.node.pods_of.values())


async def test_whoever_waits_for_a_place_gets_it_as_soon_as_one_is_free():
    simulation = Simulation(world(seconds=lambda _: 20.0))
    simulation.apply(owned("a"), owned("b", workload__inline__output__tokens=17))
    await simulation.run(lambda: len(simulation.trials()) == 2, most_s=60)
    ended = len(simulation.node.measured)
    await simulation.run(lambda: len(simulation.node.measured) > ended, most_s=60)
    at = simulation.now
    await simulation.run(lambda: len(simulation.jobs()) > 0 and simulation.node.most_at_once == 1, most_s=60)
    assert (simulation.now - at).total_seconds() < 10


# ------------------------------------------------------------------- what is kept


async def test_the_record_of_every_request_goes_with_its_trial():
    simulation = await decided()
    for trial in simulation.trials():
        name = trial["status"]["recordConfigMap"]
        record = simulation.cluster.find(CONFIG_MAP, NAMESPACE, name)
        assert record is not None
        assert record["binaryData"]["requests.jsonl.gz"]
        simulation.cluster.remove(LLAMA_TRIAL, NAMESPACE, trial["metadata"]["name"])
        assert simulation.cluster.find(CONFIG_MAP, NAMESPACE, name) is None


async def test_trials_of_earlier_questions_are_kept_up_to_a_number():
    simulation = await decided(owned(sandbox={"retainTrials": 2}))
    first = {trial["metadata"]["name"] for trial in simulation.trials()}
    assert len(first) > 2
    patch(simulation, slo={"ttftP95": "2s"})
    await simulation.run(lambda: simulation.status()["observedGeneration"] == 2, most_s=60)
    await simulation.until_decided()
    await simulation.run(most_s=60)
    left = {trial["metadata"]["name"] for trial in simulation.trials()}
    assert len(left & first) == 2


async def test_a_search_writes_only_what_is_its_own():
    simulation = await decided(target(), targeting(), config_map("other", a="b"))
    kinds = {request.kind for request in simulation.cluster.writes}
    assert kinds == {"LlamaDeployment", "LlamaTrial", "Job", "ConfigMap", "NetworkPolicy", "Event"}
    assert written(simulation.cluster.requests, DEPLOYMENT) == written(simulation.cluster.requests, SERVICE) == []
    assert all(request.name.startswith("chat") for request in simulation.cluster.writes if request.kind != "Event")
    assert len(written(simulation.cluster.requests, JOB)) > 0
    assert simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat")["metadata"]["generation"] == 1
    assert GPU_CLASS["metadata"]["name"] == "cpu"


async def test_the_service_leads_to_where_the_server_listens_when_a_template_says_another_port():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(owned())
    await simulation.run(lambda: simulation.cluster.find(SERVICE, NAMESPACE, "chat") is not None, most_s=HOUR)
    template = deepcopy(owned()["spec"]["template"])
    template["spec"]["containers"][0]["args"] += ["--port", "9090"]
    template["spec"]["containers"][0].pop("ports", None)
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec={"template": template})

    def ports() -> list[int]:
        return [port["port"] for port in simulation.cluster.find(SERVICE, NAMESPACE, "chat")["spec"]["ports"]]

    await simulation.run(lambda: ports() == [9090], most_s=HOUR)
    assert ports() == [9090]


async def test_a_service_of_that_name_that_slotune_did_not_make_is_left_alone():
    simulation = Simulation(world(seconds=lambda _: 2.0))
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]},
    }
    simulation.apply(theirs, owned())
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=HOUR)
    assert simulation.says("Stalled") == ("True", "TargetConflict")
    assert "Service" in simulation.condition("Stalled")["message"]
    assert simulation.cluster.find(SERVICE, NAMESPACE, "chat")["spec"]["selector"] == {"app": "other"}
