"""The stage of a plan that brings the answer to production, and keeps the recommendation ready to be applied.

What to do next is decided in :mod:`slotune.rollout`, from the status as it is stored: an answer is written down before
anything acts on it. Here a step becomes actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from slotune.api.kubernetes_types import Condition
from slotune.api.labels import ROLLOUT_MANAGER
from slotune.api.v1alpha1 import LlamaDeployment
from slotune.controller.actions import Apply as ApplyManifest
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.reasons import ConditionType
from slotune.controller.references import References
from slotune.controller.rollout_manifests import (
    fits,
    lost_record,
    patch_config_map,
    rollout_manifest,
    source_digest,
    wanted_candidate,
    wanted_change,
)
from slotune.controller.rollout_story import RolloutNews, news_of, not_written_yet, nothing_planned, pods_change
from slotune.controller.search_stage import Search
from slotune.controller.serving_story import Serving as Served
from slotune.controller.serving_story import keeps_promise, serving_of
from slotune.controller.understanding import Understood
from slotune.production.verification import Decision as Judged
from slotune.production.verification import judge_counts
from slotune.rollout.facts import Readings, Serving
from slotune.rollout.intent import Intent
from slotune.rollout.last_good import template_record
from slotune.rollout.memory import Memory
from slotune.rollout.planner import is_open, is_under_way, plan_rollout
from slotune.rollout.steps import (
    Apply,
    Done,
    Drain,
    Refuse,
    RollBack,
    RolloutStep,
    Verify,
    Wait,
    WriteAhead,
)
from slotune.search.decision import Decision
from slotune.search.problem import Problem

__all__ = [
    "carry_on",
    "go_on",
    "may_carry_on",
    "next_rollout_step",
    "roll_out",
    "stands",
]

T = ConditionType

AT_ONCE_S = 0.5
SOON_S = 2.0


def next_rollout_step(
    references: References,
    understood: Understood | None,
    serving: Object | None,
    *,
    autoscalers: Sequence[Object] | None,
    readings: Readings,
    now: datetime,
    stands: bool = False,
    keeps_slo: bool | None = None,
) -> RolloutStep | None:
    """What the rollout does next; None while no answer of this search is stored in the status.

    What is under way is judged and, where it fails, taken back also then: nothing new is wanted meanwhile.

    Args:
        understood: None when the server or what the spec names is not understood now.
        stands: an answer to the question of before counts too.
        keeps_slo: whether what the Deployment holds was measured to keep the SLO; None: as the status says. The status
            speaks of what answers, so it knows nothing while a pod is missing.
    """
    deployment, status = references.deployment, references.status
    assert deployment is not None
    change = None
    if understood is not None and _counts(references, understood, stands=stands):
        change = wanted_change(understood, wanted_candidate(references))
    elif not is_open(Memory.from_status(status)):
        return None
    slo_met, container = status.condition(T.SLO_MET), _container(deployment, understood, serving)
    counted = status if change is not None else status.model_copy(update={"recommendation": None})
    intent = Intent.from_deployment(
        deployment.model_copy(update={"status": counted}),
        container,
        keeps_slo=_said_to_keep(slo_met) if keeps_slo is None else keeps_slo,
        writes_args=change is not None and change.writes_args,
        source=None if change is None else source_digest(deployment, references, change),
    )
    facts = None if serving is None else Serving.from_deployment(serving, container, autoscalers)

    def judge(
        kept: int, missed: int, inconclusive: int
    ) -> tuple[Literal["Success", "Failure", "Inconclusive", "Continue"], str]:
        judgement = judge_counts(deployment.spec.rollout.verify, kept=kept, missed=missed, inconclusive=inconclusive)
        return _JUDGED[judgement.decision], judgement.reason

    return plan_rollout(intent, facts, Memory.from_status(status), readings, now, judge=judge)


def _said_to_keep(slo_met: Condition | None) -> bool | None:
    return None if slo_met is None else {"True": True, "False": False}.get(slo_met.status)


def _counts(references: References, understood: Understood, *, stands: bool) -> bool:
    """Whether the stored answer is one to the question of now, and one that the server of now can be made to run: what
    slotune does not tune may be other flags by then."""
    status = references.status
    if status.recommendation is None or status.progress is None:
        return False
    if not stands and status.progress.inputs != understood.inputs:
        return False
    return fits(understood, wanted_candidate(references))


def _container(deployment: LlamaDeployment, understood: Understood | None, serving: Object | None) -> str:
    """Name of llama-server's container, for messages and for what is remembered of its arguments."""
    if understood is not None:
        return understood.manifests.container.name
    names = [] if serving is None else [str(one["name"]) for one in serving["spec"]["template"]["spec"]["containers"]]
    return deployment.spec.container or next(iter(names), "")


