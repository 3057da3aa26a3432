"""The next step of a rollout, from what is wanted, what runs, what is remembered and what was just looked at.

    Draining ──► Applying ──► Verifying ──► Done
       │ ▲           │            │  └────► Unproven (nothing could be seen) ──► Verifying
       ▼ │           └────┬───────┘
    Deferred              ▼
                     RollingBack ──► RolledBack               any ──► Halted: a person has to look

The stage is remembered; where the Deployment stands is seen. Each plan compares the two first: the pod template is the
one that is replaced, the candidate's, or somebody else's. So a plan after a crash, and one after a write that was lost,
goes on from what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from slotune.rollout.facts import Readings, Serving
from slotune.rollout.intent import Intent
from slotune.rollout.memory import Memory, stamp
from slotune.rollout.proving import after_the_way_back, unproven, verifying, way_back_step
from slotune.rollout.replacing import before_the_apply, begin, was_applied, while_pods_start
from slotune.rollout.situation import Judge, Situation
from slotune.rollout.steps import Refuse, RolloutStep, Wait, WriteAhead

__all__ = ["MOST_REVERTS", "is_open", "is_under_way", "plan_rollout"]

MOST_REVERTS: Final = 3
"""After which slotune stops: something puts the old template back by itself, and would for ever."""
_UNDER_WAY: Final = frozenset({"Draining", "Applying", "Verifying", "RollingBack"})


def is_under_way(memory: Memory) -> bool:
    """Whether production is being changed or judged: nothing else may take it down meanwhile."""
    return memory.rollout is not None and memory.rollout.stage in _UNDER_WAY


def is_open(memory: Memory) -> bool:
    """Whether a rollout has no end yet: it is under way, or waits for production to show something."""
    return is_under_way(memory) or (memory.rollout is not None and memory.rollout.stage == "Unproven")


def plan_rollout(
    intent: Intent, serving: Serving | None, memory: Memory, readings: Readings, now: datetime, *, judge: Judge
) -> RolloutStep:
    """The next step. Pure: asked twice, it says the same.

    Args:
        intent: what the spec and the recommendation want.
        serving: the Deployment; None when it does not exist.
        memory: what the status remembers.
        readings: what was looked at for this plan. A step says what the next one needs.
        now: with time zone.
        judge: what so many looks decide (``judge_counts`` of ``slotune.production``).
    """
    if serving is None:
        return Wait("DeploymentNotFound", "There is no Deployment yet")
    it = Situation(intent, serving, memory, readings, judge, now)
    return begin(it) if memory.rollout is None else _STEP_OF.get(memory.rollout.stage, _forward)(it)


def _forward(it: Situation) -> RolloutStep:
    """Every stage that leads to Done, and Done itself."""
    record = it.record
    if record.template_digest is None:
        return _not_seen_yet(it)
    if it.serving.template_digest != record.template_digest:
        return _reverted(it) if it.serving.template_digest == record.replaces else _stop_for_another(it)
    return _STEP_WITH_CANDIDATE.get(record.stage, begin)(it)


def _not_seen_yet(it: Situation) -> RolloutStep:
    """The candidate was not in the Deployment when last remembered; an apply may have come through since."""
    if it.record.stage == "Applying" and was_applied(it):
        return while_pods_start(it)
    if it.serving.template_digest == it.record.replaces or it.runs_wanted:
        return before_the_apply(it)
    return _stop_for_another(it)


def _no_proof(it: Situation) -> RolloutStep:
    """Another recommendation need not wait for the proof of this one."""
    return unproven(it) if it.runs_wanted or it.intent.wanted is None else begin(it)


def _back(it: Situation) -> RolloutStep:
    last_good = it.memory.last_good
    ours = {it.record.template_digest, last_good.template_digest if last_good else None}
    return way_back_step(it) if it.serving.template_digest in ours else _stop_for_another(it)


def _was_back(it: Situation) -> RolloutStep:
    refused = it.record.candidate_hash in it.memory.refused
    return after_the_way_back(it) if refused and _is_about_this(it) else begin(it)


def _halted(it: Situation) -> RolloutStep:
    """Another recommendation, or any change of the spec, is a person's answer."""
    record = it.record
    if _is_about_this(it) and record.generation == it.intent.generation:
        return Refuse(record.reason or "Halted", record.message)
    return begin(it)


def _is_about_this(it: Situation) -> bool:
    wanted = it.intent.wanted
    return wanted is None or wanted.candidate_hash == it.record.candidate_hash


_STEP_OF: Final[dict[str, Callable[[Situation], RolloutStep]]] = {
    "RollingBack": _back,
    "RolledBack": _was_back,
    "Halted": _halted,
}
_STEP_WITH_CANDIDATE: Final[dict[str, Callable[[Situation], RolloutStep]]] = {
    "Applying": while_pods_start,
    "Verifying": verifying,
    "Unproven": _no_proof,
}
"""Done is not among them: what serves is compared with what is wanted, as if nothing had been rolled out before."""


def _reverted(it: Situation) -> RolloutStep:
    """Somebody put the old template back. It may have been a mistake; the same again and again is a machine."""
    if it.intent.suspended or it.intent.policy.mode == "Recommend" or it.intent.wanted is None:
        return begin(it)  # its gates say why nothing happens
    reverts = it.record.reverts + 1
    who = it.serving.last_writer or "Somebody"
    if reverts >= MOST_REVERTS:
        message = (
            f"{who} put the old pod template of Deployment {it.serving.name} back {reverts} times. Put the new flags "
            "into its source (status.recommendation has the patch) with spec.rollout.mode Recommend, or let Argo CD "
            f"ignore args of container {it.intent.container} (ignoreDifferences with RespectIgnoreDifferences). Any "
            "change of the spec starts again"
        )
        return WriteAhead(it.stopped("RevertedByOther", message).with_record(reverts=reverts), message)
    again = {"template_digest": None, "started_at": stamp(it.now), "reverts": reverts}
    none = {"last_look": None, "kept": 0, "missed": 0, "inconclusive": 0, "reason": None, "message": ""}
    return WriteAhead(it.at_stage("Draining", **again, **none), f"{who} put the old pod template back: try once more")


def _stop_for_another(it: Situation) -> WriteAhead:
    who = it.serving.last_writer or "Somebody"
    message = (
        f"{who} changed the pod template of Deployment {it.serving.name} meanwhile: it is neither the candidate's nor "
        "what ran before, and is left as it is. Any change of the spec starts again from what runs now"
    )
    return WriteAhead(it.stopped("ChangedByOther", message), message)
