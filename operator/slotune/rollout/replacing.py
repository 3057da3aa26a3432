"""From the decision to pods that answer: drain, write down how to come back, apply, wait.

Draining fails closed: nobody is cut off because a server could not be asked how busy it is.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from slotune.api.v1alpha1 import RolloutRecord
from slotune.rollout.gates import apply_the_patch, chosen_strategy, closed_gate
from slotune.rollout.memory import span, stamp
from slotune.rollout.proving import POLL, begin_way_back
from slotune.rollout.situation import Situation
from slotune.rollout.steps import Apply, Drain, RolloutStep, Wait, WriteAhead
from slotune.rollout.strategy import Choice

__all__ = ["RETRY_AFTER", "before_the_apply", "begin", "was_applied", "while_pods_start"]

RETRY_AFTER: Final = timedelta(minutes=10)
"""After which an apply that was refused is tried again: nothing says when somebody gave the field up."""
_BETTER_TIME: Final = timedelta(seconds=30)
"""Between two looks at ``/slots`` for a better time."""


def begin(it: Situation) -> RolloutStep:
    """The first step of a new rollout, or what stands in its way."""
    if (answer := closed_gate(it)) is not None:
        return answer
    wanted = it.intent.wanted
    assert wanted is not None
    record = RolloutRecord(
        candidate_hash=wanted.candidate_hash,
        stage="Draining",
        generation=it.intent.generation,
        started_at=stamp(it.now),
        since=stamp(it.now),
        replaces=it.serving.template_digest,
    )
    return WriteAhead(replace(it.memory, rollout=record), f"Begin to roll out candidate {wanted.candidate_hash}")


def was_applied(it: Situation) -> bool:
    """Whether the Deployment shows the candidate that the record has not seen there yet."""
    record, serving = it.record, it.serving
    if serving.candidate != record.candidate_hash:
        return False
    return serving.template_digest != record.replaces or it.runs_wanted


def before_the_apply(it: Situation) -> RolloutStep:
    """The step while today's pods still serve. Every gate is asked again, up to the apply itself."""
    answer = closed_gate(it)
    wanted = it.intent.wanted
    if isinstance(answer, Wait):
        return answer
    if answer is not None or wanted is None or wanted.candidate_hash != it.record.candidate_hash:
        return WriteAhead(replace(it.memory, rollout=None), "Give up a rollout that nothing was changed for yet")
    match it.record.stage:
        case "Deferred":
            return _again_later(it)
        case "Draining":
            return _draining(it)
        case _:
            return _applying(it)


def while_pods_start(it: Situation) -> RolloutStep:
    """The step from the apply until every pod is the candidate's and answers."""
    record, serving = it.record, it.serving
    if record.template_digest is None:
        changed = it.at_stage("Applying", template_digest=serving.template_digest)
        return WriteAhead(
            replace(changed, applied=it.snapshot().model_copy(update={"candidate_hash": record.candidate_hash})),
            f"Candidate {record.candidate_hash} is in the Deployment",
        )
    deadline = it.since + span(it.intent.policy.progress_deadline)
    if serving.has_failed:
        limit = f"Kubernetes gave up after {serving.progress_deadline_s} s without progress"
        return begin_way_back(it, "NotReady", f"{_progress(it)}; {limit}")
    if not serving.is_settled and it.now >= deadline:
        limit = f"rollout.progressDeadline is {it.intent.policy.progress_deadline}"
        return begin_way_back(it, "NotReady", f"{_progress(it)}; {limit}")
    if not serving.is_settled:
        return Wait("PodsStarting", _progress(it), deadline, rolled_out="Unknown")
    if serving.desired != it.final_replicas and _may_scale(it):
        message = f"Set {it.final_replicas} replicas: all {serving.desired} pods have the candidate"
        return Apply(record.candidate_hash, it.final_replicas, it.present_strategy, message)
    return WriteAhead(it.at_stage("Verifying"), "All pods answer: look at what they deliver")


