"""Taking production's only GPU for trials within a window, and giving it back whatever happens.

How to come back is written down before production is touched, so an operator that dies leaves a note and not a riddle:
whoever starts next reads it and restores. Restoring wins over everything else. It begins early enough for the model to
be loaded by the time that was promised, and it only ever touches the very Deployment that was seen.

Production is borrowed once per opening of the window: after it is back, users have it until the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from slotune.api.quantities import parse_window
from slotune.api.v1alpha1 import Borrow, RestoreIntent
from slotune.api.v1alpha1 import Drain as DrainPolicy
from slotune.rollout.facts import Serving, Slots
from slotune.rollout.memory import Memory, moment, span, stamp
from slotune.rollout.planner import is_under_way
from slotune.rollout.proving import POLL
from slotune.rollout.steps import Drain, Wait, WriteAhead
from slotune.rollout.windows import Opening, next_opening, opening_at, time_zone

__all__ = ["BorrowStep", "Borrowed", "GiveBack", "NotBorrowed", "ScaleDown", "Wish", "plan_borrow"]

_FRESH = timedelta(seconds=10)
"""How long ``/slots`` may be believed."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Why production's GPU would be taken, and what that means."""

    policy: Borrow | None
    """``spec.sandbox.borrow``; None: the spec does not allow it, or no longer."""
    drain: DrainPolicy
    wants_gpu: bool
    """Whether a trial is due that needs it: false once the search is decided, has failed, is suspended or deleted."""
    since: datetime
    """When it was first wanted; answers may end for as long as ``drain.timeout`` from here."""
    trial_takes: timedelta
    """Longest time that one trial holds the GPU."""
    reload: timedelta
    """Time from scaling up until production answers again: pods ended, model loaded."""
    trial_runs: bool = False
    """Whether a trial holds the GPU now."""


