"""The way to production: nothing is written that the mode does not allow, what is written was written down before, and
an answer that serves asks no new question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.controller.cluster import Object
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, GPU_CLASS, LLAMA_DEPLOYMENT, SERVICE
from slotune.search.trial import Purpose
from tests.controller.fake_cluster import Request, written
from tests.controller.manifests import ARGS, IMAGE, NAMESPACE, owned, target, targeting
from tests.controller.simulation import Killed, Simulation, assert_good_statuses, drive, world

HOUR = 3600.0
AUTO = {"rollout__mode": "Auto", "rollout__allowDowntime": True}
VERIFY = {"rollout__verify": {"window": "2m", "interval": "30s"}}


def simulated(*manifests: Object, **more: Any) -> Simulation:
    simulation = Simulation(world(seconds=lambda _: 2.0, **more))
    simulation.apply(*manifests)
    return simulation


async def until(simulation: Simulation, kind: str, *said: str, most_s: float = 2 * HOUR) -> None:
    await simulation.run(lambda: simulation.says(kind) == said, most_s=most_s)
    assert simulation.says(kind) == said, simulation.status()["conditions"]


def deployment(simulation: Simulation, name: str = "chat") -> Object:
    found = simulation.cluster.find(DEPLOYMENT, NAMESPACE, name)
    assert found is not None
    return found


def args_of(simulation: Simulation, name: str = "chat") -> list[str]:
    args: list[str] = deployment(simulation, name)["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def change(simulation: Simulation, **spec: Any) -> None:
    simulation.cluster.change(LLAMA_DEPLOYMENT, NAMESPACE, "chat", spec=spec)


def hand_over_args(simulation: Simulation) -> None:
    """As after what the message of FieldOwnedByOther tells people to do."""
    owners = simulation.cluster.owners["Deployment", NAMESPACE, "web"]
    args = {path for path in owners["kubectl"] if path[-1] == "args"}
    owners["kubectl"] -= args
    owners["slotune-rollout"] = args
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", metadata={"labels": {"handed": "over"}})


# ------------------------------------------------------------------- Recommend


async def test_a_recommendation_writes_nothing_to_the_target_and_leaves_a_ready_patch():
    simulation = simulated(target(), targeting())
    before = deployment(simulation, "web")
    await until(simulation, "Ready", "True", "Recommended")
    await simulation.run(most_s=HOUR)
    after = deployment(simulation, "web")
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], 1)
    assert written(simulation.cluster.requests, DEPLOYMENT) == []
    assert not [one for one in simulation.cluster.requests if one.kind == "Deployment" and one.verb == "apply"]
    patch = simulation.cluster.find(CONFIG_MAP, NAMESPACE, simulation.status()["recommendation"]["patchConfigMap"])
    assert patch is not None
    assert "kustomization.yaml" in patch["data"]
    assert any(("name: web" in text and '"4"' in text) or "- '4'" in text for text in patch["data"].values())
    assert simulation.says("RolledOut") == ("False", "RecommendOnly")
    assert_good_statuses(simulation)


async def test_a_patch_that_somebody_deleted_is_made_again():
    simulation = simulated(owned())
    await until(simulation, "Ready", "True", "Recommended")
    simulation.cluster.remove(CONFIG_MAP, NAMESPACE, "chat-recommendation")
    await simulation.run(most_s=1300)
    assert simulation.cluster.find(CONFIG_MAP, NAMESPACE, "chat-recommendation") is not None


async def test_what_cannot_be_promised_is_said_with_what_binds_and_production_is_left_alone():
    simulation = simulated(target(), targeting(**AUTO, gpuClasses__0__maxReplicas=2))
    simulation.world.capacity = {}
    before = deployment(simulation, "web")
    await until(simulation, "Stalled", "True", "Infeasible")
    await simulation.run(most_s=HOUR)
    status = simulation.status()
    assert status["phase"] == "Infeasible"
    assert status["bindingConstraint"]["code"]
    assert status["bindingConstraint"]["code"] in simulation.condition("Stalled")["message"]
    assert simulation.says("SLOMet") == ("False", "Infeasible")
    assert simulation.says("SearchCompleted") == ("True", "Infeasible")
    assert "recommendation" not in status
    assert deployment(simulation, "web")["spec"] == before["spec"]
    assert written(simulation.cluster.requests, DEPLOYMENT) == []
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=2 * HOUR)
    assert not [one for one in simulation.cluster.requests[mark:] if one.is_write]
    assert_good_statuses(simulation)


# ------------------------------------------------------------------- owned mode


async def test_owned_mode_serves_the_baseline_first_and_then_the_answer():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await simulation.run(lambda: deployment_or_none(simulation) is not None, most_s=60)
    assert args_of(simulation) == ARGS
    assert simulation.trials() == []
    assert deployment(simulation)["spec"]["replicas"] == 2
    service = simulation.cluster.find(SERVICE, NAMESPACE, "chat")
    assert service is not None
    assert service["spec"]["selector"] == {"slotune.dev/serves": "chat"}
    assert simulation.says("RolledOut")[0] in {"False", "Unknown"}
    await until(simulation, "RolledOut", "True", "RolledOut")
    await until(simulation, "SLOMet", "True", "ServingKeepsSLO")
    status = simulation.status()
    assert status["phase"] == "Tuned"
    assert status["applied"]["candidateHash"] == status["recommendation"]["candidateHash"]
    args = args_of(simulation)
    assert args[args.index("-np") + 1] == "4"
    assert deployment(simulation)["spec"]["replicas"] == 1
    assert simulation.says("Ready")[0] == "True"
    await simulation.run(most_s=60)
    measured, mark = len(simulation.node.measured), len(simulation.cluster.requests)
    await simulation.run(most_s=4 * HOUR)
    assert len(simulation.node.measured) == measured
    assert not [one for one in simulation.cluster.requests[mark:] if one.is_write]
    assert_good_statuses(simulation)


async def test_an_answer_that_serves_already_is_done_without_a_change():
    simulation = simulated(owned(**AUTO, replicas=1, workload__inline__load={"requestRate": "1"}))
    await simulation.until_decided()
    await simulation.run(most_s=HOUR)
    assert simulation.says("Ready")[0] == "True"
    assert args_of(simulation) == ARGS
    assert_good_statuses(simulation)


async def test_without_a_spare_gpu_or_leave_nothing_is_begun_that_would_never_end():
    simulation = simulated(owned(rollout__mode="Auto", replicas=1))
    simulation.reader.free = 0
    simulation.world.capacity = world(lambda one: 2.0 * one.parallel_slots).capacity
    await simulation.until_decided()
    await simulation.run(lambda: simulation.says("Stalled")[0] == "True", most_s=60)
    assert simulation.says("Stalled")[1] in {"WouldDeadlock", "NeedsDowntime"}
    assert simulation.says("RolledOut") == ("False", simulation.says("Stalled")[1])
    assert "allowDowntime" in simulation.condition("RolledOut")["message"]
    assert args_of(simulation) == ARGS
    change(simulation, rollout={"allowDowntime": True})
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert_good_statuses(simulation)


async def test_an_approval_is_waited_for_and_an_old_one_does_not_count():
    simulation = simulated(owned(rollout__mode="RequireApproval", rollout__allowDowntime=True, **VERIFY))
    await until(simulation, "RolledOut", "False", "AwaitingApproval")
    assert simulation.says("Stalled") == simulation.says("Reconciling") == ("", "")
    assert args_of(simulation) == ARGS
    change(simulation, rollout={"approvedCandidate": "0123456789"})
    await until(simulation, "Stalled", "True", "StaleApproval")
    assert args_of(simulation) == ARGS
    change(simulation, rollout={"approvedCandidate": simulation.status()["recommendation"]["candidateHash"]})
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert args_of(simulation) != ARGS
    assert_good_statuses(simulation)


@pytest.mark.parametrize("trouble", ["missed", "sick"])
async def test_an_answer_that_does_not_hold_goes_and_is_not_tried_again(trouble):
    simulation = simulated(owned(**AUTO, **VERIFY, rollout__progressDeadline="5m"))
    if trouble == "missed":
        simulation.reader.outcome = "Missed"
    else:
        simulation.node.sick = lambda template: "4" in template["spec"]["containers"][0]["args"]
    await simulation.run(lambda: "slotune.dev/candidate" in str(deployment_or_none(simulation)), most_s=HOUR)
    await simulation.run(lambda: simulation.status()["phase"] == "RolledBack", most_s=2 * HOUR)
    await simulation.run(most_s=HOUR)
    assert simulation.status()["phase"] == "RolledBack"
    assert args_of(simulation) == ARGS
    assert deployment(simulation)["spec"]["replicas"] == 2
    assert simulation.status()["refusedCandidates"] == [simulation.status()["recommendation"]["candidateHash"]]
    assert simulation.says("Stalled")[0] == "True"
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=4 * HOUR)
    assert not [one for one in simulation.cluster.requests[mark:] if one.is_write and one.kind == "Deployment"]
    assert_good_statuses(simulation)


def deployment_or_none(simulation: Simulation) -> Object | None:
    return simulation.cluster.find(DEPLOYMENT, NAMESPACE, "chat")


kills = st.dictionaries(st.integers(1, 30), st.sampled_from(["before", "after"]), min_size=1, max_size=6)


@settings(deadline=None, max_examples=4)
@given(kills)
def test_an_operator_that_dies_during_a_rollout_ends_it_the_same(points):
    async def law() -> None:
        simulation = simulated(owned(**AUTO, **VERIFY))
        await simulation.until_decided()
        count = 0

        def before(request: Request) -> None:
            nonlocal count
            count += request.is_write
            if request.is_write and points.get(count) == "before":
                raise Killed

        def after(request: Request) -> None:
            if request.is_write and points.get(count) == "after":
                raise Killed

        def arm() -> None:
            simulation.cluster.before, simulation.cluster.after = before, after

        end = simulation.kill

        def kill_and_arm() -> None:
            end()
            arm()

        simulation.kill = kill_and_arm  # type: ignore[method-assign]  # the next life may die too
        arm()
        await simulation.run(lambda: simulation.says("RolledOut") == ("True", "RolledOut"), most_s=2 * HOUR)
        assert simulation.says("RolledOut") == ("True", "RolledOut")
        simulation.cluster.before = simulation.cluster.after = lambda _: None
        await simulation.run(most_s=120)
        args = args_of(simulation)
        assert args[args.index("-np") + 1] == "4"
        assert deployment(simulation)["spec"]["replicas"] == 1
        assert simulation.status()["refusedCandidates"] == []
        keys = [trial.key() for trial in simulation.node.measured]
        assert len(keys) == len(set(keys))
        assert_good_statuses(simulation)

    drive(law())


# ------------------------------------------------------------------- the target


async def test_fields_that_others_own_are_never_taken():
    simulation = simulated(target(), targeting(**AUTO))
    before = deployment(simulation, "web")["spec"]
    await until(simulation, "Stalled", "True", "FieldOwnedByOther")
    message = simulation.condition("Stalled")["message"]
    assert "kubectl" in message
    assert "args" in message
    await simulation.run(most_s=HOUR)
    assert deployment(simulation, "web")["spec"] == before
    assert_good_statuses(simulation)


async def test_who_follows_the_printed_words_hands_args_over_without_a_moment_in_which_production_lacks_them():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    await until(simulation, "Stalled", "True", "FieldOwnedByOther")
    message = simulation.condition("Stalled")["message"]
    assert message.index("--field-manager=slotune-rollout") < message.index("then take args out")
    assert "force" not in message.replace("by force", "")
    only = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE}}
    args = {"spec": {"template": {"spec": {"containers": [{"name": "llama", "args": ARGS}]}}}}
    await simulation.cluster.apply({**only, **args}, "slotune-rollout", force=False)
    assert args_of(simulation, "web") == ARGS
    assert simulation.says("Stalled") == ("True", "FieldOwnedByOther")
    without = target(template__spec__containers__0__args=None)
    await simulation.cluster.apply(without, "kubectl", force=False)
    assert args_of(simulation, "web") == ARGS
    await until(simulation, "Stalled", "True", "FieldOwnedByOther", most_s=1)
    await simulation.cluster.apply(target(template__spec__containers__0__args=None), "kubectl", force=False)
    await simulation.run(lambda: args_of(simulation, "web") != ARGS, most_s=HOUR)
    args_now = args_of(simulation, "web")
    assert args_now[args_now.index("-np") + 1] == "4"
    await simulation.cluster.apply(without, "kubectl", force=False)
    assert args_of(simulation, "web") == args_now


@pytest.mark.parametrize("owner", ["kubectl-client-side-apply", "helm"])
async def test_whose_next_apply_would_delete_args_is_not_told_to_let_go_of_them(owner):
    """The three-way merge of kubectl apply deletes what it applied before and no longer finds in its manifest."""
    simulation = simulated(targeting(**AUTO, **VERIFY))
    simulation.cluster.put(target(), owner)
    await until(simulation, "Stalled", "True", "FieldOwnedByOther")
    message = simulation.condition("Stalled")["message"]
    assert owner in message
    assert "rollout.mode to Recommend" in message
    assert "ConfigMap chat-recommendation" in message
    assert "--field-manager" not in message
    assert "take args out" not in message


async def test_a_target_whose_args_were_handed_over_gets_the_answer_and_asks_no_new_question():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    await until(simulation, "RolledOut", "True", "RolledOut")
    args = args_of(simulation, "web")
    assert args[args.index("-np") + 1] == "4"
    found = deployment(simulation, "web")
    assert found["spec"]["template"]["metadata"]["labels"] == {"app": "chat"}
    assert found["spec"]["template"]["spec"]["volumes"] == target()["spec"]["template"]["spec"]["volumes"]
    search, measured = simulation.status()["progress"]["search"], len(simulation.node.measured)
    assert simulation.status()["baseline"]["candidate"]["parallelSlots"] == 1
    await simulation.run(most_s=2 * HOUR)
    assert simulation.status()["progress"]["search"] == search
    assert len(simulation.node.measured) == measured
    assert simulation.status()["baseline"]["candidate"]["parallelSlots"] == 1
    assert simulation.says("SLOMet") == ("True", "ServingKeepsSLO")
    simulation.kill()
    await simulation.run(most_s=HOUR)
    assert len(simulation.node.measured) == measured
    assert_good_statuses(simulation)


async def test_an_autoscaler_that_moves_the_replicas_asks_no_new_question():
    simulation = simulated(target(), targeting())
    await until(simulation, "Ready", "True", "Recommended")
    measured = len(simulation.node.measured)
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", spec={"replicas": 3})
    await simulation.run(most_s=HOUR)
    assert len(simulation.node.measured) == measured
    assert simulation.status()["baseline"]["replicas"] == 2
    assert simulation.says("SearchCompleted") == ("True", "Found")


async def test_flags_that_somebody_changes_on_the_target_are_another_question():
    simulation = simulated(target(), targeting())
    await until(simulation, "Ready", "True", "Recommended")
    args = [*ARGS[:3], "2", *ARGS[4:]]
    simulation.apply(target(template__spec__containers__0__args=args))
    await simulation.run(lambda: simulation.status()["baseline"]["candidate"]["parallelSlots"] == 2, most_s=60)
    await simulation.until_decided()
    asked = [trial for trial in simulation.node.measured if trial.purpose is Purpose.BASELINE]
    assert {trial.candidate.parallel_slots for trial in asked} == {1, 2}
    assert_good_statuses(simulation)


async def test_production_that_shows_nothing_is_left_as_it_is_and_a_person_is_asked():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.outcome = "Inconclusive"
    await until(simulation, "Stalled", "True", "VerificationInconclusive")
    assert simulation.says("RolledOut")[0] == "Unknown"
    args = args_of(simulation)
    assert args[args.index("-np") + 1] == "4"
    looks = len(simulation.requeues)
    await simulation.run(most_s=600)
    assert len(simulation.requeues) - looks < 60
    assert simulation.says("Stalled") == ("True", "VerificationInconclusive")
    assert args_of(simulation) == args
    simulation.reader.outcome = "Kept"
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert_good_statuses(simulation)


async def test_answers_that_run_are_not_cut_off():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.busy = 3
    await until(simulation, "RolledOut", "False", "PodsBusy")
    assert args_of(simulation) == ARGS
    simulation.reader.busy = None
    await simulation.run(most_s=600)
    assert args_of(simulation) == ARGS
    simulation.reader.busy = 0
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert_good_statuses(simulation)


async def test_a_suspended_object_does_not_go_on_with_its_rollout():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.busy = 1
    await until(simulation, "RolledOut", "False", "Draining")
    change(simulation, suspend=True)
    await simulation.run(lambda: simulation.status()["phase"] == "Suspended", most_s=60)
    simulation.reader.busy = 0
    await simulation.run(most_s=HOUR)
    assert args_of(simulation) == ARGS
    change(simulation, suspend=False)
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert_good_statuses(simulation)


async def test_replicas_that_a_user_changes_before_any_rollout_are_what_runs_today():
    simulation = simulated(owned())
    await until(simulation, "Ready", "True", "Recommended")
    change(simulation, replicas=3)
    await simulation.run(lambda: simulation.status()["baseline"]["replicas"] == 3, most_s=60)
    await simulation.until_decided()
    assert deployment(simulation)["spec"]["replicas"] == 3
    assert args_of(simulation) == ARGS


async def test_replicas_that_an_autoscaler_has_set_are_left_alone_in_owned_mode():
    simulation = simulated(owned())
    await until(simulation, "Ready", "True", "Recommended")
    owners = simulation.cluster.owners["Deployment", NAMESPACE, "chat"]
    owners["kube-controller-manager"] = {("spec", "replicas")}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "chat", spec={"replicas": 4})
    await simulation.run(most_s=HOUR)
    assert deployment(simulation)["spec"]["replicas"] == 4


async def test_an_answer_that_only_changes_the_replicas_keeps_the_flags_of_the_one_before():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    owners = simulation.cluster.owners["Deployment", NAMESPACE, "web"]
    owners["kubectl"].discard(("spec", "replicas"))
    owners["slotune-rollout"].add(("spec", "replicas"))
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", metadata={"labels": {"handed": "over too"}})
    await until(simulation, "RolledOut", "True", "RolledOut")
    args = args_of(simulation, "web")
    assert args[args.index("-np") + 1] == "4"
    assert deployment(simulation, "web")["spec"]["replicas"] == 1
    change(simulation, workload={"inline": {"load": {"requestRate": "8"}}})
    await simulation.run(lambda: simulation.says("SearchCompleted")[0] != "True", most_s=60)
    await simulation.until_decided()
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert deployment(simulation, "web")["spec"]["replicas"] == 2
    assert args_of(simulation, "web") == args
    assert_good_statuses(simulation)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_an_edit_between_the_look_and_the_apply_is_seen_before_anything_is_written(dry_run):
    """Slotune sends no image, so no owner of a field would tell."""
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    edited: list[int] = []

    def edit(request: Request) -> None:
        if (request.verb, request.kind, request.dry_run) == ("apply", "Deployment", dry_run) and not edited:
            edited.append(len(simulation.node.measured))
            template = deployment(simulation, "web")["spec"]["template"]
            container = {**template["spec"]["containers"][0], "image": f"{IMAGE}-next"}
            patch = {"template": {"spec": {"containers": [container]}}}
            simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", spec=patch)

    simulation.cluster.before = edit
    await until(simulation, "Stalled", "True", "ChangedByOther")
    await simulation.run(most_s=HOUR)
    found = deployment(simulation, "web")["spec"]["template"]
    assert found["spec"]["containers"][0]["image"] == f"{IMAGE}-next"
    assert found["spec"]["containers"][0]["args"] == ARGS
    assert "slotune.dev/candidate" not in str(found)
    assert simulation.says("Stalled") == ("True", "ChangedByOther")
    assert_good_statuses(simulation)


async def test_another_deployment_of_the_same_name_gets_no_apply_that_was_meant_for_the_one_before():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    made: list[Object] = []

    def replace_it(request: Request) -> None:
        if (request.verb, request.kind, request.dry_run) == ("apply", "Deployment", False) and not made:
            simulation.cluster.remove(DEPLOYMENT, NAMESPACE, "web")
            made.append(simulation.cluster.put(target(template__spec__containers__0__args=[*ARGS, "--verbose"])))
            hand_over_args(simulation)

    simulation.cluster.before = replace_it
    await simulation.run(lambda: bool(made), most_s=2 * HOUR)
    await simulation.run(most_s=60)
    assert args_of(simulation, "web") == [*ARGS, "--verbose"]
    assert "slotune.dev/candidate" not in str(deployment(simulation, "web"))


async def test_a_way_back_that_somebody_else_bars_is_said_and_not_tried_for_ever():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    simulation.reader.outcome = "Missed"
    await simulation.run(lambda: "slotune.dev/candidate" in str(deployment(simulation, "web")), most_s=2 * HOUR)
    owners = simulation.cluster.owners["Deployment", NAMESPACE, "web"]
    owners["argocd"] = {path for path in owners["slotune-rollout"] if path[-1] == "args"}
    simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", metadata={"labels": {"taken": "over"}})
    applied = args_of(simulation, "web")
    await until(simulation, "Stalled", "True", "FieldOwnedByOther")
    assert "argocd" in simulation.condition("Stalled")["message"]
    assert "kubectl rollout undo" in simulation.condition("Stalled")["message"]
    mark = len(simulation.cluster.requests)
    await simulation.run(most_s=HOUR)
    assert not written(simulation.cluster.requests[mark:], DEPLOYMENT)
    assert args_of(simulation, "web") == applied
    assert_good_statuses(simulation)


async def test_a_target_goes_back_to_exactly_what_it_ran():
    simulation = simulated(target(), targeting(**AUTO, **VERIFY))
    hand_over_args(simulation)
    before = deployment(simulation, "web")["spec"]
    simulation.reader.outcome = "Missed"
    await simulation.run(lambda: "slotune.dev/candidate" in str(deployment(simulation, "web")), most_s=2 * HOUR)
    await simulation.run(lambda: simulation.status()["phase"] == "RolledBack", most_s=2 * HOUR)
    await simulation.run(most_s=HOUR)
    assert deployment(simulation, "web")["spec"] == before
    owned_by_us = simulation.cluster.owners["Deployment", NAMESPACE, "web"]["slotune-rollout"]
    assert not {path for path in owned_by_us if path[-1] in {"image", "labels", "volumes"}}
    assert_good_statuses(simulation)


@pytest.mark.parametrize("manifests", [(owned(**AUTO, **VERIFY),), (target(), targeting(**AUTO, **VERIFY))])
async def test_replicas_are_left_alone_where_an_autoscaler_may_own_them_unseen(manifests):
    simulation = simulated(*manifests)
    name = "chat" if len(manifests) == 1 else "web"
    simulation.cluster.forbidden = {("list", "HorizontalPodAutoscaler")}
    if name == "web":
        hand_over_args(simulation)
        owners = simulation.cluster.owners["Deployment", NAMESPACE, "web"]
        owners["kubectl"].discard(("spec", "replicas"))
        owners["slotune-rollout"].add(("spec", "replicas"))
        simulation.cluster.change(DEPLOYMENT, NAMESPACE, "web", metadata={"labels": {"handed": "over too"}})
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert deployment(simulation, name)["spec"]["replicas"] == 2
    args = args_of(simulation, name)
    assert args[args.index("-np") + 1] == "4"
    assert "may not list HorizontalPodAutoscalers" in simulation.condition("RolledOut")["message"]
    assert_good_statuses(simulation)


async def test_an_answer_with_more_replicas_waits_where_an_autoscaler_may_own_them_unseen():
    simulation = simulated(owned(**AUTO, **VERIFY, replicas=1, workload__inline__load={"requestRate": "8"}))
    simulation.cluster.forbidden = {("list", "HorizontalPodAutoscaler")}
    await until(simulation, "Stalled", "True", "FieldOwnedByOther")
    assert "horizontalpodautoscalers" in simulation.condition("Stalled")["message"]
    assert args_of(simulation) == ARGS
    simulation.cluster.forbidden = set()
    await until(simulation, "RolledOut", "True", "RolledOut")
    assert deployment(simulation)["spec"]["replicas"] == 2


async def until_watched(simulation: Simulation) -> None:
    """Until the candidate serves and is being judged."""
    await simulation.run(
        lambda: (simulation.status().get("rollout") or {}).get("stage") == "Verifying", most_s=2 * HOUR
    )
    assert simulation.status()["rollout"]["stage"] == "Verifying"


def rolled_back(simulation: Simulation) -> bool:
    return (simulation.status().get("rollout") or {}).get("stage") == "RolledBack"


@pytest.mark.parametrize("manifests", [(owned(**AUTO, **VERIFY),), (target(), targeting(**AUTO, **VERIFY))])
@pytest.mark.parametrize("trouble", ["nothing is understood", "another question"])
async def test_what_is_under_way_is_judged_and_goes_back_whatever_became_of_the_question(manifests, trouble):
    simulation = simulated(*manifests)
    name = "chat" if len(manifests) == 1 else "web"
    if name == "web":
        hand_over_args(simulation)
    await until_watched(simulation)
    candidate = simulation.status()["rollout"]["candidateHash"]
    assert args_of(simulation, name) != ARGS
    simulation.reader.outcome = "Missed"
    if trouble == "another question":
        simulation.world.seconds = lambda _: 3000.0
        change(simulation, measurement={"requestsPerRun": 13})
    else:
        simulation.cluster.remove(GPU_CLASS, None, "cpu")
    await simulation.run(lambda: rolled_back(simulation), most_s=HOUR)
    assert rolled_back(simulation)
    assert args_of(simulation, name) == ARGS
    assert candidate in simulation.status()["refusedCandidates"]
    if trouble == "another question":
        assert simulation.says("SearchCompleted")[0] == "False"
    else:
        assert simulation.says("Stalled") == ("True", "ReferenceNotFound")
    assert_good_statuses(simulation)


async def test_a_candidate_that_holds_is_found_good_while_another_question_is_asked():
    simulation = simulated(owned(**AUTO, **VERIFY))
    await until_watched(simulation)
    candidate = simulation.status()["rollout"]["candidateHash"]
    change(simulation, workload={"inline": {"load": {"requestRate": "8"}}})
    await simulation.run(lambda: simulation.status()["rollout"]["stage"] == "Done", most_s=HOUR)
    assert simulation.status()["lastGood"]["candidateHash"] == candidate
    assert_good_statuses(simulation)


async def test_a_rollout_that_changed_nothing_yet_is_given_up_when_the_question_changes():
    simulation = simulated(owned(**AUTO, **VERIFY))
    simulation.reader.busy = 1
    await until(simulation, "RolledOut", "False", "Draining")
    simulation.cluster.remove(GPU_CLASS, None, "cpu")
    simulation.reader.busy = 0
    await simulation.run(most_s=HOUR)
    assert args_of(simulation) == ARGS
    assert "rollout" not in simulation.status()
    assert_good_statuses(simulation)


async def test_no_key_is_written_down_on_the_way_to_production_and_back():
    simulation = simulated(
        owned(
            **AUTO,
            **VERIFY,
            template__spec__containers__0__args=[*ARGS, "--api-key", "sk-0123456789abcdef"],
            template__spec__containers__0__env=[{"name": "PASSWORD", "value": "hunter2hunter2"}],
        )
    )
    before = [*ARGS, "--api-key", "sk-0123456789abcdef"]
    simulation.reader.outcome = "Missed"
    await simulation.run(lambda: rolled_back(simulation), most_s=2 * HOUR)
    assert rolled_back(simulation)
    assert args_of(simulation) == before
    changed = [one.object for one in simulation.cluster.changes]
    said = [one.get("status") if one["kind"] == "LlamaDeployment" else one for one in changed]
    written_down = str([one for one in said if (one or {}).get("kind", "ConfigMap") == "ConfigMap"])
    assert "candidateHash" in written_down
    assert "slotune.dev/left-out" in written_down
    assert "0123456789abcdef" not in written_down
    assert "hunter2" not in written_down
