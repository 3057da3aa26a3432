"""Everything that one plan looks at, and the few facts that several rules derive from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from slotune.api.labels import BORROW_MANAGER
from slotune.api.v1alpha1 import Applied, RolloutRecord
from slotune.report.redaction import without_secrets
from slotune.rollout.facts import Readings, Serving, Strategy
from slotune.rollout.intent import Intent
from slotune.rollout.memory import Memory, moment, span, stamp

__all__ = ["NO_CANDIDATE", "Judge", "Situation"]

Judge = Callable[[int, int, int], tuple[Literal["Success", "Failure", "Inconclusive", "Continue"], str]]
"""(kept, missed, inconclusive) looks → what they decide, and why in words. ``production`` has the rule."""

NO_CANDIDATE: Final = "0000000000"
"""Names what runs where nobody knows a candidate for it."""
_FRESH: Final = timedelta(seconds=10)
"""How long ``/slots`` may be believed: a chat starts at any moment."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The arguments of a plan."""

    intent: Intent
    serving: Serving
    memory: Memory
    readings: Readings
    judge: Judge
    now: datetime

    @property
    def record(self) -> RolloutRecord:
        """The rollout that is remembered. Only asked for where there is one."""
        assert self.memory.rollout is not None
        return self.memory.rollout

    @property
    def since(self) -> datetime:
        """When the stage began."""
        return moment(self.record.since)

    @property
    def running_hash(self) -> str:
        """The candidate that the Deployment's template holds."""
        return self.serving.candidate or self.intent.baseline_hash or NO_CANDIDATE

    @property
    def runs_wanted(self) -> bool:
        """Whether the template is what the recommendation asks for."""
        sources = {self.intent.source, self.serving.source} - {None}
        wanted = self.intent.wanted
        return wanted is not None and self.running_hash == wanted.candidate_hash and len(sources) < 2

    @property
    def is_proved(self) -> bool:
        """Whether what is wanted is what the last rollout brought, and production held with it."""
        record, wanted = self.memory.rollout, self.intent.wanted
        if record is None or wanted is None or record.stage != "Done":
            return False
        return record.candidate_hash == wanted.candidate_hash and record.template_digest == self.serving.template_digest

    @property
    def was_rolled_out(self) -> bool:
        """Whether it was slotune that brought what is wanted, and production held with it, then or in an earlier
        rollout."""
        memory, wanted = self.memory, self.intent.wanted
        if self.is_proved:
            return True
        if wanted is None or memory.applied is None or memory.last_good is None:
            return False
        went_back = memory.rollout is not None and memory.rollout.stage in {"RollingBack", "RolledBack"}
        both = {memory.applied.candidate_hash, memory.last_good.candidate_hash}
        return not went_back and both == {wanted.candidate_hash}

    @property
    def replicas_owner(self) -> str | None:
        """Who decides on the replicas, when it is not slotune."""
        if self.serving.autoscaler is not None:
            return f"HorizontalPodAutoscaler {self.serving.autoscaler}"
        if self.intent.owned or not self.serving.replicas_owners:
            return None
        owner = self.serving.replicas_owners[0]
        return "whoever set them before production was borrowed" if owner == BORROW_MANAGER else owner

    @property
    def final_replicas(self) -> int:
        """Replicas when all is done: the recommended ones, or those that somebody else decided on."""
        wanted = self.intent.wanted
        if wanted is None or wanted.replicas is None or self.replicas_owner is not None:
            return self.serving.desired
        return max(1, wanted.replicas)

    def replicas_to_send(self, count: int) -> int | None:
        """``count``, or what keeps the replicas of somebody else as they are.

        A field that an apply stops to mention goes back to its default when nobody else owns it. So what an autoscaler
        has not written to yet is sent as it is, until it has.
        """
        if self.replicas_owner is None:
            return count
        return self.serving.desired if self.intent.owned and not self.serving.replicas_owners else None

    @property
    def present_strategy(self) -> Strategy | None:
        """The strategy to send when it should stay; None: never send one."""
        return self.serving.strategy if self.intent.owned else None

    @property
    def drain_ends(self) -> datetime:
        """When running answers have had their time."""
        return moment(self.record.started_at) + span(self.intent.policy.drain.timeout)

    @property
    def busy(self) -> int | None:
        """Requests at work now; None when that can't be seen."""
        if self.serving.total == 0:
            return 0
        slots = self.readings.slots
        return None if slots is None or abs(self.now - slots.at) > _FRESH else slots.busy

    @property
    def why_unseen(self) -> str:
        """Why nobody knows how busy the servers are."""
        slots = self.readings.slots
        return slots.why if slots is not None and slots.why else "nobody asked them yet"

    def snapshot(self) -> Applied:
        """What runs now, as something to come back to."""
        return Applied(
            candidate_hash=self.running_hash,
            time=stamp(self.now),
            replicas=self.serving.desired,
            args=without_secrets(self.serving.args),
            template_digest=self.serving.template_digest,
        )

    def at_stage(self, stage: str, **changes: object) -> Memory:
        """The memory with the record at a stage that begins now."""
        return self.memory.with_record(stage=stage, since=stamp(self.now), **changes)

    def stopped(self, reason: str, message: str) -> Memory:
        """The memory with a record that waits for a person."""
        return self.at_stage("Halted", generation=self.intent.generation, reason=reason, message=message)