@dataclass(frozen=True, slots=True)
class NotBorrowed:
    """Production keeps its GPU. No trial may run on it."""

    reason: str
    message: str
    until: datetime | None = None
    """When to ask again."""


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Scale the Deployment to 0: exactly the version that was seen, or not at all."""

    uid: str
    resource_version: str
    message: str


@dataclass(frozen=True, slots=True)
class Borrowed:
    """The GPU is free for trials, one at a time. A trial that would end after ``until`` is not started."""

    until: datetime
    """When production is given back."""
    message: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """End the trials, then scale the Deployment of that ``uid`` to ``replicas``. Harmless when done before."""

    uid: str
    replicas: int
    message: str


BorrowStep = NotBorrowed | Drain | WriteAhead | ScaleDown | Borrowed | GiveBack | Wait


def plan_borrow(
    wish: Wish, serving: Serving | None, memory: Memory, now: datetime, *, slots: Slots | None = None
) -> BorrowStep:
    """The next step. Pure. Asked on every pass, also when nothing is wanted any more: it is what restores.

    Raises :class:`~slotune.rollout.windows.UnknownTimeZoneError` for a time zone that nobody knows, and only while
    nothing is borrowed.
    """
    if memory.restore is not None:
        return _borrowed(wish, serving, memory, memory.restore, now)
    return _not_yet(wish, serving, memory, now, slots)


def _not_yet(wish: Wish, serving: Serving | None, memory: Memory, now: datetime, slots: Slots | None) -> BorrowStep:
    if wish.policy is None or not wish.wants_gpu:
        return NotBorrowed("NotNeeded", "No trial needs production's GPU")
    if serving is None or serving.deleting or serving.desired == 0:
        return NotBorrowed("NothingToBorrow", "No production runs whose GPU could be taken")
    if is_under_way(memory) or not serving.is_settled:
        return NotBorrowed("ProductionNotReady", "Production is changing: its GPU is not taken meanwhile")
    opening = _usable_opening(wish, wish.policy, memory, now)
    if isinstance(opening, NotBorrowed):
        return opening
    waiting = _wait_for_answers(wish, opening, slots, now)
    return waiting if waiting is not None else _write_down(wish.policy, serving, memory, opening, now)


def _usable_opening(wish: Wish, policy: Borrow, memory: Memory, now: datetime) -> Opening | NotBorrowed:
    """The opening that a trial and the way back fit into, or why there is none now."""
    zone, window = time_zone(policy.time_zone), parse_window(policy.window)
    opening, following = opening_at(window, zone, now), next_opening(window, zone, now)
    later = None if following is None else following.start
    opens = (
        f"the window {policy.window} ({policy.time_zone}) opens {'never' if later is None else f'at {stamp(later)}'}"
    )
    if opening is None:
        return NotBorrowed("OutsideWindow", f"Production keeps its GPU: {opens}", later)
    if memory.last_restored is not None and moment(memory.last_restored) >= opening.start:
        return NotBorrowed("BorrowedBefore", f"Production was borrowed once in this window; {opens} again", later)
    least = wish.trial_takes + wish.reload
    if _due_back(policy, opening, now) - now < least:
        return NotBorrowed(
            "TooShort",
            f"A trial and the way back take {_minutes(least)}, and production would be due back before; {opens} again. "
            f"sandbox.borrow.window, or maxDowntime ({policy.max_downtime}), may have to be longer",
            later,
        )
    return opening


def _write_down(policy: Borrow, serving: Serving, memory: Memory, opening: Opening, now: datetime) -> WriteAhead:
    intent = RestoreIntent(
        name=serving.name,
        uid=serving.uid,
        resource_version=serving.resource_version,
        generation=serving.generation,
        replicas=serving.desired,
        template_digest=serving.template_digest,
        since=stamp(now),
        until=stamp(_due_back(policy, opening, now)),
    )
    return WriteAhead(
        replace(memory, restore=intent), f"Production goes down for trials, and is back by {intent.until}"
    )


def _borrowed(wish: Wish, serving: Serving | None, memory: Memory, intent: RestoreIntent, now: datetime) -> BorrowStep:
    if serving is None or serving.uid != intent.uid:
        message = f"The Deployment {intent.name} that was scaled down is gone: the one there now is left alone"
        return WriteAhead(_forgotten(memory, now), message)
    must_end = _reason_to_return(wish, moment(intent.until), now)
    if serving.desired > 0:
        if serving.generation != intent.generation:
            return _coming_back(serving, memory, intent, now)
        if must_end is not None:
            return WriteAhead(replace(memory, restore=None), f"Production was not taken: {must_end}")
        return ScaleDown(serving.uid, serving.resource_version, f"Production is back by {intent.until}")
    if must_end is not None:
        return GiveBack(intent.uid, intent.replicas, f"Production gets its GPU back: {must_end}")
    return _trials(wish, serving, intent)


def _trials(wish: Wish, serving: Serving, intent: RestoreIntent) -> BorrowStep:
    latest = moment(intent.until) - wish.reload
    if serving.total > 0:
        return Wait("Borrowing", "Production's pods end", latest)
    return Borrowed(latest, f"Production's GPU is borrowed: it is given back by {intent.until}")


def _coming_back(serving: Serving, memory: Memory, intent: RestoreIntent, now: datetime) -> BorrowStep:
    """Scaled up, by us or by somebody who wanted it back. What they set counts."""
    if not serving.is_settled and not serving.has_failed:
        message = f"{serving.available} of {serving.desired} pods answer again"
        return Wait("Restoring", message)
    state = "answers again" if serving.is_settled else "was scaled up again, and its pods do not get ready"
    return WriteAhead(_forgotten(memory, now), f"Deployment {intent.name} {state}")


def _reason_to_return(wish: Wish, back_by: datetime, now: datetime) -> str | None:
    """Why it ends now; None: it may go on."""
    latest = back_by - wish.reload
    if wish.policy is None or not wish.wants_gpu:
        return "no trial needs it any more"
    if now >= latest:
        return "its time is over"
    if not wish.trial_runs and now + wish.trial_takes > latest:
        return "no other trial fits into the time that is left"
    return None


def _wait_for_answers(wish: Wish, opening: Opening, slots: Slots | None, now: datetime) -> BorrowStep | None:
    """None: production may go down. Nobody is cut off because a server could not be asked."""
    busy = None if slots is None or abs(now - slots.at) > _FRESH else slots.busy
    if busy == 0:
        return None
    ends = max(opening.start, wish.since) + span(wish.drain.timeout)
    if now < ends:
        return Drain("Running answers may end before the GPU is taken", min(now + POLL, ends))
    if busy is None:
        why = slots.why if slots is not None and slots.why else "nobody asked them yet"
        return NotBorrowed("IdleCheckFailed", f"Nobody can see whether answers run: {why}", now + POLL)
    if wish.drain.on_timeout == "Proceed":
        return None
    return NotBorrowed("PodsBusy", f"Answers still run ({busy}) after {wish.drain.timeout}", now + POLL)


def _due_back(policy: Borrow, opening: Opening, now: datetime) -> datetime:
    return min(opening.end, now + span(policy.max_downtime))


def _forgotten(memory: Memory, now: datetime) -> Memory:
    return replace(memory, restore=None, last_restored=stamp(now))


def _minutes(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 60:.3g} min"
