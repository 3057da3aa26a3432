"""Trials under way: what each has come to, and what that asks for. Pure.

A trial's Job carries the trial's own name, so a second one can never be made; whatever became of it is read from the
Job, its pod and their logs, by whichever process looks next.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slotune.api.kubernetes_types import Condition
from slotune.api.labels import SANDBOX_MANAGER, STATUS_MANAGER
from slotune.api.v1alpha1 import LlamaTrial
from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.controller.actions import Action, Apply, Delete
from slotune.controller.backoff import LONGEST_S
from slotune.controller.cluster import Object
from slotune.controller.conditions import timestamp
from slotune.controller.kinds import JOB
from slotune.controller.recordings import keep_reference, place_for
from slotune.diagnose.findings import trial_findings
from slotune.sandbox.judgement import Blocked, Ended, Judgement, Retry, Waiting
from slotune.sandbox.pod_facts import JobFacts
from slotune.search.problem import Problem
from slotune.tuning.trial_objects import completed_status
from slotune.tuning.trial_progress import progress_status

__all__ = [
    "MOST_INTERRUPTIONS",
    "POLL_S",
    "WITHOUT_A_NODE",
    "Flight",
    "Landing",
    "begun_anew",
    "land",
    "owner_reference",
    "patience_s",
    "record_config_map",
    "stopped",
]

POLL_S = 3.0
"""Seconds between two looks at a trial that runs: its progress is in its log, of which no watch tells."""
SLOW_POLL_S = 30.0
"""The same while it waits: for a node, an image, its turn."""
MOST_INTERRUPTIONS = 5
"""After so many a person is asked."""
WITHOUT_A_NODE = frozenset({"Unschedulable", "NoCapacity", "QuotaExceeded"})
"""Reasons of a trial whose Job is there and keeps no other from running: no node has taken its pod, or will soon."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A trial that has not ended, with what was seen of its Job."""

    trial: LlamaTrial
    raw: Object = field(repr=False)
    job: JobFacts | None = None
    judgement: Judgement | None = None
    """None while there is no Job."""
    made_from: str | None = None
    """Digest of what the Job was made from; None: it does not say."""

    @property
    def name(self) -> str:
        """Of the trial, and of its Job."""
        return self.trial.metadata.name

    @property
    def interruptions(self) -> int:
        """How often it was interrupted so far."""
        return 0 if self.trial.status is None else self.trial.status.interruptions


@dataclass(frozen=True, slots=True)
class Landing:
    """What to do about a flight."""

    actions: tuple[Action, ...] = ()
    blocked: Blocked | None = None
    """Why it can't go on without somebody."""
    waiting: Waiting | None = None
    ended: Ended | None = None


def land(flight: Flight, now: datetime, problem: Problem | None = None) -> Landing:
    """What the last look at a flight asks for. The trial has a Job.

    ``problem``: the search that it belongs to, for what is found of its numbers; None: nothing is said about causes.
    """
    match flight.judgement:
        case Ended() as ended:
            return Landing((*_records(flight, ended), _completed(flight, ended, now, problem)), ended=ended)
        case Retry() as retry:
            return _again(flight, retry, now)
        case Blocked() as blocked:
            return Landing(
                (*_given_up(flight, blocked), _waits(flight, "Pending", blocked.reason, blocked.message, now)), blocked
            )
        case Waiting() as waiting:
            status = _waiting_status(flight, waiting, now)
            changed = flight.trial.status != status
            return Landing((_status(flight, status),) if changed else (), waiting=waiting)
        case None:
            return Landing()


def begun_anew(flight: Flight, now: datetime) -> tuple[Action, ...]:
    """Take back that it has no node, before its Job is made: of a new Job that is not known."""
    status = flight.trial.status
    if status is None or (status.phase != "Queued" and status.reason not in WITHOUT_A_NODE):
        return ()
    return (_waits(flight, "Pending", "Starting", "its Job is made", now),)


def stopped(flight: Flight, reason: str, message: str, now: datetime) -> tuple[Action, ...]:
    """End its Job for a reason of slotune's own, and say so first: nobody looks at a trial without a Job."""
    if flight.job is None or flight.job.deleting:
        return ()
    status = _pending(flight, "Pending", reason, message, now).model_copy(update={"progress": None})
    return (_status(flight, status), *_delete(flight))


def patience_s(job: JobFacts, judgement: object, now: datetime) -> float:
    """Seconds until the next look at a Job: a tenth of what it has waited so far, while it waits for its pod to run.

    When it begins to run its Job says so. What is blocked is looked at again when its next try is due.
    """
    match judgement:
        case Blocked():
            return LONGEST_S
        case Waiting(phase="Pending" | "Queued") if job.created_at is not None:
            return min(SLOW_POLL_S, max(POLL_S, (now - job.created_at).total_seconds() / 10))
        case _:
            return POLL_S


