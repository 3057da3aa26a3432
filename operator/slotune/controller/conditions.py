"""Conditions as a small algebra: what is claimed now, laid over what was said before.

A claim says what is so; the algebra knows the conventions of Kubernetes. ``lastTransitionTime`` moves only when the
status does. Ready is always there; Reconciling and Stalled, which are unfinished business and bad news, only while they
are true, and never both (kstatus would not know whether to wait). Nothing here reads a clock, so a claim made twice
changes nothing and need not be written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from slotune.api.kubernetes_types import Condition
from slotune.controller.reasons import ConditionType, Reason
from slotune.tuning.status_values import sentence, word

__all__ = ["LONGEST_MESSAGE", "Claim", "claimed", "condition", "is_true", "timestamp", "with_claims", "without"]

Status = Literal["True", "False", "Unknown"]

LONGEST_MESSAGE: Final = 1024
"""Characters. A message is one sentence or a few, and an event that repeats it has room for no more."""

MOST: Final = 16
"""Conditions that a status holds."""

_ONLY_WHILE_TRUE: Final = frozenset({ConditionType.RECONCILING, ConditionType.STALLED})
_ORDER: Final = {kind.value: place for place, kind in enumerate(ConditionType)}
_NOT_LOOKED_AT: Final = "Not looked at yet"


@dataclass(frozen=True, slots=True)
class Claim:
    """What is so, without when it became so."""

    type: ConditionType
    status: Status
    reason: str
    """A :class:`Reason`, or a word of the same form that a trial's verdict gives."""
    message: str = ""

    @classmethod
    def true(cls, kind: ConditionType, reason: str, message: str = "") -> Claim:
        """It is so."""
        return cls(kind, "True", reason, message)

    @classmethod
    def false(cls, kind: ConditionType, reason: str, message: str = "") -> Claim:
        """It is not so."""
        return cls(kind, "False", reason, message)

    @classmethod
    def unknown(cls, kind: ConditionType, reason: str, message: str = "") -> Claim:
        """It is not known whether it is so."""
        return cls(kind, "Unknown", reason, message)


def with_claims(
    before: tuple[Condition, ...], claims: Iterable[Claim], *, generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """``before`` with every claim made; of two about one type the later counts.

    Types of which nothing is claimed stay as they were, with the generation that they were observed for. Those that
    were never said are Unknown. Stalled wins over Reconciling. The order is that of :class:`ConditionType`, then what
    others have set, by name. Equal claims give back an equal value.
    """
    said = {claim.type: claim for claim in claims}
    kept = {found.type: found for found in before}
    for kind in ConditionType:
        claim = said.get(kind)
        if claim is None and kind.value not in kept and kind not in _ONLY_WHILE_TRUE:
            claim = Claim.unknown(kind, Reason.PENDING, _NOT_LOOKED_AT)
        if claim is not None:
            kept[kind.value] = _stated(claim, kept.get(kind.value), generation, now)
    for kind in _ONLY_WHILE_TRUE:
        if kind.value in kept and kept[kind.value].status != "True":
            del kept[kind.value]
    if ConditionType.STALLED in kept and ConditionType.RECONCILING in kept:
        stalled = said.get(ConditionType.STALLED)
        del kept[
            ConditionType.RECONCILING if stalled or ConditionType.RECONCILING not in said else ConditionType.STALLED
        ]
    return tuple(sorted(kept.values(), key=_place))[:MOST]


def without(before: tuple[Condition, ...], kind: ConditionType) -> tuple[Condition, ...]:
    """``before`` less one type. Ready cannot go: it is always there."""
    return tuple(found for found in before if found.type != kind or kind is ConditionType.READY)


def condition(among: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """The condition of that type; None when it is not there."""
    return next((found for found in among if found.type == kind), None)


def claimed(claims: Iterable[Claim], kind: ConditionType) -> Claim | None:
    """What is claimed of that type last; None when nothing is."""
    found = None
    for claim in claims:
        found = claim if claim.type is kind else found
    return found


def is_true(among: Iterable[Condition], kind: ConditionType) -> bool:
    """Whether the condition is there and True."""
    found = condition(among, kind)
    return found is not None and found.status == "True"


def timestamp(now: datetime) -> str:
    """A time as Kubernetes writes it: UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _stated(claim: Claim, before: Condition | None, generation: int | None, now: datetime) -> Condition:
    same = before is not None and before.status == claim.status
    return Condition(
        type=claim.type.value,
        status=claim.status,
        observed_generation=generation,
        last_transition_time=before.last_transition_time if before is not None and same else timestamp(now),
        reason=word(claim.reason),
        message=sentence(claim.message, LONGEST_MESSAGE),
    )


def _place(found: Condition) -> tuple[int, str]:
    return _ORDER.get(found.type, len(_ORDER)), found.type
