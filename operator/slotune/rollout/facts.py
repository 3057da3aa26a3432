"""What runs in production, read once from raw objects. Whatever decides works on these facts and on nothing else.

Raw dictionaries and not models: a Deployment of tomorrow's Kubernetes has to be read too, and what is not known has to
be kept. What the API server defaults may be absent here (a preview, a test); the same defaults are then assumed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from slotune.api.labels import ROLLOUT_MANAGER
from slotune.rollout.field_owners import (
    RESTARTED,
    all_apply,
    last_writer,
    latest,
    owners,
    strangers,
    was_applied_by_clients,
    written_at,
)

__all__ = [
    "CANDIDATE_ANNOTATION",
    "SOURCE_ANNOTATION",
    "UNKNOWN_AUTOSCALER",
    "Capacity",
    "Conflict",
    "Look",
    "Readings",
    "Serving",
    "Slots",
    "Strategy",
    "template_digest",
]

CANDIDATE_ANNOTATION: Final = "slotune.dev/candidate"
"""On the pod template that slotune rolled out: hash of the candidate in it."""
SOURCE_ANNOTATION: Final = "slotune.dev/source"
"""On an owned Deployment: digest of the pod template as slotune sent it, before the API server filled in defaults."""

UNKNOWN_AUTOSCALER: Final = "unknown (slotune may not list HorizontalPodAutoscalers)"
"""Stands for one that may be there: replicas are not written where an autoscaler may own them."""

_DEFAULT_SHARE: Final = "25%"
"""Of a rolling update's maxSurge and maxUnavailable."""
_DEFAULT_DEADLINE_S: Final = 600

JSON = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a Deployment replaces its pods, in pods, resolved for its replicas."""

    kind: Literal["RollingUpdate", "Recreate"]
    max_surge: int = 0
    """Pods that may exist above the replicas."""
    max_unavailable: int = 0
    """Pods that may be missing below the replicas."""

    @classmethod
    def from_stated(cls, stated: JSON, replicas: int) -> Strategy:
        """Of a Deployment's ``spec.strategy``, as Kubernetes resolves it: a surge is rounded up, what may be
        unavailable is rounded down, and when both are 0 one pod may be unavailable (ResolveFenceposts in
        pkg/controller/deployment/util)."""
        if stated.get("type") == "Recreate":
            return cls("Recreate")
        rolling = stated.get("rollingUpdate") or {}
        surge = _pods(rolling.get("maxSurge", _DEFAULT_SHARE), replicas, math.ceil)
        unavailable = _pods(rolling.get("maxUnavailable", _DEFAULT_SHARE), replicas, math.floor)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        return cls("RollingUpdate", surge, min(unavailable, replicas))

    def for_deployment(self) -> dict[str, Any]:
        """As a Deployment's ``spec.strategy``."""
        if self.kind == "Recreate":
            return {"type": "Recreate"}
        return {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": self.max_surge, "maxUnavailable": self.max_unavailable},
        }


@dataclass(frozen=True, slots=True)
class Capacity:
    """GPUs of the class that the candidate runs on."""

    free: int | None
    """GPUs that nobody holds and that such a pod could be placed on; None: nobody knows, which counts as none.
    A class without a countable resource (CPU) is free for as many pods as fit."""
    released: bool = True
    """Whether today's pods give back GPUs of that class when they end: false when the candidate changes the class."""


@dataclass(frozen=True, slots=True)
class Slots:
    """What ``/slots`` of every server said, ready ones and others."""

    at: datetime
    busy: int | None
    """Requests at work on all servers; None when any server could not be asked."""
    why: str = ""
    """What stood in the way, with the cure, when ``busy`` is None."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what production delivers."""

    at: datetime
    outcome: Literal["Kept", "Missed", "Inconclusive"]
    """Whether the SLO was kept. No data, NaN and several series are Inconclusive."""
    message: str = ""
    """What was seen, in words."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why the API server refused our apply: a field belongs to somebody else."""

    manager: str
    field: str
    """Path of the field, such as ``.spec.template.spec.containers[name="llama"].args``."""


