"""The stage of a plan that takes production's GPU for trials, and gives it back.

What to do next is decided in :mod:`slotune.rollout.borrow`, on every pass and from the status as it is stored; here a
step becomes actions. The way back is written down in one pass and production goes down in a later one, since actions
come before the status that tells of them. Whatever else stands in the way of a plan, production comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from slotune.api.labels import BORROW_MANAGER
from slotune.api.quantities import parse_duration, parse_window
from slotune.api.v1alpha1 import Borrow
from slotune.api.v1alpha1 import Drain as DrainPolicy
from slotune.api.v1alpha1.trial import LlamaTrialSpec
from slotune.controller.actions import Delete, Patch
from slotune.controller.draft import Draft
from slotune.controller.events import EventNote
from slotune.controller.flights import POLL_S, Flight
from slotune.controller.kinds import DEPLOYMENT, JOB
from slotune.controller.observed import Observed
from slotune.controller.reasons import Reason
from slotune.controller.understanding import Understood
from slotune.rollout.borrow import Borrowed, BorrowStep, GiveBack, NotBorrowed, ScaleDown, Wish, plan_borrow
from slotune.rollout.facts import Serving
from slotune.rollout.memory import Memory, moment
from slotune.rollout.steps import Drain, Wait, WriteAhead
from slotune.rollout.windows import UnknownTimeZoneError, time_zone
from slotune.sandbox.judgement import Blocked, Ended, Retry
from slotune.tuning.pod_client import expected_limit_s

__all__ = ["Need", "borrow", "borrows", "needs_slots", "next_borrow_step", "pending", "unknown_time_zone", "waits_for"]

AT_ONCE_S = 0.5
SOON_S = 2.0
POD_ENDS: Final = timedelta(seconds=60)
"""Until a trial's pod has ended and the scheduler knows: its grace period is half of that."""
ONE_PASS: Final = timedelta(seconds=30)
"""A look may come so late."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a search wants of production's GPU now."""

    asked: LlamaTrialSpec
    """Of the trial that runs or comes next."""
    since: datetime
    """When that trial was first wanted."""
    runs: bool = False
    """Whether a trial holds the GPU now."""

    @property
    def takes(self) -> timedelta:
        """Longest time that a trial holds the GPU."""
        return POD_ENDS + self.starts + timedelta(seconds=expected_limit_s(self.asked))

    @property
    def starts(self) -> timedelta:
        """Longest time in which a server loads its model."""
        return timedelta(seconds=float(parse_duration(self.asked.measurement.startup_timeout)))

    @property
    def reload(self) -> timedelta:
        """Time from giving the GPU back until production answers."""
        return POD_ENDS + ONE_PASS + self.starts


def borrows(observed: Observed) -> Borrow | None:
    """``sandbox.borrow`` where the mode is Borrow."""
    deployment = observed.references.deployment
    if deployment is None or deployment.spec.sandbox.mode != "Borrow":
        return None
    return deployment.spec.sandbox.borrow


def pending(observed: Observed) -> Need | None:
    """The need of a trial that was asked and has no Job yet."""
    waiting = next((flight for flight in observed.trials.flights if flight.job is None), None)
    return None if waiting is None else _need(observed, waiting)


def next_borrow_step(observed: Observed, need: Need | None) -> BorrowStep | None:
    """What is done next about production's GPU; None where it is neither lent nor may be.

    Args:
        observed: the look. While production is borrowed, ``observed.borrowed`` is what was scaled down.
        need: None when no trial wants it.

    Raises UnknownTimeZoneError.
    """
    memory, policy = Memory.from_status(observed.references.status), borrows(observed)
    if memory.restore is None and policy is None:
        return None
    deployment = observed.references.deployment
    wish = Wish(
        policy=policy,
        drain=DrainPolicy() if deployment is None else deployment.spec.rollout.drain,
        wants_gpu=need is not None,
        since=observed.now if need is None else need.since,
        trial_takes=timedelta() if need is None else need.takes,
        reload=timedelta() if need is None else need.reload,
        trial_runs=need is not None and need.runs,
    )
    found = observed.serving if memory.restore is None else observed.borrowed
    container = observed.understood.manifests.container.name if isinstance(observed.understood, Understood) else ""
    serving = None if found is None else Serving.from_deployment(found, container)
    return plan_borrow(wish, serving, memory, observed.now, slots=observed.slots)


def needs_slots(step: BorrowStep | None) -> bool:
    """Whether the next plan depends on what ``/slots`` says."""
    return isinstance(step, Drain) or (
        isinstance(step, NotBorrowed) and step.reason in {Reason.IDLE_CHECK_FAILED, Reason.PODS_BUSY}
    )


def waits_for(draft: Draft, observed: Observed, flight: Flight) -> str:
    """What a trial waits for before it may take the GPU, as the end of a sentence; empty when it may start."""
    others = any(_holds(other) for other in observed.trials.flights if other is not flight)
    step = next_borrow_step(observed, _need(observed, flight))
    match step:
        case None:
            return ""
        case Borrowed() if not others:
            return ""
        case Borrowed():
            return "another trial to end"
        case NotBorrowed(until=until):
            if until is not None:
                draft.look_again((until - observed.now).total_seconds())
            return f"production's GPU: {step.message}"
        case ScaleDown() | WriteAhead():
            return f"production's GPU: {step.message}"
        case Drain() | Wait() | GiveBack():
            return f"production: {step.message}"


