"""Whether the candidate may stay, and the way back.

A candidate stays when looks at production say so. No data is no success: then it is left where it is, nothing goes on,
and a person is asked. The way back is gone once: what fails there too is not tried again, since a second change of an
ill production cures nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from slotune.rollout.facts import Look
from slotune.rollout.memory import Memory, moment, span, stamp
from slotune.rollout.situation import Situation
from slotune.rollout.steps import Drain, Refuse, RollBack, RolloutStep, Verify, Wait, WriteAhead
from slotune.rollout.strategy import way_back

__all__ = ["POLL", "after_the_way_back", "begin_way_back", "unproven", "verifying", "way_back_step"]

POLL: Final = timedelta(seconds=5)
"""Between two looks at ``/slots`` while answers may end."""


def begin_way_back(it: Situation, reason: str, message: str) -> WriteAhead:
    """Remember first that the candidate failed: whatever happens next, it is not rolled out again by itself."""
    failed = it.memory.with_refused(it.record.candidate_hash)
    changed = replace(it, memory=failed).at_stage("RollingBack", reason=reason, message=message)
    return WriteAhead(changed, f"Candidate {it.record.candidate_hash} goes: {message}")


def verifying(it: Situation) -> RolloutStep:
    """The step while the candidate serves and is watched."""
    record = it.record
    if (waiting := _not_judged(it)) is not None:
        return waiting
    decision, counts = it.judge(record.kept, record.missed, record.inconclusive)
    match decision:
        case "Failure":
            return begin_way_back(it, "SLOMissed", counts)
        case "Inconclusive":
            message = (
                f"Nothing shows that production keeps the SLO ({counts}). It is left as it is: send traffic, set "
                "rollout.verify.probeRequests or observe.prometheus, or change rollout.mode and go back by hand"
            )
            changed = it.at_stage("Unproven", reason="VerificationInconclusive", message=message)
            return WriteAhead(changed.with_record(generation=it.intent.generation), message)
        case "Success":
            return _stays(it, counts)
    due = _next_look(it)
    look = _new_look(it, due)
    if look is None:
        return Verify(due, counts)
    return WriteAhead(_counted(it.memory, look), f"Production: {look.outcome}. {look.message}".strip())


def unproven(it: Situation) -> RolloutStep:
    """The step once nothing could be seen: a look that shows something, or another spec, begins the window anew."""
    record = it.record
    if (waiting := _not_judged(it)) is not None:
        return waiting
    none = {"kept": 0, "missed": 0, "inconclusive": 0, "reason": None, "message": ""}
    if it.intent.generation != record.generation:
        changed = it.at_stage("Verifying", generation=it.intent.generation, **none)
        return WriteAhead(changed, "The spec has changed: look at production anew")
    seen = moment(record.since) if record.last_look is None else max(moment(record.since), moment(record.last_look))
    due = seen + span(it.intent.policy.verify.interval)
    look = _new_look(it, due)
    if look is None:
        return Verify(due, record.message, reason="VerificationInconclusive")
    if look.outcome == "Inconclusive":
        return WriteAhead(it.memory.with_record(last_look=stamp(look.at)), record.message)
    return WriteAhead(_counted(it.at_stage("Verifying", **none), look), "Production can be seen again")


def way_back_step(it: Situation) -> RolloutStep:
    """The step from a failed candidate to what ran before."""
    record, serving, last_good = it.record, it.serving, it.memory.last_good
    if last_good is None:
        return WriteAhead(it.stopped("NothingToGoBackTo", f"{record.message}; nothing is known to go back to"), "Stop")
    count = it.serving.desired if last_good.replicas is None else last_good.replicas
    if serving.template_digest == last_good.template_digest and (
        it.replicas_owner is not None or serving.desired == count
    ):
        return _is_back(it)
    if (hindered := _hindered(it) or _let_answers_end(it)) is not None:
        return hindered
    strategy = way_back(serving.desired, max(1, count), it.readings.capacity) if it.intent.owned else None
    return RollBack(last_good, it.replicas_to_send(count), strategy, record.reason or "RollingBack", record.message)


def after_the_way_back(it: Situation) -> RolloutStep:
    """One look at what was brought back, so that its story has an end."""
    record = it.record
    if record.last_look is not None:
        return Refuse("RolledBack", record.message)
    due = it.since + max(it.readings.settle, span(it.intent.policy.verify.interval))
    look = _new_look(it, due)
    if look is None:
        return Verify(due, record.message, reason="RolledBack", rolled_out="False")
    now = {"Kept": "keeps the SLO", "Missed": "misses the SLO too", "Inconclusive": "shows nothing yet"}[look.outcome]
    message = f"{record.message}, and {now}"
    return WriteAhead(it.memory.with_record(last_look=stamp(look.at), message=message), message)


def _not_judged(it: Situation) -> Wait | None:
    if it.intent.suspended:
        return Wait("Suspended", "spec.suspend is true: the candidate serves and is not judged", rolled_out="Unknown")
    if it.serving.desired == 0:
        return Wait("ScaledToZero", "Nothing serves, so nothing can be seen", rolled_out="Unknown")
    return None


def _hindered(it: Situation) -> RolloutStep | None:
    """Why the old template can't be put back by slotune."""
    failed, by_hand = it.record.message, f"go back by hand, e.g. kubectl rollout undo deployment/{it.serving.name}"
    if it.intent.suspended:
        return Wait("Suspended", f"{failed}. spec.suspend is true: production stays as it is")
    if it.intent.policy.mode == "Recommend" and not it.intent.owned:
        return Refuse("RecommendOnly", f"{failed}. spec.rollout.mode is Recommend, so nothing is written: {by_hand}")
    if (conflict := it.readings.conflict) is not None:
        message = f"{failed}. {conflict.field} belongs to {conflict.manager} by now: {by_hand}"
        return WriteAhead(it.stopped("FieldOwnedByOther", message), message)
    return None


