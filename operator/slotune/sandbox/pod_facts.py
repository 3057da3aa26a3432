"""What a Job, its pod and their events say, as far as a trial's end depends on it.

Facts only: what they mean is decided in :mod:`slotune.sandbox.pod_outcome`. Objects are plain dictionaries as the API
server sends them (Kubernetes 1.34); what an object leaves out is None, empty or 0, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

__all__ = ["ConditionFacts", "ContainerFacts", "EventFacts", "Exit", "JobFacts", "PodFacts", "newest_pod"]

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConditionFacts:
    """One condition."""

    is_true: bool
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A Job."""

    name: str
    uid: str
    created_at: datetime | None
    started_at: datetime | None
    """When its controller took it up, last resumed; None while it is suspended from the start."""
    suspended: bool
    """By Kueue, or by hand: it waits for its turn."""
    queue: str | None
    """Kueue's queue."""
    deleting: bool
    active: int
    succeeded: int
    failed: int
    conditions: Mapping[str, ConditionFacts]

    @classmethod
    def from_object(cls, job: Object) -> JobFacts:
        """The facts of a batch/v1 Job."""
        metadata, spec, status = _part(job, "metadata"), _part(job, "spec"), _part(job, "status")
        return cls(
            name=str(metadata.get("name", "")),
            uid=str(metadata.get("uid", "")),
            created_at=_time(metadata.get("creationTimestamp")),
            started_at=_time(status.get("startTime")),
            suspended=bool(spec.get("suspend")),
            queue=_part(metadata, "labels").get("kueue.x-k8s.io/queue-name"),
            deleting=metadata.get("deletionTimestamp") is not None,
            active=int(status.get("active") or 0),
            succeeded=int(status.get("succeeded") or 0),
            failed=int(status.get("failed") or 0),
            conditions=_conditions(status),
        )

    @property
    def failure(self) -> ConditionFacts | None:
        """Why it failed, as soon as that is certain (FailureTarget comes before Failed); None while it has not."""
        return next((c for name in ("Failed", "FailureTarget") if (c := self.conditions.get(name)) and c.is_true), None)

    @property
    def complete(self) -> bool:
        """Its pod succeeded."""
        condition = self.conditions.get("Complete")
        return condition is not None and condition.is_true


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container's process ended."""

    exit_code: int
    reason: str = ""
    """``Completed``, ``Error``, ``OOMKilled``, ``StartError``, ``ContainerStatusUnknown``, …"""
    message: str = field(default="", repr=False)
    """The termination message, or the end of the log where there is none."""
    started_at: datetime | None = None
    finished_at: datetime | None = None

    @property
    def seconds(self) -> float | None:
        """How long it ran; None when that is not known."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """One container of a pod. Exactly one of ``waiting_reason``, ``running_since`` and ``ended`` is known, or none."""

    name: str
    image: str
    image_id: str = ""
    """The image that really runs, by digest; empty before the pull."""
    is_init: bool = False
    is_sidecar: bool = False
    """An init container that goes on beside the others (``restartPolicy: Always``)."""
    waiting_reason: str | None = None
    waiting_message: str = ""
    running_since: datetime | None = None
    ended: Exit | None = None
    previous: Exit | None = None
    """How the instance before this one ended."""
    restarts: int = 0
    started: bool = False
    """Its startup probe has passed."""
    words: tuple[str, ...] = field(default=(), repr=False)
    """``command`` and ``args``."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Variables that its spec states by value."""
    limits: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Resource to amount, as the spec states it."""

    @property
    def first_start(self) -> datetime | None:
        """The earliest start that its status still knows."""
        known = [self.previous and self.previous.started_at, self.running_since, self.ended and self.ended.started_at]
        return min((time for time in known if time), default=None)


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod."""

    name: str
    uid: str
    created_at: datetime | None
    phase: str
    """``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``."""
    reason: str
    """Of a failed pod: ``Evicted``, ``DeadlineExceeded``, ``NodeLost``, ``UnexpectedAdmissionError``, …"""
    message: str
    node: str | None
    started_at: datetime | None
    """When kubelet took it up."""
    deleting: bool
    conditions: Mapping[str, ConditionFacts]
    containers: Mapping[str, ContainerFacts]
    """By name, init containers first, in the order of the spec."""

    @classmethod
    def from_object(cls, pod: Object) -> PodFacts:
        """The facts of a v1 Pod."""
        metadata, spec, status = _part(pod, "metadata"), _part(pod, "spec"), _part(pod, "status")
        return cls(
            name=str(metadata.get("name", "")),
            uid=str(metadata.get("uid", "")),
            created_at=_time(metadata.get("creationTimestamp")),
            phase=str(status.get("phase") or "Pending"),
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or ""),
            node=spec.get("nodeName"),
            started_at=_time(status.get("startTime")),
            deleting=metadata.get("deletionTimestamp") is not None,
            conditions=_conditions(status),
            containers=MappingProxyType(
                {
                    facts.name: facts
                    for kind, is_init in (("initContainers", True), ("containers", False))
                    for facts in _containers(_list(spec, kind), _list(status, _STATUSES[kind]), is_init)
                }
            ),
        )

    @property
    def over(self) -> bool:
        """No container of it will run again."""
        return self.phase in ("Succeeded", "Failed")

    def condition(self, name: str) -> ConditionFacts | None:
        """A condition that is true; None otherwise."""
        found = self.conditions.get(name)
        return found if found is not None and found.is_true else None