def borrow(draft: Draft, observed: Observed, asked: LlamaTrialSpec | None = None) -> Blocked | None:
    """Take the next step; why it can't go on without somebody, if so.

    ``asked``: the trial that runs or comes next; None when nothing is to be measured.
    """
    need = None if asked is None else _wanted(draft, observed, asked)
    step = next_borrow_step(observed, need)
    match step:
        case WriteAhead():
            draft.set(restore=step.memory.restore, last_restored=step.memory.last_restored)
            taken = observed.references.status.restore is None
            _tell(draft, "BorrowingProduction" if taken else "ProductionReturned", step.message)
            draft.look_again(AT_ONCE_S)
        case ScaleDown():
            draft.do(_scale(observed, 0, uid=step.uid, resourceVersion=step.resource_version))
            draft.look_again(SOON_S)
        case GiveBack():
            _end_trials(draft, observed)
            draft.do(_scale(observed, step.replicas, uid=step.uid))
            _tell(draft, "ReturningProduction", step.message)
            draft.look_again(SOON_S)
        case Drain(next_look=at) | Borrowed(until=at):
            draft.look_again((at - observed.now).total_seconds())
        case Wait(until=until):
            draft.look_again(POLL_S if until is None else min(POLL_S, (until - observed.now).total_seconds()))
        case NotBorrowed() if need is not None:
            return _never_fits(observed, step, need)
        case NotBorrowed() | None:
            pass
    return None


def unknown_time_zone(draft: Draft, observed: Observed) -> bool:
    """Refuse a time zone that this machine does not know. Whether there is one."""
    policy, deployment = borrows(observed), observed.references.deployment
    assert deployment is not None
    try:
        if policy is not None:
            time_zone(policy.time_zone, "spec.sandbox.borrow.timeZone")
        if deployment.spec.retune.schedule is not None:
            time_zone(deployment.spec.retune.time_zone, "spec.retune.timeZone")
    except UnknownTimeZoneError as error:
        _end_trials(draft, observed)
        draft.unresolved(Reason.INVALID_SPEC, str(error))
        return True
    return False


def _wanted(draft: Draft, observed: Observed, asked: LlamaTrialSpec) -> Need | None:
    """The need of a search that goes on; None while it can't, since production is not kept down for a wait."""
    failed = draft.status.failures not in {None, observed.references.status.failures}
    if failed or draft.seconds_to_wait > 0:
        return None
    runs = any(_holds(flight) for flight in observed.trials.flights)
    lent = observed.references.status.restore is not None
    if not lent and not runs and observed.running >= observed.settings.max_trials:
        return None
    flights = observed.trials.flights
    return Need(asked, _asked_at(flights[0]) if flights else observed.now, runs)


def _need(observed: Observed, flight: Flight) -> Need:
    runs = any(_holds(other) for other in observed.trials.flights)
    return Need(flight.trial.spec, _asked_at(flight), runs)


def _asked_at(flight: Flight) -> datetime:
    return moment(str(flight.raw["metadata"]["creationTimestamp"]))


def _holds(flight: Flight) -> bool:
    """Whether a trial has a pod that holds a GPU, or soon will."""
    over = isinstance(flight.judgement, Ended | Blocked | Retry)
    return flight.job is not None and not flight.job.deleting and not over


def _end_trials(draft: Draft, observed: Observed) -> None:
    namespace, _ = observed.references.key
    for flight in observed.trials.flights:
        if flight.job is not None and not flight.job.deleting and not isinstance(flight.judgement, Ended):
            draft.do(Delete(JOB, namespace, flight.name, flight.job.uid))


def _scale(observed: Observed, replicas: int, **preconditions: Any) -> Patch:
    """Of exactly the Deployment that was seen: the API server compares the preconditions."""
    namespace, _ = observed.references.key
    restore = observed.references.status.restore
    assert restore is not None
    patch = {"metadata": preconditions, "spec": {"replicas": replicas}}
    return Patch(DEPLOYMENT, namespace, restore.name, patch, manager=BORROW_MANAGER)


def _never_fits(observed: Observed, step: NotBorrowed, need: Need) -> Blocked | None:
    """A trial that no opening is long enough for needs a person."""
    policy = borrows(observed)
    if step.reason != "TooShort" or policy is None:
        return None
    length = timedelta(minutes=parse_window(policy.window).length_minutes)
    longest = min(length, timedelta(seconds=float(parse_duration(policy.max_downtime))))
    return Blocked(Reason.WINDOW_TOO_SHORT, step.message) if longest < need.takes + need.reload else None


def _tell(draft: Draft, reason: str, message: str) -> None:
    restore = draft.references.status.restore or draft.status.restore
    about = draft.stamp if restore is None else restore.since
    draft.note([EventNote("Normal", reason, "BorrowProduction", message, about)])
