"""What a plan wants done to the cluster, as values. Each may be carried out twice without harm."""

from __future__ import annotations

from dataclasses import dataclass

from slotune.controller.cluster import Object
from slotune.controller.kinds import Kind

__all__ = ["Action", "Apply", "Create", "Delete", "Patch", "StartTrial"]


@dataclass(frozen=True, slots=True)
class Create:
    """A new object under a deterministic name. One that is there already is what was wanted."""

    manifest: Object


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply."""

    manifest: Object
    manager: str
    force: bool = True
    """False on what others own: their fields are never taken."""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of the version that was seen."""

    kind: Kind
    namespace: str | None
    name: str
    patch: Object
    subresource: str = ""
    manager: str = ""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes exactly the object that was seen."""

    kind: Kind
    namespace: str
    name: str
    uid: str | None


@dataclass(frozen=True, slots=True)
class StartTrial:
    """A trial's Job, if one more may run."""

    job: Object


Action = Create | Apply | Patch | Delete | StartTrial
