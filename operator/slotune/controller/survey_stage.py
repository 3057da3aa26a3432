"""The stage of a plan that gets to know the weights and the image, before any search."""

from __future__ import annotations

from slotune.api.labels import SANDBOX_MANAGER
from slotune.controller.actions import Apply, Create, Delete
from slotune.controller.backoff import failed_again, seconds_left
from slotune.controller.draft import Draft
from slotune.controller.flights import MOST_INTERRUPTIONS, POLL_S, owner_reference, patience_s
from slotune.controller.kinds import JOB
from slotune.controller.observed import Observed, Survey
from slotune.controller.reasons import Reason
from slotune.controller.survey_look import facts_config_map
from slotune.controller.trial_pods import signed, survey_server
from slotune.controller.understanding import Surveyed
from slotune.llama.model_facts import ModelFacts
from slotune.sandbox.job import ClientImage, network_policy
from slotune.sandbox.judgement import Blocked, Ended, Retry, Waiting
from slotune.sandbox.kept_template import UnusableTemplateError
from slotune.sandbox.survey_job import survey_job
from slotune.sandbox.survey_outcome import Surveyed as Found
from slotune.tuning.errors import InvalidInputError

__all__ = ["survey"]


def survey(draft: Draft, observed: Observed) -> bool:
    """Find out what the weights are. Whether it is known, so that the plan may go on."""
    look = observed.survey
    assert look is not None
    if look.surveyed is not None:
        if look.job is not None and not look.job.deleting:
            draft.do(Delete(JOB, observed.references.key[0], look.name, look.job.uid))
        return True
    if look.job is None:
        _start(draft, observed, look)
    else:
        _judge(draft, observed, look)
    return False


def _start(draft: Draft, observed: Observed, look: Survey) -> None:
    """Start the survey, unless it has just failed: then what it said stays said until the next try."""
    references = observed.references
    assert references.deployment is not None
    assert references.manifests is not None
    if (seconds := _seconds_to_wait(draft)) > 0:
        _at_work(draft, "The weights files could not be looked at.")
        draft.look_again(seconds)
        return
    namespace, name = references.key
    spec = references.deployment.spec
    try:
        job = survey_job(
            look.name,
            owner_reference(references.raw),
            namespace,
            references.template or {},
            survey_server(observed),
            models={variant.name: variant.path for variant in spec.models},
            digest=look.digest,
            gpu_class=references.manifests.gpu_classes[spec.gpu_classes[0].name],
            sandbox=spec.sandbox,
            client=ClientImage(observed.settings.trial_image, observed.settings.image_pull_policy),
        )
    except (UnusableTemplateError, InvalidInputError) as error:
        draft.unresolved(Reason.REFUSED, str(error))
        return
    uid = str(references.raw["metadata"]["uid"])
    draft.do(Apply(network_policy(name, namespace, uid, spec.sandbox), SANDBOX_MANAGER), Create(signed(job)))
    draft.look_again(POLL_S)
    _at_work(draft, "The weights files are looked at before anything is measured.")


def _judge(draft: Draft, observed: Observed, look: Survey) -> None:
    assert look.job is not None
    namespace, _ = observed.references.key
    end = Delete(JOB, namespace, look.name, look.job.uid)
    draft.look_again(patience_s(look.job, look.judgement, observed.now))
    match look.judgement:
        case Found() as found:
            problems = _problems(observed, found)
            if problems:
                _failed(draft, observed, Reason.MODEL_UNREADABLE, "; ".join(problems))
                draft.do(end)
                return
            models = {name: one for name, one in found.models.items() if isinstance(one, ModelFacts)}
            surveyed = Surveyed(models, found.build, found.image_id)
            draft.do(Apply(facts_config_map(observed.references, look, surveyed), SANDBOX_MANAGER))
            draft.set(failures=None)
            draft.working(Reason.PROGRESSING, "The weights files were looked at.")
            draft.look_again(0.5)
        case Blocked() as blocked:
            _failed(draft, observed, blocked.reason, blocked.message)
            if blocked.reason != "NoCapacity":
                draft.do(end)
        case Retry() as retry:
            _interrupted(draft, observed, retry)
            draft.do(end)
        case Waiting() as waiting:
            _at_work(draft, f"The weights files are looked at: {waiting.message}")
        case Ended() | None:  # a survey is never judged so; its Job is being deleted
            _at_work(draft, "The weights files are looked at again.")


def _interrupted(draft: Draft, observed: Observed, retry: Retry) -> None:
    """Tried again, each time after a longer wait; after many times in a row a person is asked."""
    failures = failed_again(draft.status.failures, retry.reason, observed.now)
    if failures.count < MOST_INTERRUPTIONS:
        draft.set(failures=failures)
        _at_work(draft, f"The weights files are looked at again: {retry.message}")
        draft.look_again(max(POLL_S, seconds_left(failures, observed.now)))
        return
    words = f"{retry.message} That was {failures.count} times in a row: find out what interrupts pods on these nodes."
    _failed(draft, observed, retry.reason, words)


def _seconds_to_wait(draft: Draft) -> float:
    """Also after an interruption, of which no condition tells."""
    if draft.references.status.condition("Stalled") is None:
        return seconds_left(draft.status.failures, draft.now)
    return draft.seconds_to_wait


def _at_work(draft: Draft, message: str) -> None:
    """A new try does not yet mean that what stood in the way is gone: until it has ended, that stays said."""
    known = draft.references.status.condition("Stalled")
    if draft.status.failures is None or known is None or known.observed_generation != draft.generation:
        draft.working(Reason.PROGRESSING, message)
        draft.phase("Pending")
    else:
        draft.unresolved(known.reason, known.message)


def _failed(draft: Draft, observed: Observed, reason: str, message: str) -> None:
    failures = failed_again(draft.status.failures, reason, observed.now)
    draft.set(failures=failures)
    draft.unresolved(reason, message)
    draft.look_again(max(POLL_S, seconds_left(failures, observed.now)))


def _problems(observed: Observed, found: Found) -> list[str]:
    """What is wrong with each file, at the field that names it."""
    assert observed.references.deployment is not None
    return [
        f"spec.models[{index}].path is {variant.path}: {one.message}"
        for index, variant in enumerate(observed.references.deployment.spec.models)
        if (one := found.models.get(variant.name)) is not None and not isinstance(one, ModelFacts)
    ]
