"""What is sent to a Deployment that slotune tunes and does not own (``spec.targetRef``): its own fields, and no others.

All that slotune set there before is sent each time, with what changes now; see :mod:`slotune.rollout.applied_fields`.
The rest of the template is never sent: slotune would own it too, and a field that its user takes out would stay.

So a candidate lands in whatever else the template says by then. Who owns a field tells of a change of the same field,
and of no other: with a new image in between, something runs that nobody measured, and is taken for the candidate. An
apply of a candidate is therefore for the version that was seen. The way back needs no more than the same object: what
it makes is compared with what was recorded, and while production is ill it should not wait for a quiet moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotune.api.labels import ROLLOUT_MANAGER
from slotune.rollout.applied_fields import differences, laid_over, owned_part
from slotune.rollout.change import Change
from slotune.rollout.facts import CANDIDATE_ANNOTATION, Serving

__all__ = ["tuned_deployment", "untuned_deployment"]

JSON = Mapping[str, Any]


def tuned_deployment(target: JSON, change: Change, candidate_hash: str, replicas: int | None) -> dict[str, Any]:
    """The apply that brings a candidate.

    Args:
        target: the Deployment as the API server gave it, ``metadata.managedFields`` included.
        change: from what its template says to the candidate.
        candidate_hash: names the candidate.
        replicas: None sends none, but for those that slotune alone has set: they would go back to 1.
    """
    template = change.template_patch()
    metadata = template.setdefault("metadata", {})
    metadata["annotations"] = {**metadata.get("annotations", {}), CANDIDATE_ANNOTATION: candidate_hash}
    manifest = _manifest(target, owned_part(target, ROLLOUT_MANAGER), template, replicas)
    manifest["metadata"]["resourceVersion"] = target["metadata"]["resourceVersion"]
    return manifest


def untuned_deployment(target: JSON, template: JSON, replicas: int | None) -> dict[str, Any]:
    """The apply that brings a recorded pod template back; the others are as for :func:`tuned_deployment`."""
    as_recorded = {**target, "spec": {**target["spec"], "template": template}}
    owned = owned_part(target, ROLLOUT_MANAGER, as_recorded)
    return _manifest(target, owned, differences(target["spec"]["template"], template), replicas)


def _manifest(target: JSON, owned: JSON, template: JSON, replicas: int | None) -> dict[str, Any]:
    metadata, spec = target["metadata"], laid_over(owned.get("spec") or {}, {"template": template})
    if replicas is not None:
        spec["replicas"] = replicas
    elif Serving.from_deployment(target, "").replicas_owners:
        spec.pop("replicas", None)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            **(owned.get("metadata") or {}),
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "spec": spec,
    }