def _is_back(it: Situation) -> RolloutStep:
    record, serving, last_good = it.record, it.serving, it.memory.last_good
    assert last_good is not None
    if serving.is_settled:
        message = f"{record.message}. What ran before serves again"
        nothing_seen = {"last_look": None, "kept": 0, "missed": 0, "inconclusive": 0}
        return WriteAhead(
            replace(it.at_stage("RolledBack", message=message, **nothing_seen), applied=last_good), message
        )
    deadline = _running_answers_end(it) + span(it.intent.policy.progress_deadline)
    progress = f"{serving.available} of {serving.desired} pods of what ran before answer"
    if serving.has_failed or it.now >= deadline:
        message = f"{record.message}. {progress}, so a person has to look: nothing more is changed"
        return WriteAhead(it.stopped("LastGoodUnhealthy", message), message)
    return Wait("RollingBack", f"{record.message}. {progress}", deadline)


def _let_answers_end(it: Situation) -> RolloutStep | None:
    """A candidate that answers too slowly still answers. But users are hurt, so its time ends in any case."""
    ends = _running_answers_end(it)
    if it.serving.available == 0 or it.busy == 0 or it.now >= ends:
        return None
    message = f"{it.record.message}. Running answers may end first"
    return Drain(message, min(it.now + POLL, ends), reason=it.record.reason or "RollingBack")


def _running_answers_end(it: Situation) -> datetime:
    """Pods that never were ready have no answers to wait for."""
    return it.since + (span(it.intent.policy.drain.timeout) if it.record.reason == "SLOMissed" else timedelta(0))


def _stays(it: Situation, counts: str) -> WriteAhead:
    good = it.snapshot().model_copy(update={"candidate_hash": it.record.candidate_hash})
    changed = replace(it.at_stage("Done", reason=None, message=counts), applied=good, last_good=good)
    return WriteAhead(changed, f"Production keeps the SLO: {counts}", record_template=True)


def _next_look(it: Situation) -> datetime:
    """The first look comes when its queries no longer see the old pods; then one each interval, never two at once."""
    record, interval = it.record, span(it.intent.policy.verify.interval)
    due = it.since + max(it.readings.settle, interval) + interval * (record.kept + record.missed + record.inconclusive)
    return due if record.last_look is None else max(due, moment(record.last_look) + interval)


def _new_look(it: Situation, due: datetime) -> Look | None:
    """The look of this plan, if it is one that was not counted yet. Compared as the status remembers it."""
    look, last = it.readings.look, it.record.last_look
    if look is None or look.at < due or (last is not None and moment(stamp(look.at)) <= moment(last)):
        return None
    if it.serving.available == 0:  # whatever the queries still see, nobody is served
        return Look(look.at, "Missed", "No pod answers")
    return look


def _counted(memory: Memory, look: Look) -> Memory:
    assert memory.rollout is not None
    name = look.outcome.lower()
    return memory.with_record(last_look=stamp(look.at), **{name: getattr(memory.rollout, name) + 1})
