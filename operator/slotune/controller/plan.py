"""From one look to what is to be done: the whole of it is this chain, each stage named after what it finds out.

Pure. Asked twice about the same look it says the same, so it does not matter which process asks, nor how often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slotune import __version__
from slotune.api.v1alpha1.candidate import Environment
from slotune.controller.actions import Delete
from slotune.controller.borrow_stage import borrow, unknown_time_zone
from slotune.controller.children import recommendation_name
from slotune.controller.cluster import Object
from slotune.controller.conditions import Claim, timestamp
from slotune.controller.defaults import defaults_of
from slotune.controller.draft import Draft, Plan
from slotune.controller.events import EventNote
from slotune.controller.flights import POLL_S, stopped
from slotune.controller.kinds import JOB
from slotune.controller.observed import Observed
from slotune.controller.production_stage import production_of, watch_production
from slotune.controller.reasons import ConditionType, Reason
from slotune.controller.rollout_stage import AT_ONCE_S, carry_on, go_on, roll_out
from slotune.controller.search_stage import Search, search
from slotune.controller.serving_doubt import doubt, left_behind, production_is_down, remember, why_unknown
from slotune.controller.serving_stage import serve
from slotune.controller.status_answer import (
    baseline_configuration,
    binding_of,
    nearest_of,
    recommendation_of,
    rejected_of,
)
from slotune.controller.status_story import kept_claims, phase_of, search_claims
from slotune.controller.survey_stage import survey
from slotune.controller.understanding import NotUnderstood, Understood
from slotune.sandbox.kept_template import UnusableTemplateError, kept_of

__all__ = ["MISSING_S", "make_plan"]

MOST_NOTES = 5
"""Of what a trial leaves out; a condition has no room for more."""


MISSING_S = 120.0
"""Between two looks for what the spec names and is not there."""


def make_plan(observed: Observed) -> Plan:
    """What is to be done now."""
    draft = Draft(observed.references, observed.now)
    _decide(draft, observed)
    return draft.close()


def _decide(draft: Draft, observed: Observed) -> None:
    """The first stage that finds something in the way has the last word; otherwise there is a search."""
    if any(stage(draft, observed) for stage in _IN_THE_WAY):
        if (news := carry_on(draft, observed)) is not None:
            draft.claim(news.claim)
        doubt(draft, observed)
        borrow(draft, observed)
        watch_production(draft, observed)
        return
    assert isinstance(observed.understood, Understood)
    _search_and_roll_out(draft, observed, observed.understood)


def _invalid(draft: Draft, observed: Observed) -> bool:
    references = observed.references
    if references.deployment is not None:
        return False
    cure = f". Apply the CRDs of slotune {__version__}, or run the slotune that the spec was written for."
    reason = Reason.VERSION_SKEW if references.is_foreign else Reason.INVALID_SPEC
    draft.unresolved(reason, "; ".join(references.invalid) + (cure if references.is_foreign else ""))
    return True


def _suspended(draft: Draft, observed: Observed) -> bool:
    """Nothing is started, what runs is ended, production stays as it is. What was known before stays said."""
    deployment = observed.references.deployment
    assert deployment is not None
    if not deployment.spec.suspend:
        return False
    message = "spec.suspend is true: nothing is started, production stays as it is."
    if deployment.spec.template is not None and production_of(observed) is None:
        message = "spec.suspend is true: nothing is started, and nothing serves. Set it to false to have spec.template "
        message += "served."
    _stop_trials(draft, observed, Reason.SUSPENDED, message)
    draft.claim(
        Claim.false(ConditionType.RECONCILING, Reason.SUSPENDED),
        Claim.false(ConditionType.STALLED, Reason.SUSPENDED),
        Claim.false(ConditionType.READY, Reason.SUSPENDED, message),
    )
    draft.phase("Suspended")
    return True


def _rivalled(draft: Draft, observed: Observed) -> bool:
    references = observed.references
    if references.rival is None:
        return False
    assert references.target is not None or references.missing
    name = references.raw["spec"]["targetRef"]["name"]
    _stand_still(
        draft,
        observed,
        Reason.TARGET_CONFLICT,
        f"spec.targetRef.name is {name}: LlamaDeployment {references.rival} is older and has it already. Delete one of "
        "the two, or name another Deployment.",
    )
    return True


def _not_served(draft: Draft, observed: Observed) -> bool:
    if serve(draft, observed):
        return False
    stalled = draft.claimed(ConditionType.STALLED)
    if stalled is not None and stalled.reason == Reason.TARGET_CONFLICT:
        draft.look_again(MISSING_S)  # what others made is not followed
    return True


def _missing(draft: Draft, observed: Observed) -> bool:
    if not observed.references.missing:
        return False
    _stand_still(draft, observed, Reason.REFERENCE_NOT_FOUND, "; ".join(observed.references.missing))
    draft.look_again(MISSING_S)  # no watch tells when a ConfigMap or a Secret comes
    return True


def _name_taken(draft: Draft, observed: Observed) -> bool:
    """Before anything is measured for an answer that could not be written down."""
    if observed.taken is None:
        return False
    words = f"metadata.name is {observed.references.key[1]}: {observed.taken}."
    if observed.taken.goes:
        _stop_trials(draft, observed, Reason.PROGRESSING, words)
        draft.working(Reason.PROGRESSING, words)
        draft.phase("Pending")
        draft.look_again(POLL_S)
        return True
    _stand_still(draft, observed, Reason.TARGET_CONFLICT, words)
    draft.look_again(MISSING_S)  # no watch tells when it goes
    return True


def _not_understood(draft: Draft, observed: Observed) -> bool:
    if not isinstance(observed.understood, NotUnderstood):
        return False
    draft.set(failures=None)  # what failed before was another question, and must not be said of the next one
    _stand_still(draft, observed, observed.understood.reason, observed.understood.message)
    if observed.references.rests_on_unwatched:
        draft.look_again(MISSING_S)
    return True


def _not_surveyed(draft: Draft, observed: Observed) -> bool:
    return not survey(draft, observed)


_IN_THE_WAY: Final[tuple[Callable[[Draft, Observed], bool], ...]] = (
    _invalid,
    _suspended,
    _rivalled,
    unknown_time_zone,
    _not_served,
    _missing,
    _name_taken,
    _not_understood,
    _not_surveyed,
)
"""In this order: what a person decided before what is so, what costs nothing before what takes a pod."""


def _keep_the_answer(draft: Draft, observed: Observed, understood: Understood) -> None:
    """The answer of before stays, although the question is another one by now or is about to be asked again."""
    verdict = observed.retuning
    words = f"{verdict.stays}. " if verdict.stays else ""
    read = _what_was_read(observed, understood)
    draft.claim(Claim.true(ConditionType.TARGET_RESOLVED, Reason.RESOLVED, words + read))
    borrow(draft, observed)
    if verdict.begins:
        draft.set(search_epoch=draft.stamp)
        about = draft.stamp
        draft.note(
            [EventNote("Normal", "SearchingAgain", "Search", f"{verdict.begins}: the answer is looked for", about)]
        )
        draft.look_again(AT_ONCE_S)
    serving, news = go_on(draft, observed, understood)
    claims, phase = kept_claims(observed.references.status, news)
    draft.claim(*claims)
    draft.phase(phase)
    doubt(draft, observed, in_the_way=False)
    production_is_down(draft, observed)
    watch_production(draft, observed, serving)


def _search_and_roll_out(draft: Draft, observed: Observed, understood: Understood) -> None:
    references, due = observed.references, observed.retuning.due
    assert references.deployment is not None
    draft.set(
        next_search_time=None if due is None else timestamp(due),
        defaults=defaults_of(references.deployment.spec, references.raw["spec"], understood.manifests.container.name),
    )
    if due is not None:
        draft.look_again((due - observed.now).total_seconds())
    if observed.retuning.stays or observed.retuning.begins:
        _keep_the_answer(draft, observed, understood)
        return
    read = _what_was_read(observed, understood)
    draft.claim(Claim.true(ConditionType.TARGET_RESOLVED, Reason.RESOLVED, read))
    state = search(draft, observed, understood)
    blocked = borrow(draft, observed, state.asked) or state.blocked
    _tell_the_answer(draft, understood, state)
    serving, news = roll_out(draft, observed, understood, state)
    draft.claim(
        *search_claims(
            state.problem,
            state.decision,
            state.results,
            purpose=state.purpose,
            doing=state.doing,
            serving=serving,
            rollout=news,
            why_unknown=why_unknown(observed),
        )
    )
    remember(draft, observed)
    draft.phase(phase_of(state.decision, purpose=state.purpose, rollout=news))
    if blocked is not None:
        draft.stalled(blocked.reason, blocked.message)
        draft.phase("Failed")
    production_is_down(draft, observed)
    watch_production(draft, observed, serving)
    if state.decision is not None and _is_new(observed):
        draft.look_again(AT_ONCE_S)  # when it is next is said once this is stored


def _is_new(observed: Observed) -> bool:
    completed = observed.references.status.condition(ConditionType.SEARCH_COMPLETED)
    return completed is None or completed.status != "True"


def _tell_the_answer(draft: Draft, understood: Understood, state: Search) -> None:
    """The answer and what is behind it; while a search runs, what an earlier one found is taken back only when the
    question has changed."""
    problem, decision = state.problem, state.decision
    draft.set(
        baseline=baseline_configuration(problem, decision, state.results, trials=state.names),
        environment=_environment(understood, state),
    )
    if decision is None:
        before = draft.references.status.progress
        if before is None or before.inputs != understood.inputs:
            draft.set(recommendation=None, binding_constraint=None, nearest=None, rejected=())
        return
    args = [] if decision.choice is None else understood.baseline.flags_for(decision.choice.candidate)
    draft.set(
        recommendation=recommendation_of(
            problem,
            decision,
            args=args,
            trials=state.names,
            patch_config_map=None if decision.choice is None else recommendation_name(problem.name),
        ),
        binding_constraint=binding_of(problem, decision, state.results),
        nearest=nearest_of(problem, decision, trials=state.names),
        rejected=rejected_of(problem, decision),
    )


def _what_was_read(observed: Observed, understood: Understood) -> str:
    """What a reader of the user's server should know, and what of its pod no trial has."""
    baseline, problem = understood.baseline, understood.space
    words = f"llama-server in container {understood.manifests.container.name}, {baseline.candidate.variant} on "
    words += f"{baseline.candidate.gpu_class}; {len(problem.candidates) + len(problem.pruned):,} candidates"
    left_out = _left_out(understood, observed.references.template)
    behind = () if (said := left_behind(observed)) == "" else (said,)
    return " ".join(
        text if text.endswith((".", "?", "!")) else f"{text}."
        for text in (words, *behind, *understood.reading.notes, *observed.lost_names, *left_out)
    )


