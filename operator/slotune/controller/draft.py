"""A plan in the making: claims, status fields, actions and the time of the next look, gathered by one stage after the
other and closed once.

A draft starts from the status as it is. What no stage touches stays; conditions are laid over the old ones, so that a
plan which claims the same as the last one leaves the status equal, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus, Phase
from slotune.controller.actions import Action
from slotune.controller.backoff import seconds_left
from slotune.controller.cluster import Object
from slotune.controller.conditions import Claim, timestamp, with_claims
from slotune.controller.events import EventNote, transitions
from slotune.controller.reasons import REASONS_OF, ConditionType
from slotune.controller.references import References

__all__ = ["RESYNC_S", "Draft", "Plan"]

RESYNC_S = 600.0
"""Longest wait between two looks at an object of which nothing is heard: watches may lose an event."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now."""

    status: Object
    """The whole status, as the API has it."""
    actions: tuple[Action, ...] = ()
    notes: tuple[EventNote, ...] = ()
    requeue_s: float = RESYNC_S
    waits_for_slot: bool = False
    """Whether the end of any trial, anywhere, is news."""
    outcomes: tuple[str, ...] = ()
    """Of the trials that were seen to end."""


class Draft:
    """The stages of a plan write into one of these."""

    def __init__(self, references: References, now: datetime) -> None:
        self.references, self.now = references, now
        self.generation: int = int(references.raw["metadata"].get("generation") or 0)
        self.status: LlamaDeploymentStatus = references.status
        """With the fields that were set so far; its conditions are those of before."""
        self.waits_for_slot = False
        self.changes_pods = ""
        """Why production's pods change beside any rollout, in words: none is planned from what was seen before that."""
        self.outcomes: list[str] = []
        """Of the trials that were seen to end."""
        self._claims: list[Claim] = []
        self._actions: list[Action] = []
        self._notes: list[EventNote] = []
        self._requeue_s = RESYNC_S

    @property
    def stamp(self) -> str:
        """Now, as a status writes it."""
        return timestamp(self.now)

    @property
    def seconds_to_wait(self) -> float:
        """Until what failed is tried again; none once the spec has changed, which may be the cure."""
        known = self.references.status.condition(ConditionType.STALLED)
        if known is None or known.observed_generation != self.generation:
            return 0.0
        return seconds_left(self.status.failures, self.now)

    def claim(self, *claims: Claim) -> None:
        """What is so. The last claim about a type counts."""
        self._claims += claims

    def claimed(self, kind: ConditionType) -> Claim | None:
        """What was claimed about a type last."""
        return next((claim for claim in reversed(self._claims) if claim.type is kind), None)

    def set(self, **fields: Any) -> None:
        """Fields of the status by Python name; None removes one."""
        self.status = self.status.model_copy(update=fields)

    def phase(self, phase: Phase) -> None:
        """Where it stands, for people."""
        self.set(phase=phase)

    def do(self, *actions: Action) -> None:
        """Act, in this order, before the status is written."""
        self._actions += actions

    def note(self, notes: Iterable[EventNote]) -> None:
        """Say something that no condition says."""
        self._notes += notes

    def look_again(self, seconds: float) -> None:
        """Look again after so many seconds at the latest."""
        self._requeue_s = max(0.5, min(self._requeue_s, seconds))

    def working(self, reason: str, message: str) -> None:
        """slotune works towards what is asked."""
        self.claim(
            Claim.true(ConditionType.RECONCILING, reason, message),
            Claim.false(ConditionType.STALLED, reason),
            Claim.false(ConditionType.READY, reason, message),
        )

    def stalled(self, reason: str, message: str) -> None:
        """It takes a change by somebody to go on; the message says which."""
        self.claim(
            Claim.true(ConditionType.STALLED, reason, message),
            Claim.false(ConditionType.RECONCILING, reason),
            Claim.false(ConditionType.READY, reason, message),
        )

    def ready(self, reason: str, message: str) -> None:
        """All that is asked is done."""
        self.claim(
            Claim.true(ConditionType.READY, reason, message),
            Claim.false(ConditionType.STALLED, reason),
            Claim.false(ConditionType.RECONCILING, reason),
        )

    def unresolved(self, reason: str, message: str) -> None:
        """What the spec names is not there or not usable, or nobody could look at it."""
        if reason in REASONS_OF[ConditionType.TARGET_RESOLVED]:
            self.claim(Claim.false(ConditionType.TARGET_RESOLVED, reason, message))
        self.stalled(reason, message)
        self.phase("Failed")

    def close(self) -> Plan:
        """The plan."""
        before = self.references.status.conditions
        conditions = with_claims(before, self._claims, generation=self.generation, now=self.now)
        status = self.status.model_copy(update={"conditions": conditions, "observed_generation": self.generation})
        return Plan(
            status.to_manifest(),
            tuple(self._actions),
            (*transitions(before, conditions), *self._notes),
            self._requeue_s,
            self.waits_for_slot,
            tuple(self.outcomes),
        )
