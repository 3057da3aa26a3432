"""What may be said of production where a look can't judge it: what was said before, as long as the same pods serve.

SLOMet speaks of a pod template, and the status remembers which (``servingTemplateDigest``). While something stands in
the way of a search nobody measures, so all that can be seen is whether that template still serves.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from slotune.controller.conditions import Claim
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.production_stage import production_of
from slotune.controller.reasons import ConditionType, Reason
from slotune.controller.rollout_story import ENDED
from slotune.report.figures import plural, sentence
from slotune.report.redaction import said_in_public
from slotune.rollout.facts import Serving
from slotune.rollout.memory import Memory, span
from slotune.rollout.planner import is_under_way

__all__ = ["doubt", "left_behind", "production_is_down", "remember", "why_unknown"]

T: Final = ConditionType


def remember(draft: Draft, observed: Observed) -> None:
    """Write down of which pod template SLOMet speaks, as it is claimed now."""
    met, facts = draft.claimed(T.SLO_MET), _facts(observed)
    speaks = met is not None and met.status != "Unknown" and met.reason != Reason.INFEASIBLE
    draft.set(serving_template_digest=facts.template_digest if speaks and facts is not None else None)


def doubt(draft: Draft, observed: Observed, *, in_the_way: bool = True) -> None:
    """Take back what was said before of production, of what is not claimed anew and need not be so any more.

    ``in_the_way``: whether something keeps slotune from looking at an answer at all.
    """
    status, facts = draft.references.status, _facts(observed)
    met, rolled_out = status.condition(T.SLO_MET), status.condition(T.ROLLED_OUT)
    serves = facts.template_digest if facts is not None and facts.available > 0 else None
    # Why nothing is known may be another reason by now.
    speaks = met is not None and (met.status != "Unknown" or met.reason == Reason.NOT_MEASURED)
    speaks = speaks and met is not None and met.reason != Reason.INFEASIBLE
    if speaks and draft.claimed(T.SLO_MET) is None and (serves is None or serves != status.serving_template_digest):
        words = why_unknown(observed) or "The pods were changed since what serves was measured"
        draft.claim(Claim.unknown(T.SLO_MET, Reason.NOT_MEASURED, words))
        draft.set(serving_template_digest=None)
    if draft.claimed(T.ROLLED_OUT) is not None:
        return
    applied = None if status.applied is None else status.applied.template_digest
    if rolled_out is not None and rolled_out.status == "True":
        if serves is None or serves not in {status.serving_template_digest, applied}:
            words = why_unknown(observed) or "The pods were changed since the answer was found to serve"
            draft.claim(Claim.unknown(T.ROLLED_OUT, Reason.PENDING, words))
    elif in_the_way and (rolled_out is None or rolled_out.reason not in ENDED):
        ready = draft.claimed(T.READY)
        if ready is not None and ready.reason == Reason.SUSPENDED:
            draft.claim(Claim.false(T.ROLLED_OUT, Reason.SUSPENDED, ready.message))
        else:
            words = "Nothing is rolled out before what stands in the way is cured"
            draft.claim(Claim.unknown(T.ROLLED_OUT, Reason.PENDING, words))


def why_unknown(observed: Observed) -> str:
    """Why nobody can say what serves, or what was measured of it, as a sentence; empty where nothing is in the way."""
    facts = _facts(observed)
    if observed.references.deployment is None:
        return "The spec is not valid, so nobody looks at what serves"
    if facts is None:
        return "Nothing serves: there is no Deployment"
    if facts.available == 0:
        return f"Nothing serves: {_unavailable(facts)}"
    if observed.lost or (facts.strangers and _is_owned(observed)):
        who = ", ".join(facts.strangers) or "somebody"
        return f"Deployment {facts.name} was changed by {who}, so what serves was not measured"
    if not facts.is_settled:
        return f"Pods are being replaced: {facts.available} of {facts.desired} answer"
    return left_behind(observed)


def left_behind(observed: Observed) -> str:
    """That spec.template is not what serves, as a sentence; empty where it is, or where it is not slotune's."""
    facts, kept = _facts(observed), observed.kept
    if facts is None or not _is_owned(observed) or (kept is not None and kept.source == facts.source):
        return ""
    memory = Memory.from_status(observed.references.status)
    if kept is None:
        why = f"candidate {facts.candidate} can't be had from it, and serves on as it was until there is an answer"
    elif memory.restore is not None:
        why = "production's GPU is lent to a trial, and it follows once that is given back"
    elif is_under_way(memory):
        why = "it follows the rollout that is under way"
    else:
        why = "production gets it now"
    return f"spec.template is not what serves: {why}"


def production_is_down(draft: Draft, observed: Observed) -> None:
    """Where everything else is done: an owned Deployment that answers nobody is not."""
    ready, facts, deployment = draft.claimed(T.READY), _facts(observed), observed.references.deployment
    if ready is None or ready.status != "True" or facts is None or deployment is None or not _is_owned(observed):
        return
    if facts.available > 0 or facts.desired == 0 or draft.status.restore is not None:
        return
    words = f"Production does not answer: {_unavailable(facts)}"
    known = draft.references.status.condition(T.READY)
    since = observed.now
    if known is not None and known.reason == Reason.PRODUCTION_NOT_READY:
        since = datetime.fromisoformat(known.last_transition_time)
    late = since + span(deployment.spec.rollout.progress_deadline)
    if facts.trouble or observed.now >= late:
        draft.stalled(Reason.PRODUCTION_NOT_READY, words)
        draft.phase("Failed")
    else:
        draft.working(Reason.PRODUCTION_NOT_READY, words)
        draft.look_again((late - observed.now).total_seconds())


def _facts(observed: Observed) -> Serving | None:
    production = production_of(observed)
    return None if production is None else Serving.from_deployment(production, "", observed.autoscalers)


def _is_owned(observed: Observed) -> bool:
    deployment = observed.references.deployment
    return deployment is not None and deployment.spec.template is not None


def _unavailable(facts: Serving) -> str:
    if facts.desired == 0:
        return f"Deployment {facts.name} has 0 replicas"
    trouble = f". {sentence(said_in_public(facts.trouble))}" if facts.trouble else ""
    return f"{facts.available} of {plural(facts.desired, 'pod')} of Deployment {facts.name} answer{trouble}"
