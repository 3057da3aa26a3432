"""The stage of a plan that says what production delivers, beside what was measured."""

from __future__ import annotations

from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import Measured
from slotune.controller.draft import Draft
from slotune.controller.observed import Observed
from slotune.controller.serving_story import Serving
from slotune.production.watch import next_look, observe, worth_saving
from slotune.tuning.trial_objects import candidate_hash

__all__ = ["watch_production"]


def watch_production(draft: Draft, observed: Observed, serving: Serving | None) -> None:
    """Lay the last look at Prometheus over the status, and say when the next one is due."""
    deployment = observed.references.deployment
    assert deployment is not None
    prometheus = deployment.spec.observe.prometheus
    if prometheus is None:
        draft.set(production=None)
        return
    interval_s = float(parse_duration(prometheus.interval))
    previous = observed.watched or draft.status.production
    if observed.production is not None:
        seen = observe(
            observed.production,
            deployment.spec.slo,
            previous,
            now=observed.now,
            interval_s=interval_s,
            measured=_measured(draft, serving),
        )
        if worth_saving(draft.status.production, seen):
            draft.set(production=seen)
        previous = seen
    draft.look_again((next_look(previous, interval_s, now=observed.now) - observed.now).total_seconds())


def _measured(draft: Draft, serving: Serving | None) -> Measured | None:
    """What the configuration that serves showed in its trial; None when it had none."""
    if serving is None:
        return None
    runs = candidate_hash(serving.candidate)
    for known in (draft.status.recommendation, draft.status.baseline):
        if known is not None and known.candidate_hash == runs:
            return known.measured
    return None
