"""The pod template that a failed rollout goes back to, kept in full before production is touched.

The status has no room for a whole pod, and the spec may have changed since. So the template lies in a ConfigMap that is
named after its content: it is written once, never changed, and what is read back is proved to be what was written.

More people may read a ConfigMap than the Deployment, so no key is written there: values that may be one are taken from
the pod template that runs (:mod:`slotune.rollout.secret_values`). A rollout never changes them, and where somebody else
did, the proof fails, and production is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from slotune.api.labels import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from slotune.api.v1alpha1 import LlamaDeployment
from slotune.rollout.facts import template_digest
from slotune.rollout.owned import owner_reference
from slotune.rollout.secret_values import NoSuchValueError, with_values_of, without_keys

__all__ = ["LastGoodLostError", "record_name", "template_from_record", "template_record"]

_KEY: Final = "template.json"


class LastGoodLostError(Exception):
    """What production should go back to is not what was written down, or is gone."""

    def __init__(self, record: str, reason: str) -> None:
        self.record = record
        super().__init__(
            f"ConfigMap {record} {reason}: production stays as it is; go back by hand, "
            "e.g. with kubectl rollout undo, and set spec.rollout.mode to Recommend"
        )


def record_name(name: str, digest: str) -> str:
    """Name of the ConfigMap with that template of that LlamaDeployment."""
    return f"{name}-template-{digest[:10]}"


def template_record(owner: LlamaDeployment, template: Mapping[str, Any]) -> dict[str, Any]:
    """The ConfigMap that keeps a pod template, for server-side apply. The LlamaDeployment owns it."""
    metadata = owner.metadata
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record_name(metadata.name, template_digest(template)),
            "namespace": metadata.namespace,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, DEPLOYMENT_LABEL: metadata.name},
            "ownerReferences": [owner_reference(owner)],
        },
        "immutable": True,
        "data": {_KEY: json.dumps(without_keys(template), sort_keys=True)},
    }


def template_from_record(
    record: Mapping[str, Any] | None, name: str, digest: str, running: Mapping[str, Any]
) -> dict[str, Any]:
    """The template in a ConfigMap of :func:`template_record`, with the keys of the one that is ``running``.

    Raises :class:`LastGoodLostError` when it is gone (``record`` is None), unreadable or another one.
    """
    place = record_name(name, digest)
    if record is None:
        raise LastGoodLostError(place, "is gone")
    try:
        template = json.loads((record.get("data") or {})[_KEY])
    except (KeyError, ValueError) as error:
        raise LastGoodLostError(place, f"has no readable {_KEY}") from error
    try:
        template = with_values_of(template, running)
    except NoSuchValueError as error:
        raise LastGoodLostError(place, "leaves out a key that the Deployment has no more") from error
    if not isinstance(template, dict) or template_digest(template) != digest:
        raise LastGoodLostError(place, f"has another pod template than {digest}")
    return template
