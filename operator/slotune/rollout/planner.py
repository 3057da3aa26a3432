"""The next step of a rollout, from what is wanted, what runs, what is remembered and what was just looked at."""

from __future__ import annotations

from datetime import datetime

from slotune.rollout.facts import Readings, Serving
from slotune.rollout.intent import Intent
from slotune.rollout.memory import Memory
from slotune.rollout.steps import NothingToDo, RolloutStep

__all__ = ["plan_rollout"]


def plan_rollout(
    intent: Intent, serving: Serving | None, memory: Memory, readings: Readings, now: datetime
) -> RolloutStep:
    """The next step. Pure: asked twice, it says the same.

    Args:
        intent: what the spec and the recommendation want.
        serving: the Deployment; None when it does not exist.
        memory: what the status remembers.
        readings: what was looked at for this plan. A step says what the next one needs.
        now: with time zone.
    """
    return NothingToDo("NoRecommendation", "The search has found nothing to roll out.")
