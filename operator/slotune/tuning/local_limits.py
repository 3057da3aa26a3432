"""What a manifest says and a run on one machine does not act on: said aloud, or refused where going on is wrong."""

from __future__ import annotations

from slotune.api.manifests import Manifests
from slotune.tuning.errors import InvalidInputError

__all__ = ["OPERATOR_ONLY", "check_local", "operator_only_fields"]

OPERATOR_ONLY = ("rollout", "retune", "observe", "rerun", "sandbox")
"""Fields of the spec that only the operator acts on; this machine is the sandbox here."""


def check_local(manifests: Manifests) -> tuple[str, ...]:
    """Notes about what is left to the operator.

    Raises:
        InvalidInputError: the manifest says that nothing may be started.
    """
    spec = manifests.deployment.spec
    if spec.suspend:
        raise InvalidInputError("spec.suspend", "true", "no trial may be started: set it to false to tune")
    notes = []
    if fields := operator_only_fields(manifests):
        notes.append(f"{', '.join(fields)}: only the operator acts on this; trials run on this machine, now")
    secret = [entry.name for entry in manifests.container.env or () if entry.value is None]
    if secret:
        notes.append(f"variables whose values are not in the manifest are left out here: {', '.join(secret)}")
    return tuple(notes)


def operator_only_fields(manifests: Manifests) -> list[str]:
    """Fields that are stated and have no effect here, as YAML spells them."""
    stated = manifests.deployment.spec.model_fields_set
    return [f"spec.{name}" for name in OPERATOR_ONLY if name in stated]
