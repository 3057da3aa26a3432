"""What a rollout remembers: a part of the status, and nothing else. It outlives the operator, so each change of it is
one write, and every function of it gives a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slotune.api.quantities import parse_duration
from slotune.api.v1alpha1 import Applied, LlamaDeploymentStatus, RestoreIntent, RolloutRecord
from slotune.report.redaction import without_secrets
from slotune.rollout.facts import Serving

__all__ = ["Memory", "moment", "span", "stamp"]

REFUSED_KEPT = 16
"""Bound of ``status.refusedCandidates``; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Fields of the status that belong to the rollout."""

    applied: Applied | None = None
    last_good: Applied | None = None
    refused: tuple[str, ...] = ()
    rollout: RolloutRecord | None = None
    restore: RestoreIntent | None = None
    """Production is borrowed. Only :mod:`slotune.rollout.borrow` changes it."""
    last_restored: str | None = None
    """When production last got its GPU back."""

    @classmethod
    def from_status(cls, status: LlamaDeploymentStatus | None) -> Memory:
        """What the status remembers; nothing when there is none yet."""
        if status is None:
            return cls()
        return cls(
            applied=status.applied,
            last_good=status.last_good,
            refused=status.refused_candidates,
            rollout=status.rollout,
            restore=status.restore,
            last_restored=status.last_restored,
        )

    def for_rollout(self) -> dict[str, Any]:
        """Fields of :class:`LlamaDeploymentStatus` by name, for ``model_copy(update=...)``, without those that only
        borrowing changes. None removes a field."""
        return {
            "applied": self.applied,
            "last_good": self.last_good,
            "refused_candidates": self.refused,
            "rollout": self.rollout,
        }

    def with_record(self, **changes: Any) -> Memory:
        """With these fields of the record changed."""
        assert self.rollout is not None
        return replace(self, rollout=self.rollout.model_copy(update=changes))

    def knows_other_pods(self, serving: Serving) -> bool:
        """Whether something was rolled out, and what serves is another pod template than it was then."""
        return self.applied is not None and self.applied.template_digest != serving.template_digest

    def following(self, serving: Serving, now: datetime) -> Memory:
        """Once a user has changed the pod around the candidate that serves: it is the same rollout, of other pods."""
        assert self.applied is not None
        before, candidate = self.applied, serving.candidate or self.applied.candidate_hash
        applied = Applied(
            candidate_hash=candidate,
            time=stamp(now),
            replicas=serving.desired,
            args=without_secrets(serving.args),
            template_digest=serving.template_digest,
        )
        held = self.last_good is not None and self.last_good.template_digest == before.template_digest
        rollout = self.rollout
        if rollout is not None and rollout.template_digest == before.template_digest:
            update = {"candidate_hash": candidate, "template_digest": serving.template_digest}
            rollout = rollout.model_copy(update=update)
        return replace(self, applied=applied, last_good=applied if held else self.last_good, rollout=rollout)

    def with_refused(self, candidate_hash: str) -> Memory:
        """With a candidate that is not rolled out again by itself."""
        refused = (*(it for it in self.refused if it != candidate_hash), candidate_hash)
        return replace(self, refused=refused[-REFUSED_KEPT:])


def stamp(at: datetime) -> str:
    """A moment as the status writes it: UTC, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """The moment that a status names. At most six digits of a second are kept."""
    return datetime.fromisoformat(text)


def span(duration: str) -> timedelta:
    """A duration of the spec, such as ``5m``."""
    return timedelta(seconds=float(parse_duration(duration)))
