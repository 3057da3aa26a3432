"""What a step of a rollout sends to the cluster: manifests, made from what was seen and what the status holds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from slotune.api.v1alpha1 import LlamaDeployment
from slotune.controller.cluster import Object
from slotune.controller.flights import owner_reference
from slotune.controller.observed import Observed
from slotune.controller.references import References
from slotune.controller.understanding import Understood
from slotune.llama.candidate import Candidate
from slotune.rollout.change import Change, compose_change, kustomize_files
from slotune.rollout.facts import CANDIDATE_ANNOTATION, template_digest
from slotune.rollout.last_good import LastGoodLostError, template_from_record
from slotune.rollout.owned import serving_deployment, serving_pod_template
from slotune.rollout.steps import Apply, RollBack
from slotune.rollout.tuned import tuned_deployment, untuned_deployment
from slotune.tuning.trial_objects import candidate_of

__all__ = [
    "fits",
    "is_patch_for",
    "lost_record",
    "patch_config_map",
    "rollout_manifest",
    "source_digest",
    "wanted_candidate",
    "wanted_change",
]


def _apply_manifest(references: References, understood: Understood, step: Apply) -> Object:
    """What server-side apply sends for a candidate: the whole Deployment where it is slotune's own, else the fields
    that change and those that slotune set before."""
    deployment = references.deployment
    assert deployment is not None
    change = wanted_change(understood, wanted_candidate(references))
    if references.target is None:
        template = change.patched_template(references.raw["spec"]["template"])
        more: dict[str, Any] = {} if step.strategy is None else {"strategy": step.strategy}
        return serving_deployment(deployment, template, step.candidate_hash, step.replicas, **more)
    return tuned_deployment(references.target, change, step.candidate_hash, step.replicas)


def rollout_manifest(observed: Observed, understood: Understood | None, step: Apply | RollBack) -> Object:
    """What the step sends.

    Raises :class:`~slotune.rollout.last_good.LastGoodLostError`.
    """
    if isinstance(step, RollBack):
        return _way_back(observed, step)
    assert understood is not None  # without it nothing is wanted
    return _apply_manifest(observed.references, understood, step)


def lost_record(observed: Observed, step: RollBack) -> str:
    """Why the recorded template can't be had; empty when it can."""
    try:
        _recorded(observed, step)
    except LastGoodLostError as error:
        return str(error)
    return ""


def _recorded(observed: Observed, step: RollBack) -> Object:
    assert observed.serving is not None
    name, running = observed.references.key[1], observed.serving["spec"]["template"]
    return template_from_record(observed.recorded, name, step.to.template_digest or "", running)


def _way_back(observed: Observed, step: RollBack) -> Object:
    """The template that was recorded; on a target, what of it slotune had changed, so that the rest stays others'."""
    references, template = observed.references, _recorded(observed, step)
    assert references.deployment is not None
    if references.target is not None:
        return untuned_deployment(references.target, template, step.replicas)
    more: dict[str, Any] = {} if step.strategy is None else {"strategy": step.strategy}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    candidate_hash = annotations.get(CANDIDATE_ANNOTATION)
    return serving_deployment(references.deployment, template, candidate_hash, step.replicas, **more)


def wanted_candidate(references: References) -> Candidate:
    """The candidate of the answer that the status holds."""
    recommendation = references.status.recommendation
    assert recommendation is not None
    return candidate_of(recommendation.candidate)


def wanted_change(understood: Understood, candidate: Candidate) -> Change:
    """In owned mode the template is slotune's to change; a ConfigMap that others may use is left alone."""
    manifests = understood.manifests
    return compose_change(
        manifests.template,
        manifests.container,
        understood.written,
        candidate,
        config_maps=manifests.config_maps,
        only_pod=True,
    )


def source_digest(deployment: LlamaDeployment, references: References, change: Change) -> str | None:
    """Digest of the template that owned mode would send."""
    if references.target is not None or references.status.recommendation is None:
        return None
    baseline, candidate_hash = references.status.baseline, references.status.recommendation.candidate_hash
    if baseline is not None and baseline.candidate_hash == candidate_hash and references.status.applied is None:
        return None  # what the user wrote serves, and it is the answer: its flags need not be spelled out
    template = change.patched_template(references.raw["spec"]["template"])
    return template_digest(serving_pod_template(deployment, template, candidate_hash))


def fits(understood: Understood, candidate: Candidate) -> bool:
    """Whether the server of now can be made to run a candidate, which may be of a time with other flags or models."""
    written, files = understood.written, {candidate.variant, candidate.draft or candidate.variant}
    return candidate.extra_args == written.candidate.extra_args and files <= written.paths.keys()


def is_patch_for(references: References, understood: Understood, found: Object) -> bool:
    """Whether a ConfigMap has the change that makes the server of now the recommended one. Why it is recommended, and
    at how many replicas, is written anew with each answer."""
    manifests, candidate = understood.manifests, wanted_candidate(references)
    if not fits(understood, candidate):
        return True  # an answer to another question: nothing is made ready of it
    change = compose_change(
        manifests.template, manifests.container, understood.written, candidate, config_maps=manifests.config_maps
    )
    target = references.target["metadata"]["name"] if references.target is not None else references.key[1]
    recommendation, data = references.status.recommendation, found.get("data") or {}
    assert recommendation is not None
    wanted = (kustomize_files(change, deployment=target, replicas=number) for number in (recommendation.replicas, None))
    return any(_without_reasons(data) == _without_reasons(files) for files in wanted)


def _without_reasons(files: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if name != "kustomization.yaml"}


def patch_config_map(
    observed: Observed, understood: Understood, candidate: Candidate, replicas: int | None, reasons: Sequence[str]
) -> Object:
    """The ConfigMap with a ready Kustomize component for the answer, for whoever applies it."""
    references, manifests = observed.references, understood.manifests
    namespace, name = references.key
    target = references.target["metadata"]["name"] if references.target is not None else name
    change = compose_change(
        manifests.template,
        manifests.container,
        understood.written,
        candidate,
        config_maps=manifests.config_maps,
    )
    shown = replicas if observed.autoscalers == () else None
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"{name}-recommendation",
            "namespace": namespace,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: name},
            "ownerReferences": [owner_reference(references.raw)],
        },
        "data": kustomize_files(change, deployment=target, replicas=shown, header=reasons),
    }