@dataclass(frozen=True, slots=True)
class Readings:
    """What was looked at for this plan; None where nobody looked. A step says what the next plan needs."""

    settle: timedelta = timedelta(0)
    """How far back the queries of a look reach: before that much time has passed they still see the old pods."""

    capacity: Capacity = Capacity(None)
    slots: Slots | None = None
    look: Look | None = None
    conflict: Conflict | None = None
    """Of the last apply, a dry run included."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A Deployment that serves, as it is observed."""

    name: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    """Version of the spec that the numbers below are about."""
    desired: int
    """Replicas that are asked for."""
    total: int
    """Pods of every version, those that end excluded."""
    updated: int
    """Pods of the present template."""
    available: int
    unavailable: int
    deadline_exceeded: bool
    """Whether Kubernetes gave up waiting for progress (ProgressDeadlineExceeded)."""
    trouble: str
    """Why Kubernetes does not get its pods to run, in its own words; empty where it does not complain."""
    progress_deadline_s: int
    stated_strategy: JSON
    """``spec.strategy``, as the API server gave it."""
    template: JSON = field(repr=False)
    """The pod template, as the API server gave it."""
    template_digest: str
    candidate: str | None
    """Hash of the candidate in the template; None: nobody rolled one out."""
    source: str | None
    """Digest of the template as slotune sent it; None: slotune does not own the Deployment."""
    args: tuple[str, ...] = field(repr=False)
    """Arguments of llama-server's container."""
    args_owners: tuple[str, ...]
    """Field managers of the container's args, slotune's own excluded."""
    args_can_move: bool
    """Whether all of those hold them by server-side apply. Then slotune may own them, too, before they let go. Whoever
    writes otherwise (kubectl apply, Helm) compares with what it wrote last, and deletes from the object what is no
    longer in its source."""
    replicas_owners: tuple[str, ...]
    """Field managers of the replicas, slotune's own excluded."""
    strangers: tuple[str, ...]
    """Field managers of anything in the pod template, slotune's own excluded; who only starts pods anew is none."""
    sent_at: datetime | None
    """When slotune last changed the Deployment; None: never, or nothing says when."""
    last_writer: str | None
    """Field manager that last wrote to the pod template, slotune's own excluded."""
    written_at: datetime | None
    """When anybody last wrote to the pod template, or to something else with it; None: nothing says when."""
    autoscaler: str | None
    """HorizontalPodAutoscaler that owns the replicas, :data:`UNKNOWN_AUTOSCALER` where one may."""
    paused: bool = False
    deleting: bool = False

    @classmethod
    def from_deployment(cls, deployment: JSON, container: str, autoscalers: Iterable[JSON] | None = ()) -> Serving:
        """Facts of a raw Deployment.

        Args:
            deployment: ``apps/v1`` Deployment as the API server gave it, ``metadata.managedFields`` included.
            container: name of llama-server's container.
            autoscalers: every HorizontalPodAutoscaler of the namespace; None: they can't be listed.
        """
        metadata, spec, status = deployment["metadata"], deployment["spec"], deployment.get("status") or {}
        desired = int(spec.get("replicas", 1))
        progressing: JSON = next((it for it in status.get("conditions") or () if it.get("type") == "Progressing"), {})
        template = spec["template"]
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        managed = metadata.get("managedFields") or ()
        args = next((it.get("args") for it in template["spec"]["containers"] if it["name"] == container), None)
        found = () if autoscalers is None else autoscalers
        scalers = sorted(it["metadata"]["name"] for it in found if _scales(it, metadata["name"]))
        if autoscalers is None:
            scalers = [UNKNOWN_AUTOSCALER]
        in_container = ("f:spec", "f:template", "f:spec", "f:containers", {"name": container}, "f:args")
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
            generation=int(metadata.get("generation", 0)),
            observed_generation=int(status.get("observedGeneration", 0)),
            desired=desired,
            total=int(status.get("replicas", 0)),
            updated=int(status.get("updatedReplicas", 0)),
            available=int(status.get("availableReplicas", 0)),
            unavailable=int(status.get("unavailableReplicas", 0)),
            deadline_exceeded=progressing.get("reason") == "ProgressDeadlineExceeded",
            trouble=_trouble(status.get("conditions") or ()),
            progress_deadline_s=int(spec.get("progressDeadlineSeconds", _DEFAULT_DEADLINE_S)),
            stated_strategy=spec.get("strategy") or {},
            template=template,
            template_digest=template_digest(template),
            candidate=annotations.get(CANDIDATE_ANNOTATION),
            source=(metadata.get("annotations") or {}).get(SOURCE_ANNOTATION),
            args=tuple(args or ()),
            args_owners=owners(managed, in_container),
            args_can_move=all_apply(managed, in_container) and not was_applied_by_clients(metadata, container),
            replicas_owners=owners(managed, ("f:spec", "f:replicas")),
            strangers=strangers(managed),
            sent_at=latest(entry.get("time") for entry in managed if entry.get("manager") == ROLLOUT_MANAGER),
            last_writer=last_writer(managed, ("f:spec", "f:template")),
            written_at=written_at(managed, ("f:spec", "f:template")),
            autoscaler=scalers[0] if scalers else None,
            paused=bool(spec.get("paused", False)),
            deleting="deletionTimestamp" in metadata,
        )

    @property
    def strategy(self) -> Strategy:
        """How it replaces its pods, at the replicas that it has."""
        return Strategy.from_stated(self.stated_strategy, self.desired)

    @property
    def is_settled(self) -> bool:
        """Whether the present template runs everywhere and answers: what ``kubectl rollout status`` waits for."""
        return (
            self.observed_generation >= self.generation
            and self.updated >= self.desired
            and self.total <= self.updated
            and self.available >= self.updated
        )

    @property
    def is_of_one_kind(self) -> bool:
        """Whether every pod that there is has the present template, however many of them answer."""
        return self.observed_generation >= self.generation and self.total <= self.updated

    @property
    def has_failed(self) -> bool:
        """Whether Kubernetes says that the present template makes no progress."""
        return self.observed_generation >= self.generation and self.deadline_exceeded and not self.is_settled