@dataclass(frozen=True, slots=True)
class EventFacts:
    """One event about the Job or its pod."""

    kind: str
    """Of the object that it is about: ``Job`` or ``Pod``."""
    name: str
    reason: str
    message: str
    last_seen: datetime | None = None

    @classmethod
    def from_object(cls, event: Object) -> EventFacts:
        """The facts of an event, of v1 or of events.k8s.io/v1."""
        about = _part(event, "involvedObject") or _part(event, "regarding")
        seen = (
            _part(event, "series").get("lastObservedTime")
            or event.get("lastTimestamp")
            or event.get("deprecatedLastTimestamp")
            or event.get("eventTime")
        )
        return cls(
            kind=str(about.get("kind", "")),
            name=str(about.get("name", "")),
            reason=str(event.get("reason") or ""),
            message=str(event.get("message") or event.get("note") or ""),
            last_seen=_time(seen),
        )


def newest_pod(pods: Sequence[Object], job_uid: str) -> Object | None:
    """The last pod that a Job made; None when there is none. A Job that was suspended meanwhile has made several."""
    own = [
        pod for pod in pods if any(o.get("uid") == job_uid for o in _list(_part(pod, "metadata"), "ownerReferences"))
    ]
    return max(
        own,
        key=lambda pod: (str(_part(pod, "metadata").get("creationTimestamp", "")), _part(pod, "metadata").get("name")),
        default=None,
    )


_STATUSES = {"initContainers": "initContainerStatuses", "containers": "containerStatuses"}


def _containers(specs: Sequence[Object], statuses: Sequence[Object], is_init: bool) -> Sequence[ContainerFacts]:
    by_name = {str(status.get("name")): status for status in statuses}
    return [_container(spec, by_name.get(str(spec.get("name")), {}), is_init) for spec in specs]


def _container(spec: Object, status: Object, is_init: bool) -> ContainerFacts:
    state = _part(status, "state")
    waiting = state.get("waiting")
    return ContainerFacts(
        name=str(spec.get("name", "")),
        image=str(spec.get("image", "")),
        image_id=str(status.get("imageID") or ""),
        is_init=is_init,
        is_sidecar=is_init and spec.get("restartPolicy") == "Always",
        waiting_reason=None if waiting is None else str(waiting.get("reason") or ""),
        waiting_message=str(_part(state, "waiting").get("message") or ""),
        running_since=_time(_part(state, "running").get("startedAt")),
        ended=_exit(state.get("terminated")),
        previous=_exit(_part(status, "lastState").get("terminated")),
        restarts=int(status.get("restartCount") or 0),
        started=bool(status.get("started")),
        words=tuple(str(word) for part in ("command", "args") for word in spec.get(part) or ()),
        env=MappingProxyType({str(one.get("name")): str(one["value"]) for one in _list(spec, "env") if "value" in one}),
        limits=MappingProxyType({str(n): str(v) for n, v in _part(_part(spec, "resources"), "limits").items()}),
    )


def _exit(terminated: Object | None) -> Exit | None:
    if terminated is None:
        return None
    return Exit(
        exit_code=int(terminated.get("exitCode") or 0),
        reason=str(terminated.get("reason") or ""),
        message=str(terminated.get("message") or ""),
        started_at=_time(terminated.get("startedAt")),
        finished_at=_time(terminated.get("finishedAt")),
    )


def _conditions(status: Object) -> Mapping[str, ConditionFacts]:
    return MappingProxyType(
        {
            str(condition.get("type")): ConditionFacts(
                condition.get("status") == "True",
                str(condition.get("reason") or ""),
                str(condition.get("message") or ""),
                _time(condition.get("lastTransitionTime")),
            )
            for condition in _list(status, "conditions")
        }
    )


def _part(holder: Object, name: str) -> Object:
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}


def _list(holder: Object, name: str) -> list[Object]:
    found = holder.get(name)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def _time(text: Any) -> datetime | None:
    """RFC 3339; kubelet writes 0001-01-01T00:00:00Z, or nothing, for a time that it does not know."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time if time.year > 1970 else None
