"""What makes a model a kind of the group ``slotune.dev``: its names, its scope, the columns of ``kubectl get``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from pydantic import Field

from slotune.api.forms import Items
from slotune.api.kubernetes_types import Condition
from slotune.api.model import Model, StatusModel
from slotune.api.texts import ConfigName, Name

__all__ = [
    "API_VERSION",
    "CATEGORY",
    "GROUP",
    "VERSION",
    "CommonStatus",
    "KeyReference",
    "KindInfo",
    "NameReference",
    "PrinterColumn",
    "Resource",
]

GROUP: Final = "slotune.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "slotune.dev/v1alpha1"
CATEGORY: Final = "slotune"
"""``kubectl get slotune`` lists every kind."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of ``kubectl get``."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0
    """0 is always shown, 1 only with ``-o wide``."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """What the API server must know of a kind beside its schema."""

    kind: str
    plural: str
    short_name: str
    namespaced: bool
    columns: tuple[PrinterColumn, ...]
    frozen: frozenset[str] = frozenset()
    """Dotted paths of fields whose default is written into the object when it is created."""

    @property
    def singular(self) -> str:
        """As ``kubectl get`` takes it."""
        return self.kind.lower()


class Resource(Model):
    """A kind of this group. Each has ``apiVersion``, ``kind``, ``metadata``, ``spec`` and ``status``."""

    INFO: ClassVar[KindInfo]


class NameReference(Model):
    """An object of the same namespace."""

    name: Name
    """Name of the object."""


class KeyReference(Model):
    """One key of a ConfigMap or Secret of the same namespace."""

    name: Name
    """Name of the ConfigMap or Secret."""
    key: ConfigName
    """Key in it."""


class CommonStatus(StatusModel):
    """What the status of every kind says. Conditions are the truth."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Version of the spec that this status is about."""
    conditions: Annotated[tuple[Condition, ...], Items(most=16, key="type")] = ()
    """What is so. Ready is always there, Reconciling and Stalled only while they are true."""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, None when it is not there."""
        return next((condition for condition in self.conditions if condition.type == kind), None)