_JUDGED: dict[Judged, Literal["Success", "Failure", "Inconclusive", "Continue"]] = {
    Judged.SUCCESS: "Success",
    Judged.FAILURE: "Failure",
    Judged.INCONCLUSIVE: "Inconclusive",
    Judged.CONTINUE: "Continue",
}


def stands(observed: Observed) -> bool:
    """Whether the stored answer stays although the question has changed, and may go to production: what is under way
    there is brought to its end in any case."""
    verdict = observed.retuning
    return bool(verdict.stays) and (
        not verdict.is_stale or is_under_way(Memory.from_status(observed.references.status))
    )


def carry_on(draft: Draft, observed: Observed, understood: Understood | None = None) -> RolloutNews | None:
    """Go on with what is under way where no new answer can be had: what was begun is judged, and goes back if it fails.
    No news: nothing is under way, or it is no longer slotune's to change."""
    references = observed.references
    if draft.changes_pods:
        return pods_change(draft.changes_pods)
    if not may_carry_on(observed):
        return None
    step = next_rollout_step(
        references,
        understood,
        observed.serving,
        autoscalers=observed.autoscalers,
        readings=observed.readings,
        now=observed.now,
        stands=stands(observed),
    )
    if step is None:
        return None
    if isinstance(step, RollBack) and (lost := lost_record(observed, step)):
        step = Refuse("LastGoodLost", lost)
    _take(draft, observed, understood, step)
    return news_of(step, references.status)


def may_carry_on(observed: Observed) -> bool:
    """Whether a rollout has no end yet, and production is slotune's to change although its question can't be asked."""
    references, serving = observed.references, observed.serving
    deployment = references.deployment
    if deployment is None or deployment.spec.suspend or references.rival is not None or serving is None:
        return False
    owners = serving["metadata"].get("ownerReferences") or ()
    is_ours = any(owner.get("uid") == references.raw["metadata"]["uid"] for owner in owners)
    is_named = references.target is not None or (deployment.spec.template is not None and is_ours)
    return is_named and is_open(Memory.from_status(references.status))


def go_on(draft: Draft, observed: Observed, understood: Understood) -> tuple[Served | None, RolloutNews | None]:
    """As :func:`roll_out`, for an answer that stays although the question has changed. No news: nothing is done."""
    serving = _what_serves(observed, understood, understood.space, None)
    _keep_the_patch_that_stays(draft, observed, understood)
    if draft.changes_pods:
        return None, pods_change(draft.changes_pods)
    step = None
    if stands(observed):
        step = next_rollout_step(
            observed.references,
            understood,
            observed.serving,
            autoscalers=observed.autoscalers,
            readings=observed.readings,
            now=observed.now,
            stands=True,
        )
    if step is None:
        deployment = observed.references.deployment
        only = deployment is not None and deployment.spec.rollout.mode == "Recommend"
        return serving, nothing_planned(observed.references.status, only_recommends=only)
    if isinstance(step, RollBack) and (lost := lost_record(observed, step)):
        step = Refuse("LastGoodLost", lost)
    _take(draft, observed, understood, step)
    return serving, news_of(step, observed.references.status)


def roll_out(
    draft: Draft, observed: Observed, understood: Understood, state: Search
) -> tuple[Served | None, RolloutNews | None]:
    """What serves production, and where the way to it stands. None: only a recommendation is asked for."""
    serving = _what_serves(observed, understood, state.problem, state.decision)
    if state.decision is None or state.decision.choice is None:
        return serving, carry_on(draft, observed, understood)
    references = observed.references
    assert references.deployment is not None
    _keep_the_patch(draft, observed, understood, state)
    if draft.changes_pods:
        return None, pods_change(draft.changes_pods)

    def step_from(references: References) -> RolloutStep | None:
        return next_rollout_step(
            references,
            understood,
            observed.serving,
            autoscalers=observed.autoscalers,
            readings=observed.readings,
            now=observed.now,
            keeps_slo=keeps_promise(state.problem, state.results, _what_is_there(observed, state)),
        )

    step = step_from(references)
    if step is None:
        draft.look_again(AT_ONCE_S)
        then = step_from(replace(references, status=draft.status))
        if references.deployment.spec.rollout.mode == "Recommend" and not isinstance(then, Done):
            return serving, None
        return serving, not_written_yet(then, references.status)
    if isinstance(step, RollBack) and (lost := lost_record(observed, step)):
        step = Refuse("LastGoodLost", lost)
    _take(draft, observed, understood, step)
    return serving, news_of(step, references.status)


