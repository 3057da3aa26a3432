"""What slotune owns stays as it should be, and what it says of production is about the pods that serve."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slotune.controller.cluster import Object
from slotune.controller.kept_production import covers, lost_fields
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, GPU_CLASS, LLAMA_DEPLOYMENT, SERVICE, kind_of
from slotune.rollout.facts import template_digest
from tests.controller.fake_cluster import written
from tests.controller.manifests import ARGS, IMAGE, NAMESPACE, TEMPLATE, owned, target, targeting
from tests.controller.simulation import Simulation, assert_good_statuses, drive
from tests.controller.test_rollout_laws import (
    AUTO,
    HOUR,
    VERIFY,
    args_of,
    change,
    deployment,
    hand_over_args,
    simulated,
    until,
)
from tests.controller.test_template_edits import edit_template

SERVER = ("spec", "template", "spec", "containers", ("name", "llama"))


def hand_edit(simulation: Simulation, name: str = "chat", **fields: Any) -> None:
    """What ``kubectl edit`` does to the server's container: the fields that change are the editor's from then on."""
    found = deployment(simulation, name)
    container = found["spec"]["template"]["spec"]["containers"][0]
    owners = simulation.cluster.owners["Deployment", NAMESPACE, name]
    changed = {(*SERVER, field) for field in fields}
    for who in owners:
        owners[who] = owners[who] - changed
    owners["kubectl-edit"] = owners.get("kubectl-edit", set()) | {
        (*SERVER, field) for field, value in fields.items() if value is not None
    }
    edited = {key: value for key, value in {**container, **fields}.items() if value is not None}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, name, spec={"template": {"spec": {"containers": [edited]}}})


def events(simulation: Simulation, reason: str) -> list[str]:
    found = [one.object for one in simulation.cluster.changes if one.object["kind"] == "Event"]
    return [one["note"] for one in found if one["reason"] == reason]


# ------------------------------------------------------------------- hand edits


@pytest.mark.parametrize("manifest", [owned(), owned(**AUTO, **VERIFY)], ids=["before a rollout", "after one"])
@pytest.mark.parametrize("fields", [{"args": [*ARGS, "--verbose"]}, {"args": None}, {"image": f"{IMAGE}-mine"}])
async def test_what_somebody_changes_by_hand_is_put_back_and_told(manifest, fields):
    simulation = simulated(manifest)
    await until(simulation, "Ready", "True", *(["RolledOut"] if "Auto" in str(manifest) else ["Recommended"]))
    await simulation.run(most_s=120)
    before, said = deployment(simulation)["spec"]["template"], simulation.says("RolledOut")
    hand_edit(simulation, **fields)
    await simulation.run(lambda: deployment(simulation)["spec"]["template"] == before, most_s=5)
    assert deployment(simulation)["spec"]["template"] == before
    await simulation.run(most_s=120)
    assert simulation.says("Ready")[0] == "True", simulation.status()["conditions"]
    assert simulation.says("RolledOut") == said
    (note,) = events(simulation, "EditUndone")
    assert next(iter(fields)) in note
    assert "spec.template" in note
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert not written(simulation.cluster.requests[mark:], DEPLOYMENT)
    assert_good_statuses(simulation)


async def test_a_hand_edit_of_pods_that_are_being_judged_is_put_back_and_they_are_judged_on():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await simulation.run(
        lambda: (simulation.status().get("rollout") or {}).get("stage") == "Verifying", most_s=2 * HOUR
    )
    await simulation.run(most_s=40)
    hand_edit(simulation, args=ARGS)
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert args_of(simulation)[args_of(simulation).index("-np") + 1] == "4"
    assert events(simulation, "EditUndone")


async def test_a_machine_that_changes_it_again_and_again_is_not_fought_without_a_pause():
    simulation = simulated(owned())
    await until(simulation, "Ready", "True", "Recommended")

    def again(request: Any) -> None:
        if request.verb == "apply" and request.kind == "Deployment" and not request.dry_run:
            hand_edit(simulation, args=[*ARGS, "--verbose"])

    simulation.cluster.after = again
    hand_edit(simulation, args=[*ARGS, "--verbose"])
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=600)
    assert 5 <= len(written(simulation.cluster.requests[mark:], DEPLOYMENT)) <= 22


async def test_what_somebody_adds_beside_what_is_owned_stays_and_is_not_taken_for_measured():
    simulation = simulated(owned())
    await until(simulation, "SLOMet", "False", "NotRolledOut")
    hand_edit(simulation, env=[{"name": "LLAMA_ARG_N_PARALLEL", "value": "8"}])
    await simulation.run(most_s=120)
    assert simulation.says("SLOMet") == ("Unknown", "NotMeasured")
    assert "kubectl-edit" in simulation.condition("SLOMet")["message"]


async def test_pods_that_are_only_started_anew_are_the_same():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until(simulation, "RolledOut", "True", "RolledOut")
    await until(simulation, "SLOMet", "True", "ServingKeepsSLO")
    annotations = deployment(simulation)["spec"]["template"]["metadata"]["annotations"]
    at = {**annotations, "kubectl.kubernetes.io/restartedAt": "2026-03-02T12:00:00Z"}
    path = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")
    simulation.cluster.owners["Deployment", NAMESPACE, "chat"]["kubectl-rollout"] = {path}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "chat", spec={"template": {"metadata": {"annotations": at}}})
    await simulation.run(most_s=120)
    assert simulation.says("SLOMet") == ("True", "ServingKeepsSLO")
    assert simulation.says("RolledOut") == ("True", "RolledOut")
    assert not events(simulation, "EditUndone")


def test_an_api_server_that_writes_a_quantity_otherwise_has_lost_nothing():
    sent = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1000m"}}, "args": None}]}}
    found = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}, "image": "x"}]}}
    assert not covers(found, sent)
    assert lost_fields(found, copy.deepcopy(found)) == ()
    other = copy.deepcopy(found)
    other["spec"]["containers"][0]["image"] = "y"
    assert lost_fields(found, other) == ("containers[a].image",)


# ------------------------------------------------------------------- edits of the template


@pytest.mark.parametrize("mode", ["Auto", "Recommend"])
@pytest.mark.parametrize("edit", ["another image", "a flag that nobody knows", "another name"])
async def test_an_edit_after_a_rollout_reaches_production_at_once_with_the_settings_that_serve(mode, edit):
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until(simulation, "RolledOut", "True", "RolledOut")
    change(simulation, rollout={"mode": mode})
    await simulation.run(most_s=60)
    simulation.world.seconds = lambda _: 3000.0
    edit_template(simulation, edit)
    await simulation.run(most_s=60)
    args = args_of(simulation)
    assert args[args.index("-np") + 1] == "4"
    container = deployment(simulation)["spec"]["template"]["spec"]["containers"][0]
    assert {
        "another image": container["image"] == f"{IMAGE}-next",
        "a flag that nobody knows": "--frobnicate" in args,
        "another name": container["name"] == "server",
    }[edit]
    assert simulation.says("SearchCompleted")[0] == "False"
    assert simulation.says("SLOMet")[0] == "Unknown"
    simulation.world.seconds = lambda _: 2.0
    await simulation.until_decided()
    await simulation.run(most_s=HOUR)
    assert simulation.says("Ready")[0] == "True", simulation.status()["conditions"]
    assert simulation.says("SLOMet") == ("True", "ServingKeepsSLO")
    assert simulation.says("RolledOut")[0] == "True"
    assert_good_statuses(simulation)


async def test_an_edit_that_asks_no_new_question_is_no_new_rollout():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until(simulation, "RolledOut", "True", "RolledOut")
    began = simulation.status()["rollout"]["startedAt"]
    change(simulation, template={**TEMPLATE, "metadata": {"labels": {"app": "chat", "team": "a"}}})
    await simulation.run(most_s=120)
    assert deployment(simulation)["spec"]["template"]["metadata"]["labels"]["team"] == "a"
    assert args_of(simulation)[args_of(simulation).index("-np") + 1] == "4"
    assert simulation.status()["rollout"]["startedAt"] == began
    assert simulation.says("RolledOut") == ("True", "RolledOut")
    digest = template_digest(deployment(simulation)["spec"]["template"])
    assert simulation.status()["applied"]["templateDigest"] == digest
    assert simulation.status()["lastGood"]["templateDigest"] == digest


async def test_an_edit_after_the_way_back_reaches_production():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.outcome = "Missed"
    await simulation.run(
        lambda: (simulation.status().get("rollout") or {}).get("stage") == "RolledBack", most_s=2 * HOUR
    )
    edit_template(simulation, "another image")
    await simulation.run(most_s=10)
    container = deployment(simulation)["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"{IMAGE}-next"
    assert container["args"] == ARGS


# ------------------------------------------------------------------- what SLOMet speaks of


def assert_said_of_what_serves(simulation: Simulation, name: str) -> None:
    """The law: SLOMet is True or False of a pod template, and that is the one that serves."""
    status = simulation.status()
    speaks = simulation.says("SLOMet")[0] != "Unknown" and simulation.says("SLOMet")[1] != "Infeasible"
    assert speaks == ("servingTemplateDigest" in status), status["conditions"]
    if speaks:
        found = simulation.cluster.find(DEPLOYMENT, NAMESPACE, name)
        assert found is not None
        assert template_digest(found["spec"]["template"]) == status["servingTemplateDigest"]
        assert (found.get("status") or {}).get("availableReplicas")
    if simulation.says("RolledOut")[1] in {"AwaitingApproval", "RecommendOnly"}:
        assert simulation.says("Stalled")[0] != "True", status["conditions"]


def _edit(*edits: str) -> Callable[[Simulation, str], None]:
    return lambda simulation, _: edit_template(simulation, *edits)


DEEDS: Final[dict[str, Callable[[Simulation, str], None]]] = {
    "the Deployment is deleted": lambda simulation, name: simulation.cluster.remove(DEPLOYMENT, NAMESPACE, name),
    "a hand edit of args": lambda simulation, name: hand_edit(simulation, name, args=[*ARGS, "--verbose"]),
    "a hand edit of the image": lambda simulation, name: hand_edit(simulation, name, image=f"{IMAGE}-mine"),
    "a variable is added": lambda simulation, name: hand_edit(simulation, name, env=[{"name": "A", "value": "1"}]),
    "no args": _edit("no args"),
    "another model": _edit("another model"),
    "another image": _edit("another image"),
    "another tuned flag": _edit("another tuned flag"),
    "another name": _edit("another name"),
    "suspended": lambda simulation, _: change(simulation, suspend=True),
    "resumed": lambda simulation, _: change(simulation, suspend=False),
    "approved": lambda simulation, _: change(
        simulation,
        rollout={"approvedCandidate": (simulation.status().get("recommendation") or {}).get("candidateHash")},
    ),
    "no GPU class": lambda simulation, _: simulation.cluster.remove(GPU_CLASS, None, "cpu"),
    "scaled to 0": lambda simulation, name: simulation.cluster.change(
        DEPLOYMENT, NAMESPACE, name, spec={"replicas": 0}
    ),
    "another load": lambda simulation, _: change(simulation, workload={"inline": {"load": {"requestRate": "1"}}}),
    "an invalid spec": lambda simulation, _: change(simulation, gpuClasses=[]),
}
LIVES: Final[dict[str, tuple[Object, ...]]] = {
    "owned": (owned(**AUTO, **VERIFY),),
    "owned, as before": (owned(workload__inline__load={"requestRate": "2"}),),
    "owned, to be approved": (owned(rollout__mode="RequireApproval", rollout__allowDowntime=True, **VERIFY),),
    "target": (target(), targeting(**AUTO, **VERIFY)),
    "target, as before": (target(), targeting(workload__inline__load={"requestRate": "2"})),
    "target that stays": (target(), targeting(**AUTO, **VERIFY, retune__triggers=[])),
}


@settings(deadline=None, max_examples=20, phases=(Phase.explicit, Phase.generate))
@given(
    life=st.sampled_from(sorted(LIVES)),
    deeds=st.lists(st.sampled_from(sorted(DEEDS)), min_size=1, max_size=3),
    patience=st.sampled_from([5, 600]),
)
def test_the_promise_is_said_to_be_kept_only_by_what_was_measured_and_still_serves(life, deeds, patience):
    async def law() -> None:
        simulation = simulated(*LIVES[life])
        name = "web" if life.startswith("target") else "chat"
        if name == "web" and "as before" not in life:
            hand_over_args(simulation)
        await simulation.run(lambda: simulation.says("Ready")[0] == "True", most_s=600)
        for deed in deeds:
            if simulation.cluster.find(DEPLOYMENT, NAMESPACE, name) is not None:
                DEEDS[deed](simulation, name)
                await simulation.run(most_s=patience)
                assert_said_of_what_serves(simulation, name)
        assert_good_statuses(simulation)

    drive(law())


@pytest.mark.parametrize(
    ("deed", "want"),
    [
        ("the Deployment is deleted", "Nothing serves"),
        ("no args", "changed"),
        ("another model", "changed"),
    ],
)
async def test_a_target_that_is_no_longer_what_was_measured_keeps_no_promise(deed, want):
    simulation = simulated(target(), targeting(workload__inline__load={"requestRate": "2"}))
    await until(simulation, "SLOMet", "True", "ServingKeepsSLO")
    DEEDS[deed](simulation, "web")
    await simulation.run(most_s=60)
    assert simulation.says("SLOMet") == ("Unknown", "NotMeasured")
    assert want in simulation.condition("SLOMet")["message"]
    assert simulation.says("Stalled")[0] == "True"


async def test_nobody_is_asked_for_an_approval_while_there_is_nothing_to_approve():
    simulation = simulated(target(), targeting(rollout__mode="RequireApproval", rollout__allowDowntime=True))
    hand_over_args(simulation)
    await until(simulation, "RolledOut", "False", "AwaitingApproval")
    simulation.cluster.remove(DEPLOYMENT, NAMESPACE, "web")
    await until(simulation, "Stalled", "True", "ReferenceNotFound")
    assert simulation.says("RolledOut") == ("Unknown", "Pending")
    assert "approvedCandidate" not in simulation.condition("RolledOut")["message"]


async def test_what_an_approval_would_not_be_enough_for_is_told_with_it():
    simulation = simulated(target(), targeting(rollout__mode="RequireApproval"))
    await until(simulation, "RolledOut", "False", "AwaitingApproval")
    message = simulation.condition("RolledOut")["message"]
    assert "approvedCandidate" in message
    assert "FieldOwnedByOther" in message
    assert "belong to kubectl" in message


async def test_a_rollout_that_nothing_showed_anything_of_is_not_forgotten_when_the_question_changes():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.outcome = "Inconclusive"
    await until(simulation, "Stalled", "True", "VerificationInconclusive")
    simulation.world.seconds = lambda _: 3000.0
    change(simulation, workload={"inline": {"load": {"requestRate": "8"}}})
    await simulation.run(most_s=20)
    assert simulation.says("SearchCompleted")[0] == "False"
    assert simulation.says("RolledOut")[0] == "Unknown"
    assert simulation.says("RolledOut")[1] in {"Verifying", "VerificationInconclusive"}
    await until(simulation, "RolledOut", "Unknown", "VerificationInconclusive")
    simulation.reader.outcome = "Kept"
    await simulation.run(lambda: simulation.status()["rollout"]["stage"] == "Done", most_s=HOUR)
    assert simulation.status()["rollout"]["stage"] == "Done"


# ------------------------------------------------------------------- production that does not come up


async def test_production_that_answers_nobody_is_not_ready_and_kubernetes_says_why():
    simulation = simulated(owned(rollout__progressDeadline="5m"))
    simulation.node.sick = lambda _: True
    simulation.node.trouble = 'pods "chat-" is forbidden: error looking up service account shop/llama'
    await simulation.until_decided()
    await until(simulation, "Stalled", "True", "ProductionNotReady")
    assert simulation.says("Ready") == ("False", "ProductionNotReady")
    assert "service account shop/llama" in simulation.condition("Ready")["message"]
    assert "0 of 2 pods" in simulation.condition("Ready")["message"]
    assert simulation.says("SLOMet")[0] == "Unknown"
    simulation.node.sick, simulation.node.trouble = (lambda _: False), ""
    await until(simulation, "Ready", "True", "Recommended")
    assert_good_statuses(simulation)


async def test_pods_that_crash_later_are_waited_for_before_a_person_is_called():
    simulation = simulated(owned(rollout__progressDeadline="5m"))
    await until(simulation, "Ready", "True", "Recommended")
    simulation.node.unwell = 2
    await until(simulation, "Reconciling", "True", "ProductionNotReady", most_s=700)
    at = simulation.now
    await until(simulation, "Stalled", "True", "ProductionNotReady")
    assert 290 <= (simulation.now - at).total_seconds() <= 320
    simulation.node.unwell = 0
    await until(simulation, "Ready", "True", "Recommended")


async def test_one_that_was_suspended_from_the_start_does_not_say_that_production_stays():
    simulation = simulated(owned(suspend=True))
    await simulation.run(lambda: simulation.says("Ready")[0] == "False", most_s=10)
    assert "nothing serves" in simulation.condition("Ready")["message"]
    assert "stays" not in simulation.condition("Ready")["message"]
    assert simulation.says("RolledOut") == ("False", "Suspended")
    assert written(simulation.cluster.requests, DEPLOYMENT) == []


# ------------------------------------------------------------------- what an earlier one left


def orphan(simulation: Simulation) -> None:
    """``kubectl delete lld chat --cascade=orphan``."""
    found = simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    assert found is not None
    for one in [copy.deepcopy(one) for one in simulation.cluster.objects.values()]:
        owners = one["metadata"].get("ownerReferences") or ()
        if any(owner["uid"] == found["metadata"]["uid"] for owner in owners):
            simulation.cluster.change(
                kind_of(one), NAMESPACE, one["metadata"]["name"], metadata={"ownerReferences": None}
            )
    simulation.cluster.release(LLAMA_DEPLOYMENT, NAMESPACE, "chat")


@pytest.mark.parametrize("trials", [0, 2], ids=["while the weights are looked at", "while it measures"])
async def test_what_was_orphaned_in_the_middle_is_taken_over_and_goes_on(trials):
    simulation = simulated(owned())
    await simulation.run(lambda: bool(simulation.jobs()) and len(simulation.trials()) >= trials, most_s=HOUR)
    orphan(simulation)
    await simulation.run(most_s=5)
    simulation.apply(owned())
    await simulation.until_decided()
    await until(simulation, "Ready", "True", "Recommended")
    assert_good_statuses(simulation)


async def test_what_was_orphaned_is_taken_over_and_goes_on_serving():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until(simulation, "RolledOut", "True", "RolledOut")
    before = deployment(simulation)
    orphan(simulation)
    await simulation.run(most_s=5)
    simulation.apply(owned(**AUTO, **VERIFY))
    uid = simulation.cluster.find(LLAMA_DEPLOYMENT, NAMESPACE, "chat")["metadata"]["uid"]
    await simulation.run(most_s=10)
    for kind in (DEPLOYMENT, SERVICE):
        found = simulation.cluster.find(kind, NAMESPACE, "chat")
        assert [one["uid"] for one in found["metadata"]["ownerReferences"]] == [uid]
    assert deployment(simulation)["spec"] == before["spec"]
    assert events(simulation, "Adopted")
    await simulation.until_decided()
    await simulation.run(most_s=HOUR)
    assert simulation.says("Ready")[0] == "True", simulation.status()["conditions"]
    assert deployment(simulation)["spec"]["template"] == before["spec"]["template"]


async def test_a_copy_of_what_slotune_made_is_nobody_s_orphan():
    simulation = simulated(owned())
    await until(simulation, "Ready", "True", "Recommended")
    copied = deployment(simulation)
    simulation.cluster.release(LLAMA_DEPLOYMENT, NAMESPACE, "chat")
    metadata = {name: copied["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
    simulation.cluster.put({**{k: copied[k] for k in ("apiVersion", "kind", "spec")}, "metadata": metadata})
    await simulation.run(most_s=5)
    simulation.apply(owned())
    await until(simulation, "Stalled", "True", "TargetConflict")


async def test_the_patch_is_made_for_the_container_that_there_is():
    simulation = simulated(target(), targeting())
    await until(simulation, "Ready", "True", "Recommended")
    edit_template(simulation, "another name")
    await simulation.run(most_s=HOUR)
    assert simulation.says("Ready") == ("True", "Recommended")
    patch = simulation.cluster.find(CONFIG_MAP, NAMESPACE, "chat-recommendation")
    assert "name: server" in patch["data"]["deployment.yaml"]


async def test_an_edit_right_after_slotune_applied_is_put_back_a_little_later_and_told():
    simulation = simulated(owned())
    await simulation.run(lambda: simulation.cluster.find(SERVICE, NAMESPACE, "chat") is not None, most_s=60)
    hand_edit(simulation, args=[*ARGS, "--verbose"])
    await simulation.run(most_s=5)
    assert "--verbose" in args_of(simulation)
    await simulation.run(most_s=60)
    assert args_of(simulation) == ARGS
    assert events(simulation, "EditUndone")