def record_config_map(trial: str) -> str:
    """Name of the ConfigMap with the record of every request."""
    return f"{trial}-record"


def _again(flight: Flight, retry: Retry, now: datetime) -> Landing:
    count = flight.interruptions + 1
    status = _pending(flight, "Pending", retry.reason, retry.message, now, interruptions=count)
    actions: tuple[Action, ...] = (_status(flight, status), *_delete(flight))
    if count < MOST_INTERRUPTIONS:
        return Landing(actions)
    message = f"{retry.message} That was {count} times in a row: find out what interrupts pods on these nodes."
    return Landing(actions, Blocked(retry.reason, message))


def _given_up(flight: Flight, blocked: Blocked) -> tuple[Action, ...]:
    """A pod that waits for a GPU goes on waiting, so that it starts when one comes; any other is made anew later."""
    return () if blocked.reason == "NoCapacity" else _delete(flight)


def _delete(flight: Flight) -> tuple[Action, ...]:
    if flight.job is None:
        return ()
    return (Delete(JOB, str(flight.trial.metadata.namespace), flight.name, flight.job.uid),)


def _records(flight: Flight, ended: Ended) -> tuple[Action, ...]:
    """The record of every request, or the answers that were recorded, in an object that goes with the trial."""
    kept: tuple[Action, ...] = ()
    if ended.reference is not None:
        kept = (keep_reference(flight.trial, flight.raw, owner_reference(flight.raw), ended.reference),)
    if ended.record is None:
        return kept
    metadata = flight.raw["metadata"]
    manifest: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record_config_map(flight.name),
            "namespace": metadata["namespace"],
            "labels": dict(metadata.get("labels") or {}),
            "ownerReferences": [owner_reference(flight.raw)],
        },
        "binaryData": {"requests.jsonl.gz": base64.b64encode(ended.record).decode()},
    }
    return (Apply(manifest, SANDBOX_MANAGER), *kept)


def owner_reference(raw: Object) -> Object:
    """Makes an object go when ``raw`` goes."""
    return {
        "apiVersion": raw["apiVersion"],
        "kind": raw["kind"],
        "name": raw["metadata"]["name"],
        "uid": raw["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _completed(flight: Flight, ended: Ended, now: datetime, problem: Problem | None) -> Action:
    place = None if ended.reference is None else place_for(flight.trial)
    status = completed_status(
        ended.result,
        findings=() if problem is None else trial_findings(problem, ended.result),
        completed_at=timestamp(now),
        generation=flight.trial.metadata.generation,
        environment=ended.environment,
        job_name=flight.name,
        record_config_map=None if ended.record is None else record_config_map(flight.name),
        reference_config_map=None if place is None else place.config_map,
        reference_secret=None if place is None else place.secret,
    )
    return _status(flight, status.model_copy(update={"interruptions": flight.interruptions}))


def _waiting_status(flight: Flight, waiting: Waiting, now: datetime) -> LlamaTrialStatus:
    status = _pending(flight, waiting.phase, waiting.reason, waiting.message, now)
    if waiting.progress is None:
        return status
    before = None if flight.trial.status is None else flight.trial.status.progress
    progress = progress_status(waiting.progress)
    same = before is not None and before.model_copy(update={"updated_at": None}) == progress
    at = before.updated_at if same and before is not None else timestamp(now)
    return status.model_copy(update={"progress": progress.model_copy(update={"updated_at": at})})


def _waits(flight: Flight, phase: str, reason: str, message: str, now: datetime) -> Action:
    return _status(flight, _pending(flight, phase, reason, message, now))


def _pending(
    flight: Flight, phase: str, reason: str, message: str, now: datetime, *, interruptions: int | None = None
) -> LlamaTrialStatus:
    """The status of a trial that has no outcome yet."""
    before = flight.trial.status or LlamaTrialStatus()
    known = before.condition("Ready")
    ready = Condition(
        type="Ready",
        status="False",
        observed_generation=flight.trial.metadata.generation,
        last_transition_time=known.last_transition_time if known and known.status == "False" else timestamp(now),
        reason=reason,
        message=message[:1024],
    )
    return LlamaTrialStatus(
        observed_generation=flight.trial.metadata.generation,
        conditions=(ready,),
        phase=phase,  # type: ignore[arg-type]  # one of the phases of Waiting
        reason=reason,
        message=message[:1024],
        interruptions=flight.interruptions if interruptions is None else interruptions,
        job_name=flight.name if flight.job is not None else None,
        progress=before.progress,
    )


def _status(flight: Flight, status: LlamaTrialStatus) -> Action:
    metadata = flight.raw["metadata"]
    manifest: Mapping[str, object] = {
        "apiVersion": flight.raw["apiVersion"],
        "kind": flight.raw["kind"],
        "metadata": {name: metadata[name] for name in ("name", "namespace", "uid")},
        "status": status.to_manifest(),
    }
    return Apply(dict(manifest), STATUS_MANAGER, subresource="status")