def _take(draft: Draft, observed: Observed, understood: Understood | None, step: RolloutStep) -> None:
    """The step as actions."""
    owned = observed.references.target is None
    match step:
        case WriteAhead():
            if step.record_template and observed.serving is not None:
                assert observed.references.deployment is not None
                record = template_record(observed.references.deployment, observed.serving["spec"]["template"])
                draft.do(ApplyManifest(record, ROLLOUT_MANAGER))
            draft.set(**step.memory.for_rollout())
            draft.look_again(AT_ONCE_S)
        case Apply() | RollBack():
            manifest = rollout_manifest(observed, understood, step)
            draft.do(ApplyManifest(manifest, ROLLOUT_MANAGER, force=owned))
            draft.look_again(SOON_S)
        case Drain() | Verify():
            draft.look_again((step.next_look - observed.now).total_seconds())
        case Wait(until=until) if until is not None:
            draft.look_again((until - observed.now).total_seconds())


def _what_is_there(observed: Observed, state: Search) -> Served | None:
    """The candidate that the Deployment holds at its replicas, whether its pods answer now or not."""
    if observed.serving is None:
        return None
    facts = Serving.from_deployment(observed.serving, "", observed.autoscalers)
    return serving_of(state.problem, state.decision, facts.candidate, facts.desired)


def _what_serves(
    observed: Observed, understood: Understood, problem: Problem, decision: Decision | None
) -> Served | None:
    """The candidate that serves now at its replicas; None while pods are being replaced, or nobody knows.

    The mark on the pods says which candidate slotune brought; that they are still what it is made of is compared.
    """
    if observed.serving is None:
        return None
    facts = Serving.from_deployment(observed.serving, "", observed.autoscalers)
    if not facts.is_settled or facts.available == 0:
        return None
    kept, is_target = observed.kept, observed.references.target is not None
    if not is_target and (kept is None or kept.source != facts.source or observed.lost or facts.strangers):
        return None
    serves = serving_of(problem, decision, facts.candidate, facts.desired)
    if serves is None or not is_target:
        return serves
    stated = replace(understood.written.candidate, gpu_class=serves.candidate.gpu_class)
    return serves if stated == serves.candidate else None


def _keep_the_patch(draft: Draft, observed: Observed, understood: Understood, state: Search) -> None:
    """The ConfigMap with a ready Kustomize component, made when the answer is another or the ConfigMap is gone."""
    assert state.decision is not None
    recommendation = draft.status.recommendation
    if (
        recommendation is not None
        and recommendation == observed.references.status.recommendation
        and observed.has_patch
    ):
        return
    choice, reasons = state.decision.choice, [f"slotune: {state.decision.reason}", *state.decision.proved[:2]]
    assert choice is not None
    manifest = patch_config_map(observed, understood, choice.candidate, choice.replicas, reasons)
    draft.do(ApplyManifest(manifest, ROLLOUT_MANAGER))


def _keep_the_patch_that_stays(draft: Draft, observed: Observed, understood: Understood) -> None:
    """The same of an answer that stays although the server is another one, where that can be made to run it."""
    references, recommendation = observed.references, observed.references.status.recommendation
    if recommendation is None or observed.has_patch or not fits(understood, wanted_candidate(references)):
        return
    completed = references.status.condition(T.SEARCH_COMPLETED)
    reasons = [f"slotune: {completed.message}"] if completed is not None else []
    manifest = patch_config_map(
        observed,
        understood,
        wanted_candidate(references),
        recommendation.replicas,
        [*reasons, *recommendation.proved[:2]],
    )
    draft.do(ApplyManifest(manifest, ROLLOUT_MANAGER))