def _again_later(it: Situation) -> RolloutStep:
    """A rollout that was put off goes on as soon as nobody would be cut off, and a refused one after a while."""
    record, same_spec = it.record, it.record.generation == it.intent.generation
    if same_spec and record.reason == "FieldOwnedByOther" and it.now < it.since + RETRY_AFTER:
        return Wait(record.reason, record.message, it.since + RETRY_AFTER)
    if same_spec and record.reason != "FieldOwnedByOther" and it.busy != 0:
        return Drain(record.message, it.now + _BETTER_TIME, reason=record.reason or "Deferred")
    anew = {"started_at": stamp(it.now), "generation": it.intent.generation, "reason": None, "message": ""}
    return WriteAhead(it.at_stage("Draining", **anew), "Go on")


def _draining(it: Situation) -> RolloutStep:
    if (waiting := _wait_for_answers(it)) is not None:
        return waiting
    changed = it.at_stage("Applying", replaces=it.serving.template_digest)
    applied, last_good = it.memory.applied, it.memory.last_good
    unproved = applied is not None and applied.template_digest == it.serving.template_digest
    if last_good is None or not unproved or last_good.template_digest == it.serving.template_digest:
        # What slotune put there and nobody has seen working is nothing to come back to.
        changed = replace(changed, last_good=it.snapshot())
    return WriteAhead(changed, "Write down what production comes back to", record_template=True)


def _applying(it: Situation) -> RolloutStep:
    if (waiting := _wait_for_answers(it)) is not None:
        return waiting
    conflict = it.readings.conflict
    if conflict is not None:
        message = (
            f"{conflict.field} belongs to {conflict.manager}, and slotune takes nothing by force. {apply_the_patch(it)}"
        )
        return WriteAhead(it.at_stage("Deferred", reason="FieldOwnedByOther", message=message), message)
    chosen = chosen_strategy(it)
    assert isinstance(chosen, Choice)  # the gates were asked
    return Apply(it.record.candidate_hash, it.replicas_to_send(chosen.replicas), chosen.strategy, chosen.message)


def _wait_for_answers(it: Situation) -> RolloutStep | None:
    """None: no answer is cut off, or the user wants that it is."""
    busy, drain = it.busy, it.intent.policy.drain
    if busy == 0:
        return None
    running = "1 answer runs" if busy == 1 else f"{busy} answers run"
    if it.now < it.drain_ends:
        message = f"Not every server says whether it is busy: {it.why_unseen}" if busy is None else running
        return Drain(message, min(it.now + POLL, it.drain_ends))
    if busy is None:
        message = f"Nobody can see whether answers run: {it.why_unseen}. Nothing is replaced before"
        return WriteAhead(it.at_stage("Deferred", reason="IdleCheckFailed", message=message), message)
    if drain.on_timeout == "Proceed":
        return None
    message = (
        f"{running} after {drain.timeout}: spec.rollout.drain.timeout can be longer, and with onTimeout: Proceed "
        "they are cut off"
    )
    return WriteAhead(it.at_stage("Deferred", reason="PodsBusy", message=message), message)


def _may_scale(it: Situation) -> bool:
    """Whether the last step is still wanted by those who decide: they may have changed their mind since the first."""
    wanted, policy = it.intent.wanted, it.intent.policy
    return (
        wanted is not None
        and wanted.candidate_hash == it.record.candidate_hash
        and it.replicas_owner is None
        and not it.intent.suspended
        and policy.mode != "Recommend"
        and (policy.mode != "RequireApproval" or policy.approved_candidate == wanted.candidate_hash)
    )


def _progress(it: Situation) -> str:
    serving = it.serving
    if serving.observed_generation < serving.generation:
        return "The Deployment's controller has not seen the change yet"
    return (
        f"{serving.updated} of {serving.desired} pods have the candidate, and of all {serving.total} pods "
        f"{serving.available} answer"
    )