def _trouble(conditions: Iterable[JSON]) -> str:
    """Pods that can't be made, then pods that don't come up."""
    said = {it.get("type"): it for it in conditions}
    failure, progressing = said.get("ReplicaFailure", {}), said.get("Progressing", {})
    if failure.get("status") == "True":
        return str(failure.get("message") or failure.get("reason") or "")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return str(progressing.get("message") or progressing["reason"])
    return ""


def template_digest(template: JSON) -> str:
    """Names a pod template: equal for equal content, whatever the order of keys, with or without empty fields.

    The time of a restart is left out: it starts new pods of the same configuration.
    """
    plain = json.dumps(_pruned(template), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def _pruned(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        kept = {name: _pruned(item, name) for name, item in value.items() if item is not None and name != RESTARTED}
        return {
            name: item
            for name, item in kept.items()
            if not (name in {"annotations", "labels", "metadata"} and not item)
        }
    if isinstance(value, list | tuple):
        return [_pruned(item) for item in value]
    return value


def _pods(stated: int | str, replicas: int, rounded: Any) -> int:
    """Pods of an IntOrString: a number, or a percentage of the replicas."""
    if isinstance(stated, str):
        return int(rounded(int(stated.removesuffix("%")) * replicas / 100))
    return stated


def _scales(autoscaler: JSON, name: str) -> bool:
    target = autoscaler.get("spec", {}).get("scaleTargetRef") or {}
    return target.get("kind") == "Deployment" and target.get("name") == name
