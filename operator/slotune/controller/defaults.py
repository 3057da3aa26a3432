"""What slotune chose where the spec is silent, so that ``kubectl describe`` shows what a decision rests on.

The CRD freezes one default only: all others are slotune's, of its version, and stand nowhere else in the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from slotune.api.v1alpha1 import LlamaDeploymentSpec

__all__ = ["defaults_of"]

_SECTIONS: Final = ("measurement", "search.budget")
"""Told in full: they decide how much a search costs and how sure its answer is."""
_FIELDS: Final = (
    "search.explain",
    "search.maxReplicas",
    "sandbox.mode",
    "sandbox.capacityTimeout",
    "rollout.mode",
    "rollout.allowDowntime",
    "rollout.minSavingPercent",
    "rollout.progressDeadline",
    "retune.triggers",
    "retune.cooldown",
)
_LONGEST: Final = 256


def defaults_of(spec: LlamaDeploymentSpec, stated: Mapping[str, Any], container: str) -> dict[str, str]:
    """Values by field path, sorted.

    Args:
        spec: what counts.
        stated: the spec as it is written.
        container: name of llama-server's container.
    """
    parts = (spec.measurement, spec.search, spec.sandbox, spec.rollout, spec.retune)
    names = ("measurement", "search", "sandbox", "rollout", "retune")
    sections = {name: part.to_manifest() for name, part in zip(names, parts, strict=True)}
    paths = [f"{section}.{name}" for section in _SECTIONS for name in _at(sections, section)]
    found = {path: _text(_at(sections, path)) for path in (*paths, *_FIELDS) if _at(stated, path) is None}
    if spec.container is None:
        found["container"] = container
    if spec.template is not None and spec.replicas is None:
        found["replicas"] = "1"
    return {path: text[:_LONGEST] for path, text in sorted(found.items()) if text}


def _at(values: Mapping[str, Any], path: str) -> Any:
    """What stands at a path; None when nothing does."""
    here: Any = values
    for name in path.split("."):
        here = here.get(name) if isinstance(here, Mapping) else None
    return here


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
