"""The story of a rollout: what is asked first, what is written before what, and how each way ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from slotune.api.v1alpha1 import Rollout
from slotune.api.v1alpha1.rollout import Drain as DrainPolicy
from slotune.api.v1alpha1.rollout import Verify as VerifyPolicy
from slotune.rollout import gates
from slotune.rollout.facts import Conflict, Readings
from slotune.rollout.planner import is_under_way, plan_rollout
from slotune.rollout.steps import (
    Apply,
    AwaitApproval,
    Done,
    Drain,
    NothingToDo,
    Refuse,
    RollBack,
    Verify,
    Wait,
    WriteAhead,
)
from tests.rollout.deployment_model import PodSet
from tests.rollout.objects import HASH, OTHER_HASH, OWN_HASH, template
from tests.rollout.world import World, recommendation


def until(world: World, kind: type) -> Any:
    """The first step of that kind, not carried out."""
    for _ in range(200):
        step = world.plan()
        if isinstance(step, kind):
            return step
        world.carry_out(step)
        world.calm_down()
        world.now = max(world.now, getattr(step, "next_look", world.now)) + timedelta(seconds=1)
    raise AssertionError(f"no {kind.__name__}, but {world.steps[-3:]}")


def kinds(world: World) -> list[str]:
    return [type(step).__name__ for step in world.steps]


# How it goes well.


def test_the_way_back_is_written_down_in_full_before_production_is_touched() -> None:
    world = World()
    apply = until(world, Apply)
    good = world.memory.last_good
    assert good is not None
    assert (good.candidate_hash, good.replicas, good.args) == (OWN_HASH, 1, ("-m", "/m.gguf"))
    assert good.template_digest == world.serving.template_digest
    assert list(world.records.values()) == [world.serving.template]
    assert (apply.candidate_hash, apply.replicas) == (HASH, 1)


def test_a_good_candidate_serves_in_the_end_and_is_the_next_to_come_back_to() -> None:
    world = World()
    assert isinstance(world.run(), Done)
    assert world.running == HASH
    assert world.memory.applied == world.memory.last_good
    assert world.memory.applied is not None
    assert world.memory.applied.candidate_hash == HASH


def test_a_converged_rollout_writes_nothing() -> None:
    world = World()
    world.run()
    before = world.memory
    for _ in range(3):
        world.pass_time(hours=5)
        assert isinstance(world.operate(), Done)
    assert world.memory == before


def test_fewer_replicas_follow_once_the_candidate_answers() -> None:
    world = World(replicas=3, free=0)
    world.run()
    first, second = (step.replicas for step in world.steps if isinstance(step, Apply))
    assert (first, second) == (3, 1)
    assert world.state.replicas == 1


def test_more_replicas_come_with_the_candidate() -> None:
    world = World(free=2, wanted=recommendation(replicas=3))
    assert isinstance(world.run(), Done)
    assert [step.replicas for step in world.steps if isinstance(step, Apply)] == [3]


def test_the_baseline_with_fewer_replicas_starts_no_new_pod() -> None:
    world = World(replicas=3, wanted=recommendation(OWN_HASH, replicas=2))
    assert isinstance(world.run(), Done)
    assert world.state.replicas == 2
    assert len(world.templates) == 1


def test_a_baseline_that_is_the_answer_is_done() -> None:
    world = World(wanted=recommendation(OWN_HASH, saving="0"))
    step = world.plan()
    assert isinstance(step, Done)
    assert step.reason == "AlreadyServing"


def with_pods(world: World, ready: int, *, old: int = 0) -> World:
    """Of the newest template, so many pods answer; ``old`` of another one are left."""
    newest = replace(world.state.set(world.state.newest), ready=ready)
    others = (PodSet("another", spec=0, ready=old),) if old else ()
    world.state = replace(world.state, sets=(*others, newest))
    return world


@pytest.mark.parametrize("rolled_out", [True, False])
def test_an_answer_that_serves_goes_on_serving_while_a_pod_is_missing(rolled_out: bool) -> None:
    world = World(wanted=recommendation(HASH if rolled_out else OWN_HASH, replicas=3), replicas=3, keeps_slo=True)
    want = ("RolledOut" if rolled_out else "AlreadyServing", "True")
    steps = [world.run(), with_pods(world, 2).plan()]
    assert [(step.reason, step.rolled_out) for step in steps] == [want, want]
    assert "of which 2 answer now" in steps[1].message
    step = with_pods(world, 0).plan()
    assert isinstance(step, Wait)
    assert (step.reason, step.rolled_out, step.serves) == ("ProductionNotReady", "False", True)


def test_an_answer_that_somebody_is_just_bringing_does_not_serve_yet() -> None:
    world = with_pods(World(wanted=recommendation(OWN_HASH, replicas=3), replicas=3), 2, old=1)
    step = world.plan()
    assert isinstance(step, Wait)
    assert (step.reason, step.serves) == ("ProductionNotReady", True)


def test_what_serves_again_after_a_rollback_was_not_rolled_out() -> None:
    world = World(outcome="Missed")
    assert world.run().reason == "RolledBack"
    world.wanted = recommendation(OWN_HASH)
    assert world.run().reason == "AlreadyServing"


def test_a_rollout_that_was_given_up_leaves_the_one_before_it_rolled_out() -> None:
    world = World()
    assert world.run().reason == "RolledOut"
    world.busy, world.wanted = 1, recommendation(OTHER_HASH)
    world.operate(2)
    assert world.memory.rollout is not None
    assert world.memory.rollout.candidate_hash == OTHER_HASH
    world.wanted = recommendation(HASH)
    world.operate()
    assert world.memory.rollout is None
    assert world.plan().reason == "RolledOut"


# What is asked first.

GateCase = tuple[str, World, type, str]


def closed(name: str, kind: type, reason: str, **world: Any) -> Any:
    return pytest.param(World(**world), kind, reason, id=name)


@pytest.mark.parametrize(
    ("world", "kind", "reason"),
    [
        closed("nothing is recommended", NothingToDo, "NoRecommendation", wanted=None),
        closed("it is suspended", NothingToDo, "Suspended", suspended=True),
        closed("only recommended", NothingToDo, "RecommendOnly", policy=Rollout()),
        closed("not approved yet", AwaitApproval, "AwaitingApproval", policy=Rollout(mode="RequireApproval")),
        closed(
            "approved before the recommendation changed",
            Refuse,
            "StaleApproval",
            policy=Rollout(mode="RequireApproval", approved_candidate=OTHER_HASH),
        ),
        closed("noise", NothingToDo, "SavesTooLittle", keeps_slo=True, wanted=recommendation(saving="4.9")),
        closed("an unknown saving", NothingToDo, "SavesTooLittle", keeps_slo=True, wanted=recommendation(saving=None)),
        closed("it costs more", NothingToDo, "SavesTooLittle", keeps_slo=True, wanted=recommendation(saving="-20")),
        closed("no GPU is spare", Refuse, "WouldDeadlock", free=0),
        closed("nobody knows whether one is", Refuse, "WouldDeadlock", capacity_known=False),
        closed("scaled to zero", NothingToDo, "ScaledToZero", replicas=0),
    ],
)
def test_production_is_left_alone(world: World, kind: type, reason: str) -> None:
    step = world.plan()
    assert isinstance(step, kind)
    assert step.reason == reason
    assert step.rolled_out == "False"


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(World(keeps_slo=True, wanted=recommendation(saving="5")), id="it saves enough"),
        pytest.param(World(keeps_slo=False, wanted=recommendation(saving="-20")), id="today misses the SLO"),
        pytest.param(World(keeps_slo=None, wanted=recommendation(saving="0")), id="today was not shown to keep it"),
        pytest.param(
            World(
                policy=Rollout(mode="RequireApproval", approved_candidate=HASH),
                keeps_slo=True,
                wanted=recommendation(saving="1"),
            ),
            id="a person named it",
        ),
        pytest.param(World(free=0, policy=Rollout(mode="Auto", allow_downtime=True)), id="downtime is allowed"),
    ],
)
def test_production_is_changed(world: World) -> None:
    assert isinstance(world.run(), Done)
    assert world.running == HASH


def test_the_order_of_the_gates() -> None:
    assert [gate.__name__ for gate in gates.GATES] == [
        "nothing_is_recommended",
        "production_is_borrowed",
        "it_is_suspended",
        "it_serves_already",
        "it_may_only_be_recommended",
        "it_was_rolled_back",
        "it_saves_too_little",
        "it_is_not_approved",
        "deployment_can_not_change",
        "a_field_belongs_to_another",
        "production_is_changing",
        "it_would_not_end",
    ]


def test_production_that_changes_by_itself_is_waited_for() -> None:
    world = World(wanted=recommendation())
    world.change(template("-m", "/m.gguf", "-v"))
    step = world.plan()
    assert isinstance(step, Wait)
    assert step.reason == "ProductionNotReady"


def test_a_missing_deployment_is_waited_for() -> None:
    world = World()
    step = plan_rollout(world.intent, None, world.memory, Readings(), world.now, judge=lambda *_: ("Continue", ""))
    assert isinstance(step, Wait)
    assert step.reason == "DeploymentNotFound"


# Draining.


def test_nothing_is_applied_while_answers_run() -> None:
    world = World(busy=2)
    step = until(world, Drain)
    assert step.message == "2 answers run"
    world.operate(3)
    world.busy = 0
    assert isinstance(world.run(), Done)


def test_servers_that_can_not_be_asked_are_not_replaced_even_with_proceed() -> None:
    world = World(busy=None, policy=Rollout(mode="Auto", drain=DrainPolicy(on_timeout="Proceed")))
    step = world.run()
    assert step.reason == "IdleCheckFailed"
    assert "start it with --slots" in step.message
    assert not world.applied


def test_a_look_at_the_servers_is_soon_too_old() -> None:
    world = World(busy=0)
    world.operate()
    stale = replace(world.readings, slots=replace(world.readings.slots, at=world.now - timedelta(seconds=11)))  # type: ignore[type-var]  # it is there
    step = plan_rollout(world.intent, world.serving, world.memory, stale, world.now, judge=lambda *_: ("Continue", ""))
    assert isinstance(step, Drain)


def test_an_aborted_drain_waits_for_a_better_time_and_writes_nothing_meanwhile() -> None:
    world = World(busy=1)
    assert world.run().reason == "PodsBusy"
    before = world.memory
    world.pass_time(hours=3)
    assert world.operate().reason == "PodsBusy"
    assert world.memory == before
    assert not is_under_way(world.memory)
    world.busy = 0
    assert isinstance(world.run(), Done)


def test_proceed_cuts_answers_off_after_the_timeout() -> None:
    world = World(busy=1, policy=Rollout(mode="Auto", drain=DrainPolicy(timeout="1m", on_timeout="Proceed")))
    began = world.now
    until(world, Apply)
    assert world.now - began >= timedelta(minutes=1)


def test_an_approval_that_is_withdrawn_while_draining_ends_the_rollout() -> None:
    world = World(busy=1, policy=Rollout(mode="RequireApproval", approved_candidate=HASH))
    until(world, Drain)
    world.policy = Rollout(mode="RequireApproval")
    assert isinstance(world.run(), AwaitApproval)
    assert world.memory.rollout is None
    assert not world.applied


def test_a_gpu_that_is_taken_while_draining_ends_the_rollout() -> None:
    world = World(busy=1)
    until(world, Drain)
    world.state = world.state.with_gpus("a", -1)
    assert world.run().reason == "WouldDeadlock"


# Readiness and verification.


@pytest.mark.parametrize("free", [0, 1], ids=["in place", "with a spare GPU"])
def test_pods_that_never_get_ready_are_taken_back(free: int) -> None:
    world = World(free=free, sick=frozenset({HASH}), policy=Rollout(mode="Auto", allow_downtime=True))
    step = world.run()
    assert isinstance(step, Refuse)
    assert step.reason == "RolledBack"
    assert "Kubernetes gave up after 600 s" in step.message
    assert world.running == OWN_HASH
    assert world.memory.refused == (HASH,)


def test_our_own_deadline_counts_too() -> None:
    world = World(sick=frozenset({HASH}), policy=Rollout(mode="Auto", progress_deadline="2m"))
    step = world.run()
    assert "rollout.progressDeadline is 2m" in step.message


def test_a_missed_slo_is_rolled_back_once_and_never_tried_again_by_itself() -> None:
    world = World(outcome="Missed")
    assert world.run().reason == "RolledBack"
    assert world.running == OWN_HASH
    assert world.memory.applied == world.memory.last_good
    world.outcome = "Kept"
    world.spec_generation += 1
    world.pass_time(days=3)
    assert isinstance(world.run(), Refuse)
    assert world.applied == [HASH]


def test_a_failed_candidate_may_be_followed_by_another_one() -> None:
    world = World(outcome="Missed")
    world.run()
    world.outcome, world.wanted = "Kept", recommendation(OTHER_HASH)
    assert isinstance(world.run(), Done)
    assert world.running == OTHER_HASH
    world.wanted = recommendation(HASH)
    assert world.run().reason == "CandidateRolledBack"


def test_running_answers_may_end_before_a_slow_candidate_goes() -> None:
    world = World(outcome="Missed")
    until(world, Verify)
    while not (world.memory.rollout and world.memory.rollout.stage == "RollingBack"):
        world.operate()
        world.pass_time(minutes=1)
    world.busy = 1
    world.pass_time(minutes=-1)
    step = world.plan()
    assert isinstance(step, Drain)
    assert step.reason == "SLOMissed"
    world.busy = 0
    assert isinstance(world.plan(), RollBack)


def test_no_data_is_never_a_success_and_asks() -> None:
    world = World(outcome="Inconclusive")
    step = world.run()
    assert isinstance(step, Verify)
    assert (step.reason, step.rolled_out) == ("VerificationInconclusive", "Unknown")
    assert world.running == HASH
    before = world.memory
    world.pass_time(days=1)
    world.operate()
    assert world.memory.with_record(last_look=None) == before.with_record(last_look=None)
    assert isinstance(later := world.plan(), Verify)
    assert later.next_look > world.now  # so that nobody looks all the time
    world.pass_time(minutes=1)
    world.outcome = "Kept"
    assert isinstance(world.run(), Done)


def test_what_was_never_proved_is_not_what_production_comes_back_to() -> None:
    world = World(outcome="Inconclusive")
    world.run()
    world.outcome, world.wanted = "Missed", recommendation(OTHER_HASH)
    assert world.run().reason == "RolledBack"
    assert world.running == OWN_HASH


def test_nobody_served_is_a_missed_look_whatever_prometheus_says() -> None:
    world = World()
    until(world, Verify)
    here = world.state.set(world.state.newest)
    world.state = world.state.with_set(replace(here, running=here.ready, ready=0, healthy=False))
    world.sick = frozenset({HASH})
    world.run()
    assert world.running == OWN_HASH


def test_one_look_is_counted_once() -> None:
    world = World()
    until(world, Verify)
    world.pass_time(minutes=2)
    world.operate(5)
    assert world.memory.rollout is not None
    assert world.memory.rollout.kept == 1


def test_looks_begin_when_queries_no_longer_see_the_old_pods() -> None:
    world = World()
    step = until(world, Verify)
    readings = replace(world.readings, settle=timedelta(minutes=5), look=None)
    later = plan_rollout(
        world.intent, world.serving, world.memory, readings, world.now, judge=lambda *_: ("Continue", "")
    )
    assert isinstance(later, Verify)
    assert later.next_look - step.next_look == timedelta(minutes=4)


def test_production_that_is_ill_on_the_way_back_too_is_left_to_a_person() -> None:
    world = World(outcome="Missed")
    until(world, RollBack)
    world.operate()
    world.state = replace(
        world.state, sets=tuple(replace(it, healthy=False, running=0, ready=0) for it in world.state.sets)
    )
    step = world.run()
    assert step.reason == "LastGoodUnhealthy"
    assert sum(isinstance(it, RollBack) for it in world.steps) <= 2
    changes = len(world.applied)
    world.pass_time(days=2)
    world.operate(5)
    assert len(world.applied) == changes


# Others.


def test_a_field_of_somebody_else_is_never_forced() -> None:
    world = World(owned=False)
    owners = [{"manager": "flux", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": {}}}}}}]
    containers = owners[0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]  # type: ignore[index]  # JSON
    containers['k:{"name":"llama"}'] = {"f:args": {}}
    serving = replace(world.serving, args_owners=("flux",))
    step = plan_rollout(
        world.intent, serving, world.memory, world.readings, world.now, judge=lambda *_: ("Continue", "")
    )
    assert isinstance(step, Refuse)
    assert step.reason == "FieldOwnedByOther"
    assert "belong to flux" in step.message


def test_a_conflict_at_the_apply_puts_the_rollout_off_and_names_the_owner() -> None:
    world = World(owned=False, free=2)
    until(world, Apply)
    readings = replace(world.readings, conflict=Conflict("argocd", ".spec.template.spec.containers"))
    step = plan_rollout(
        world.intent, world.serving, world.memory, readings, world.now, judge=lambda *_: ("Continue", "")
    )
    assert isinstance(step, WriteAhead)
    world.carry_out(step)
    waiting = world.plan()
    assert isinstance(waiting, Wait)
    assert waiting.reason == "FieldOwnedByOther"
    assert "argocd" in waiting.message


@pytest.mark.parametrize("stage", [Drain, Wait, Verify], ids=["while draining", "while pods start", "while verifying"])
def test_a_change_by_somebody_else_stops_the_rollout(stage: type) -> None:
    world = World(busy=1 if stage is Drain else 0, sick=frozenset({HASH}) if stage is Wait else frozenset())
    until(world, stage)
    world.busy = 0
    edited = template("-m", "/m.gguf", "--verbose")
    world.writer = "kubectl-edit"
    world.change(edited)
    step = world.run()
    assert isinstance(step, Refuse)
    assert step.reason == "ChangedByOther"
    assert "kubectl-edit" in step.message
    assert world.serving.template == edited


def test_another_spec_starts_again_from_what_somebody_else_made() -> None:
    world = World()
    until(world, Verify)
    world.change(template("-m", "/m.gguf", "--verbose"))
    world.run()
    world.spec_generation += 1
    world.calm_down()
    assert isinstance(world.run(), Done)
    assert world.running == HASH


@pytest.mark.parametrize("after_done", [False, True], ids=["while verifying", "once done"])
def test_a_war_with_gitops_ends_after_three_reverts(after_done: bool) -> None:
    world = World()
    old = world.serving.template
    world.writer = "argocd-controller"
    for _ in range(5):
        if after_done:
            step = world.run()
        else:
            step = next((it for it in (world.operate() for _ in range(60)) if isinstance(it, Verify | Refuse)), None)  # type: ignore[assignment]
            world.calm_down()
        if isinstance(step, Refuse):
            break
        if world.running == HASH:
            world.change(dict(old))
            world.calm_down()
    step = world.run()
    assert isinstance(step, Refuse)
    assert step.reason == "RevertedByOther"
    assert "argocd-controller put the old pod template of Deployment chat back 3 times" in step.message
    assert "ignoreDifferences" in step.message
    assert len(world.applied) == 3
    assert world.running == OWN_HASH


def test_replicas_of_an_autoscaler_are_never_set() -> None:
    world = World(replicas=3, owned=False)
    scaled = replace(world.serving, autoscaler="chat-hpa", replicas_owners=("kube-controller-manager",))
    judge: Callable[..., Any] = lambda *_: ("Continue", "")  # noqa: E731  # said once for three plans
    for _ in range(2):
        step = plan_rollout(world.intent, scaled, world.memory, world.readings, world.now, judge=judge)
        assert isinstance(step, WriteAhead)
        world.carry_out(step)
    step = plan_rollout(world.intent, scaled, world.memory, world.readings, world.now, judge=judge)
    assert isinstance(step, Apply)
    assert step.replicas is None


def test_more_replicas_that_somebody_else_sets_are_asked_for() -> None:
    world = World(owned=False, wanted=recommendation(replicas=3))
    serving = replace(world.serving, replicas_owners=("helm",))
    step = plan_rollout(
        world.intent, serving, world.memory, world.readings, world.now, judge=lambda *_: ("Continue", "")
    )
    assert isinstance(step, Refuse)
    assert "belongs to helm: set it to 3 there" in step.message


# Changes of mind in the middle.


def test_suspend_in_the_middle_leaves_production_as_it_is_and_goes_on_later() -> None:
    world = World(outcome="Missed")
    until(world, Verify)
    world.suspended = True
    for _ in range(5):
        world.pass_time(minutes=30)
        assert world.operate().reason == "Suspended"
    world.suspended = False
    assert world.run().reason == "RolledBack"


def test_recommend_in_the_middle_writes_nothing_to_the_deployment_of_somebody_else() -> None:
    world = World(outcome="Missed", owned=False)
    until(world, Verify)
    world.policy = Rollout()
    generation = world.generation
    step = world.run()
    assert isinstance(step, Refuse)
    assert step.reason == "RecommendOnly"
    assert "kubectl rollout undo deployment/chat" in step.message
    assert world.generation == generation


def test_an_approval_that_is_asked_for_in_the_middle_is_waited_for_before_replicas_go() -> None:
    world = World(replicas=3, free=0)
    world.carry_out(until(world, Apply))
    world.policy = world.policy.model_copy(update={"mode": "RequireApproval"})
    world.spec_generation += 1
    assert isinstance(world.run(), AwaitApproval)
    assert (world.running, world.state.replicas) == (HASH, 3)
    world.policy = world.policy.model_copy(update={"approved_candidate": HASH})
    world.spec_generation += 1
    assert isinstance(world.run(), Done)
    assert world.state.replicas == 1


def test_another_recommendation_waits_for_the_verdict_on_the_first() -> None:
    world = World()
    until(world, Verify)
    world.wanted = recommendation(OTHER_HASH)
    assert isinstance(world.run(), Done)
    assert world.applied == [HASH, OTHER_HASH]
    assert world.running == OTHER_HASH


def test_a_short_window_needs_one_good_look() -> None:
    world = World(policy=Rollout(mode="Auto", verify=VerifyPolicy(window="1m", interval="1m")))
    assert isinstance(world.run(), Done)
    assert world.memory.rollout is not None
    assert world.memory.rollout.kept == 1


def test_a_change_between_the_note_and_the_apply_stops_the_rollout() -> None:
    world = World()
    until(world, Apply)
    world.change(template("-m", "/m.gguf", "--verbose"))
    assert world.run().reason == "ChangedByOther"
    assert not world.applied


def test_a_change_on_the_way_back_is_left_as_it_is() -> None:
    world = World(outcome="Missed")
    until(world, RollBack)
    cure = template("-m", "/m.gguf", "-np", "1")
    world.change(cure)
    assert world.run().reason == "ChangedByOther"
    assert world.serving.template == cure
    assert world.memory.refused == (HASH,)


def test_the_same_candidate_in_a_changed_template_is_rolled_out() -> None:
    world = World(wanted=recommendation(OWN_HASH))
    intent = replace(world.intent, source="new-image")
    serving = replace(world.serving, source="old-image")
    for want in (WriteAhead, WriteAhead, Apply):
        step = plan_rollout(intent, serving, world.memory, world.readings, world.now, judge=lambda *_: ("Continue", ""))
        assert isinstance(step, want)
        if isinstance(step, WriteAhead):
            world.memory = step.memory
