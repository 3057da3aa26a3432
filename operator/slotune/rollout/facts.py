"""What runs in production, read once from raw objects. Whatever decides works on these facts and on nothing else.

Raw dictionaries and not models: a Deployment of tomorrow's Kubernetes has to be read too, and what is not known has to
be kept. What the API server defaults may be absent here (a preview, a test); the same defaults are then assumed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from slotune.api.labels import ROLLOUT_MANAGER

__all__ = [
    "CANDIDATE_ANNOTATION",
    "LAST_APPLIED",
    "RESTARTED",
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

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""``kubectl apply`` keeps there what it sent last, and takes away what is in it and no longer in the manifest."""

RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
"""``kubectl rollout restart`` writes it: new pods of the same configuration."""
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
            args_owners=_owners(managed, in_container),
            args_can_move=_all_apply(managed, in_container) and not _was_applied_by_clients(metadata, container),
            replicas_owners=_owners(managed, ("f:spec", "f:replicas")),
            strangers=_strangers(managed),
            sent_at=_latest(entry.get("time") for entry in managed if entry.get("manager") == ROLLOUT_MANAGER),
            last_writer=_last_writer(managed, ("f:spec", "f:template")),
            written_at=_written_at(managed, ("f:spec", "f:template")),
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


def _owners(managed: Sequence[JSON], path: Sequence[str | JSON]) -> tuple[str, ...]:
    """Managers that own the field itself, sorted."""
    found = {str(entry.get("manager", "")) for entry in managed if _has_field(entry, path)}
    return tuple(sorted(found - {ROLLOUT_MANAGER}))


def _strangers(managed: Sequence[JSON]) -> tuple[str, ...]:
    """Managers of fields of the pod template. What the API server fills in belongs to nobody."""
    found = set()
    for entry in managed:
        if entry.get("subresource") != "status" and entry.get("manager") != ROLLOUT_MANAGER:
            fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:template")
            if fields is not None and _fields_of(fields) - {f"f:{RESTARTED}"}:
                found.add(str(entry.get("manager", "")))
    return tuple(sorted(found))


def _fields_of(fields: JSON) -> frozenset[str]:
    """Names of the leaves; a whole that is owned as such (``.``) goes with its parts."""
    if not fields:
        return frozenset({""})
    return frozenset().union(
        *({name} if not inner else _fields_of(inner) for name, inner in fields.items() if name != ".")
    )


def _all_apply(managed: Sequence[JSON], path: Sequence[str | JSON]) -> bool:
    """Whether whoever owns the field does so by server-side apply."""
    found = (entry for entry in managed if _has_field(entry, path) and entry.get("manager") != ROLLOUT_MANAGER)
    return all(entry.get("operation") == "Apply" for entry in found)


def _was_applied_by_clients(metadata: JSON, container: str) -> bool:
    """Whether the next ``kubectl apply`` on a client takes args for its own, whoever changed them since; also where
    what was written down of the last one cannot be read."""
    written = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    if written is None:
        return False
    try:
        containers = json.loads(written)["spec"]["template"]["spec"]["containers"]
        return any(one.get("name") == container and "args" in one for one in containers)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


def _last_writer(managed: Sequence[JSON], path: Sequence[str | JSON]) -> str | None:
    entries = [entry for entry in managed if _has_field(entry, path) and entry.get("manager") != ROLLOUT_MANAGER]
    # Times have whole seconds: the name makes the order total.
    newest = max(entries, key=lambda entry: (entry.get("time", ""), entry.get("manager", "")), default=None)
    return None if newest is None else str(newest.get("manager", ""))


def _written_at(managed: Sequence[JSON], path: Sequence[str | JSON]) -> datetime | None:
    return _latest(entry.get("time") for entry in managed if _has_field(entry, path))


def _latest(stamps: Iterable[Any]) -> datetime | None:
    times = list(stamps)
    if not times or not all(times):
        return None
    return max(datetime.fromisoformat(str(time)) for time in times)


def _has_field(entry: JSON, path: Sequence[str | JSON]) -> bool:
    """Whether a managedFields entry holds the field at ``path``; a mapping in it is the key of a list's item."""
    if entry.get("subresource") == "status":
        return False
    here: Any = entry.get("fieldsV1") or {}
    for step in path:
        here = here.get(step) if isinstance(step, str) else _item(here, step)
        if here is None:
            return False
    return True


def _item(fields: JSON, key: JSON) -> Any:
    return next((value for name, value in _keyed(fields) if name == key), None)


def _keyed(fields: JSON) -> Iterator[tuple[Any, Any]]:
    for name, value in fields.items():
        if name.startswith("k:"):
            yield json.loads(name[2:]), value
