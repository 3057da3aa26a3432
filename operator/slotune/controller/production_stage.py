"""The stage of a plan that says what production delivers, beside what was measured.

It comes last in every plan, whatever stood in the way of the others: who suspends tuning still has users. Without
``observe.prometheus`` nothing is looked at and nothing is asked.
"""

from __future__ import annotations

from datetime import datetime

from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import LlamaDeploymentStatus, Measured
from slotune.controller.cluster import Object
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.reasons import ConditionType
from slotune.controller.serving_story import Serving
from slotune.production.watch import next_look, observe, worth_saving
from slotune.rollout.facts import Serving as Facts
from slotune.tuning.trial_objects import candidate_hash

__all__ = ["production_of", "watch_production"]


def production_of(observed: Observed) -> Object | None:
    """The Deployment that serves this LlamaDeployment's users; None where there is none, or it is another's."""
    references, found = observed.references, observed.serving
    if references.deployment is None or references.rival is not None or found is None:
        return None
    if references.deployment.spec.template is None:
        return found
    owners = found["metadata"].get("ownerReferences") or ()
    return found if any(owner.get("uid") == references.raw["metadata"]["uid"] for owner in owners) else None


def watch_production(draft: Draft, observed: Observed, serving: Serving | None = None) -> None:
    """Lay the last look at Prometheus over the status, and say when the next one is due.

    ``serving``: what serves, as a search knows it; None: what the status remembers of it.
    """
    deployment = observed.references.deployment
    if deployment is None:  # nobody can say where to look
        return
    prometheus = deployment.spec.observe.prometheus
    production = production_of(observed)
    if prometheus is None or production is None:  # a Deployment that comes brings about another look
        draft.set(production=None)
        return
    interval_s = float(parse_duration(prometheus.interval))
    previous = observed.watched or draft.status.production
    if observed.production is not None:
        runs = _remembered(draft.status, production) if serving is None else candidate_hash(serving.candidate)
        seen = observe(
            observed.production,
            deployment.spec.slo,
            previous,
            now=observed.now,
            interval_s=interval_s,
            measured=_measured(draft.status, runs),
        )
        if worth_saving(draft.status.production, seen):
            draft.set(production=seen)
        previous = seen
    if observed.is_asking:
        return
    draft.look_again((next_look(previous, interval_s, now=observed.now) - observed.now).total_seconds())


def _measured(status: LlamaDeploymentStatus, runs: str | None) -> Measured | None:
    """What the configuration that serves showed in its trial; None when it had none."""
    for known in (status.recommendation, status.baseline):
        if known is not None and known.candidate_hash == runs:
            return known.measured
    return None


def _remembered(status: LlamaDeploymentStatus, production: Object) -> str | None:
    """Hash of the candidate that production runs: the one that was rolled out, or the baseline as it was measured.

    None where somebody may have changed the pods since then, or they are being replaced.
    """
    facts = Facts.from_deployment(production, "")
    if not facts.is_settled or facts.available == 0:
        return None
    applied, baseline = status.applied, status.baseline
    if facts.candidate is not None:
        return facts.candidate if applied is not None and applied.template_digest == facts.template_digest else None
    measured = status.condition(ConditionType.BASELINE_MEASURED)
    if baseline is None or measured is None or measured.status != "True" or facts.written_at is None:
        return None
    is_since = facts.written_at <= datetime.fromisoformat(measured.last_transition_time)
    return baseline.candidate_hash if is_since else None