def _left_out(understood: Understood, template: Object | None) -> tuple[str, ...]:
    """What a trial leaves out of the user's pod, as a few sentences."""
    baseline = understood.baseline
    try:
        kept = kept_of(template or {}, understood.manifests.container.name, baseline.flags_for(baseline.candidate))
    except UnusableTemplateError:  # said where a trial is made
        return ()
    more = len(kept.notes) - MOST_NOTES
    return (*kept.notes[:MOST_NOTES], *([f"{more} more parts of the pod are not in a trial"] if more > 0 else []))


def _environment(understood: Understood, state: Search) -> Environment:
    """What the measurements are true for."""
    build = understood.surveyed.build
    return Environment(
        engine=None if build is None else f"b{build}",
        image=understood.manifests.container.image,
        models={name: facts.identity for name, facts in understood.surveyed.models.items()},
        workload_digest=state.problem.demand.identity or None,
        slotune=__version__,
    )


def _stand_still(draft: Draft, observed: Observed, reason: str, message: str) -> None:
    """Say what is in the way, and measure nothing meanwhile."""
    _stop_trials(draft, observed, reason, message)
    draft.unresolved(reason, message)


def _stop_trials(draft: Draft, observed: Observed, reason: str, message: str) -> None:
    """End the Jobs of trials under way; the trials stay, and go on when they are asked again."""
    namespace, _ = observed.references.key
    for flight in observed.trials.flights:
        if ends := stopped(flight, reason, message, observed.now):
            draft.do(*ends)
            draft.look_again(POLL_S)
    for job in observed.trials.leftovers:
        if not job.deleting:
            draft.do(Delete(JOB, namespace, job.name, job.uid))
            draft.look_again(POLL_S)
    if observed.survey is not None and observed.survey.job is not None and not observed.survey.job.deleting:
        draft.do(Delete(JOB, namespace, observed.survey.job.name, observed.survey.job.uid))
