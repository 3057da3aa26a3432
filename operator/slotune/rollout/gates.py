"""What must be so before production is touched. Each gate is named after what it finds, and the first one answers.

Order: what somebody decided, before what is so; what costs nothing to know, before what is read from the cluster. The
gates hold until the moment of the apply, not only when a rollout begins: an approval may be withdrawn meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from slotune.api.labels import ROLLOUT_MANAGER
from slotune.rollout.facts import UNKNOWN_AUTOSCALER
from slotune.rollout.situation import Situation
from slotune.rollout.steps import AwaitApproval, Done, NothingToDo, Refuse, Wait
from slotune.rollout.strategy import Choice, Refusal, choose_strategy

__all__ = ["GATES", "GateAnswer", "apply_the_patch", "chosen_strategy", "closed_gate"]

GateAnswer = NothingToDo | AwaitApproval | Refuse | Wait | Done
_LOOK_AGAIN: Final = timedelta(seconds=30)
"""A change of the Deployment wakes the plan anyway."""


def nothing_is_recommended(it: Situation) -> GateAnswer | None:
    if it.intent.wanted is None:
        return NothingToDo("NoRecommendation", "The search has found nothing to roll out")
    return None


def production_is_borrowed(it: Situation) -> GateAnswer | None:
    if it.memory.restore is not None:
        return Wait("Borrowed", "Production's GPU is borrowed for trials: it is given back first")
    return None


def it_is_suspended(it: Situation) -> GateAnswer | None:
    if it.intent.suspended:
        return NothingToDo("Suspended", "spec.suspend is true: production stays as it is")
    return None


def it_serves_already(it: Situation) -> GateAnswer | None:
    wanted = it.intent.wanted
    assert wanted is not None
    serving = it.serving
    if not it.runs_wanted or serving.desired != it.final_replicas:
        return None
    # Pods come and go: while one of them answers and none is of another kind, nothing is taken back of what was said.
    holds = serving.available > 0 and (it.is_proved or serving.is_of_one_kind)
    if not serving.is_settled and not holds:
        return Wait("ProductionNotReady", _unready(it), it.now + _LOOK_AGAIN, serves=True)
    message = f"Candidate {wanted.candidate_hash} serves with {_replicas(serving.desired)}"
    if not serving.is_settled:
        message += f", of which {serving.available} answer now"
    if wanted.replicas not in {None, it.serving.desired}:
        message += f"; {_replicas(wanted.replicas)} are recommended, and {it.replicas_owner} decides on them"
    return Done(message) if it.was_rolled_out else Done(message, "AlreadyServing")


def it_may_only_be_recommended(it: Situation) -> GateAnswer | None:
    if it.intent.policy.mode != "Recommend":
        return None
    wanted = it.intent.wanted
    assert wanted is not None
    patch = f"ConfigMap {wanted.patch_config_map}" if wanted.patch_config_map else "status.recommendation"
    return NothingToDo(
        "RecommendOnly",
        f"Candidate {wanted.candidate_hash} is recommended: {patch} has the change. Set spec.rollout.mode to "
        "RequireApproval or Auto to let slotune roll it out",
    )


def it_was_rolled_back(it: Situation) -> GateAnswer | None:
    wanted = it.intent.wanted
    assert wanted is not None
    if wanted.candidate_hash not in it.memory.refused:
        return None
    return Refuse(
        "CandidateRolledBack",
        f"Candidate {wanted.candidate_hash} was rolled back before and is not tried again by itself: give "
        "spec.rerun.reason a new text to measure anew",
    )


def it_saves_too_little(it: Situation) -> GateAnswer | None:
    """Only a configuration that was measured to keep the SLO is protected, and a person who names it knows better."""
    wanted, policy, saving = it.intent.wanted, it.intent.policy, it.intent.saving_percent
    assert wanted is not None
    named = policy.mode == "RequireApproval" and policy.approved_candidate == wanted.candidate_hash
    if it.intent.keeps_slo is not True or named or (saving is not None and saving >= policy.min_saving_percent):
        return None
    saved = "what it saves is not known" if saving is None else f"it saves {saving:.3g} %"
    return NothingToDo(
        "SavesTooLittle",
        f"Today's configuration keeps the SLO and candidate {wanted.candidate_hash} is not worth a change: {saved}, "
        f"spec.rollout.minSavingPercent is {policy.min_saving_percent}",
    )


def it_is_not_approved(it: Situation) -> GateAnswer | None:
    wanted, policy = it.intent.wanted, it.intent.policy
    assert wanted is not None
    if policy.mode != "RequireApproval" or policy.approved_candidate == wanted.candidate_hash:
        return None
    if policy.approved_candidate is None:
        return AwaitApproval(
            f"Set spec.rollout.approvedCandidate to {wanted.candidate_hash} to roll it out{_what_else(it)}",
        )
    return Refuse(
        "StaleApproval",
        f"spec.rollout.approvedCandidate is {policy.approved_candidate}, but {wanted.candidate_hash} is recommended "
        f"now: look at it, and approve that one{_what_else(it)}",
    )


def deployment_can_not_change(it: Situation) -> GateAnswer | None:
    serving = it.serving
    if serving.deleting:
        return Wait("DeploymentIsDeleted", f"Deployment {serving.name} is being deleted")
    if serving.paused:
        return Refuse("DeploymentPaused", f"Deployment {serving.name} is paused: kubectl rollout resume it")
    if serving.desired == 0:
        return NothingToDo("ScaledToZero", f"Deployment {serving.name} has 0 replicas: scale it up to serve")
    return None


def a_field_belongs_to_another(it: Situation) -> GateAnswer | None:
    """Asked before anything is drained: the API server would refuse the apply, and slotune never forces one."""
    wanted, serving = it.intent.wanted, it.serving
    assert wanted is not None
    needs_more = wanted.replicas is not None and wanted.replicas > serving.desired
    if serving.autoscaler == UNKNOWN_AUTOSCALER and needs_more:
        return Refuse(
            "FieldOwnedByOther",
            f"Candidate {wanted.candidate_hash} needs {_replicas(wanted.replicas)}, and slotune may not list "
            f"HorizontalPodAutoscalers: one may own spec.replicas of Deployment {serving.name}. Give slotune's role "
            f"list on horizontalpodautoscalers, or set replicas to {wanted.replicas} yourself",
        )
    if it.intent.owned:
        return None
    if serving.autoscaler is None and serving.replicas_owners and needs_more:
        return Refuse(
            "FieldOwnedByOther",
            f"Candidate {wanted.candidate_hash} needs {_replicas(wanted.replicas)}, and spec.replicas of Deployment "
            f"{serving.name} belongs to {serving.replicas_owners[0]}: set it to {wanted.replicas} there",
        )
    if it.intent.writes_args and serving.args_owners:
        return Refuse("FieldOwnedByOther", _hand_over(it, serving.args_owners))
    return None


def production_is_changing(it: Situation) -> GateAnswer | None:
    """What makes no progress is not waited for: the candidate may be its cure."""
    if it.serving.is_settled or it.serving.has_failed:
        return None
    return Wait("ProductionNotReady", _unready(it), it.now + _LOOK_AGAIN)


def it_would_not_end(it: Situation) -> GateAnswer | None:
    chosen = chosen_strategy(it)
    return Refuse(chosen.reason, chosen.message) if isinstance(chosen, Refusal) else None


GATES: Final[tuple[Callable[[Situation], GateAnswer | None], ...]] = (
    nothing_is_recommended,
    production_is_borrowed,
    it_is_suspended,
    it_serves_already,
    it_may_only_be_recommended,
    it_was_rolled_back,
    it_saves_too_little,
    it_is_not_approved,
    deployment_can_not_change,
    a_field_belongs_to_another,
    production_is_changing,
    it_would_not_end,
)


def closed_gate(it: Situation) -> GateAnswer | None:
    """What the first closed gate says; None: production may be touched."""
    return next((answer for gate in GATES if (answer := gate(it)) is not None), None)


def chosen_strategy(it: Situation) -> Choice | Refusal:
    """How the pods would be replaced."""
    return choose_strategy(
        it.serving,
        it.final_replicas,
        it.readings.capacity,
        owned=it.intent.owned,
        allow_downtime=it.intent.policy.allow_downtime,
    )


def apply_the_patch(it: Situation) -> str:
    """What is safe whoever owns a field: the owner makes the change."""
    name = None if it.intent.wanted is None else it.intent.wanted.patch_config_map
    patch = f"the patch in ConfigMap {name}" if name else "the recommended settings"
    return f"Set spec.rollout.mode to Recommend and put {patch} into the source of the Deployment"


def _what_else(it: Situation) -> str:
    """What would be refused once it is approved: nobody should have to ask twice."""
    answers = (gate(it) for gate in (deployment_can_not_change, a_field_belongs_to_another, it_would_not_end))
    refused = next((answer for answer in answers if isinstance(answer, Refuse)), None)
    return "" if refused is None else f". That alone is not enough ({refused.reason}): {refused.message}"


def _replicas(count: int | None) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def _unready(it: Situation) -> str:
    serving = it.serving
    return f"Deployment {serving.name} changes by itself: {serving.available} of {_replicas(serving.desired)} answer"


def _hand_over(it: Situation, owners: tuple[str, ...]) -> str:
    """The cure that never takes args away from production: where their owner would delete them on letting go, none."""
    said = (
        f"args of container {it.intent.container} in Deployment {it.serving.name} belong to {', '.join(owners)}, and "
        f"slotune takes nothing by force. {apply_the_patch(it)}"
    )
    if not it.serving.args_can_move:
        return said
    return (
        f"{said}. Or hand them over, in this order: first kubectl apply --server-side "
        f"--field-manager={ROLLOUT_MANAGER} a manifest with the name of the Deployment, the name of the container and "
        f"the args that run now, and nothing else; then take args out of what {' and '.join(owners)} applies, and "
        "apply that"
    )
