"""An API server in memory, good enough for laws: what was written, by whom, and what a request costs.

It refuses a status or a spec that the CRD would refuse, deletes what a deleted object owned, and can fail before a
write takes effect or, what is worse, after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from slotune.api.v1alpha1 import KINDS
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus
from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.controller.cluster import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Object,
    Objects,
    RefusedError,
    SchemaTooOldError,
)
from slotune.controller.kinds import CONFIG_MAP, JOB, LLAMA_DEPLOYMENT, Kind, kind_of
from tests.controller.field_ownership import Path, applied, copied, managed_fields, merged, owned_paths, spelled

WRITES = frozenset({"create", "apply", "patch", "delete"})
MODELS = {kind.INFO.kind: kind for kind in KINDS}
STATUS_MODELS: dict[str, Any] = {"LlamaDeployment": LlamaDeploymentStatus, "LlamaTrial": LlamaTrialStatus}
START = datetime(2026, 3, 2, 12, tzinfo=UTC)

Id = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True)
class Request:
    """One call of the cluster."""

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str = ""
    dry_run: bool = False

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES and not self.dry_run

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}" + (f"/{self.subresource}" if self.subresource else "")


@dataclass(frozen=True)
class Change:
    """What a watch tells."""

    type: str
    object: Object


@dataclass
class FakeCluster:
    """A :class:`slotune.controller.cluster.Cluster`, and what a test wants to see or break."""

    now: Callable[[], datetime] = lambda: START
    objects: dict[Id, Object] = field(default_factory=dict)
    owners: dict[Id, dict[str, set[Path]]] = field(default_factory=dict)
    container_logs: dict[tuple[str, str, str, bool], str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    """Verb and kind that the operator's role lacks."""
    before: Callable[[Request], None] = lambda _: None
    """May raise instead of the request."""
    after: Callable[[Request], None] = lambda _: None
    """May raise although the request took effect."""
    undeclared: frozenset[str] = frozenset()
    """Fields of a LlamaDeployment's status that the CRD of an older slotune lacks."""
    admission: Callable[[Object], str] = lambda _: ""
    """Why an object is refused; empty: it is not."""
    _sent: dict[Id, str] = field(default_factory=dict)
    """When slotune last applied an object."""
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    # ------------------------------------------------------------------ the protocol

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        request = self._asked("get", kind, namespace, name)
        found = self.find(kind, namespace, name)
        if found is None:
            raise NotFoundError(str(request), 404, f'{kind.plural} "{name}" not found')
        self.after(request)
        return found

    async def list(self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "") -> list[Object]:
        request = self._asked("list", kind, namespace, f"{labels}{fields}")
        wanted = dict(one.split("=") for one in labels.split(",") if one)
        about = dict(one.split("=") for one in fields.split(",") if one)
        assert set(about) <= {"regarding.name"}, f"no such field selector in this fake: {fields}"
        found = [
            copied(one)
            for one in self.all_of(kind, namespace)
            if wanted.items() <= (one["metadata"].get("labels") or {}).items()
            and all((one.get("regarding") or {}).get("name") == name for name in about.values())
        ]
        self.after(request)
        return found

    async def list_metadata(self, kind: Kind, namespace: str | None, labels: str = "") -> Objects:
        found = await self.list(kind, namespace, labels)
        return [{"apiVersion": one["apiVersion"], "kind": one["kind"], "metadata": one["metadata"]} for one in found]

    async def ping(self) -> None:
        self.after(self._asked("get", Kind("readyz", "", "v1", "readyz", namespaced=False), None, ""))

    async def create(self, manifest: Object) -> Object:
        kind, namespace, name = kind_of(manifest), manifest["metadata"].get("namespace"), manifest["metadata"]["name"]
        request = self._asked("create", kind, namespace, name)
        if (kind.name, namespace or "", name) in self.objects:
            raise AlreadyExistsError(str(request), 409, f'{kind.plural} "{name}" already exists')
        made = self.put(manifest, "slotune-sandbox")
        self.after(request)
        return made

    async def apply(
        self, manifest: Object, manager: str, *, force: bool = True, subresource: str = "", dry_run: bool = False
    ) -> Object:
        kind, metadata = kind_of(manifest), manifest["metadata"]
        request = self._asked("apply", kind, metadata.get("namespace"), metadata["name"], subresource, dry_run)
        key = (kind.name, metadata.get("namespace") or "", metadata["name"])
        live = self.objects.get(key)
        if live is None and subresource:
            raise NotFoundError(str(request), 404, f'{kind.plural} "{metadata["name"]}" not found')
        self._same_uid(request, live, metadata.get("uid"))
        self._same_version(request, live, metadata)
        shown = subresource or "spec"
        sent = {name: value for name, value in manifest.items() if (name == "status") == (shown == "status")}
        if subresource:
            sent.pop("metadata", None)
        owner = manager if not subresource else f"{manager}/{subresource}"
        rest = live or {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": {}}
        base = {name: value for name, value in rest.items() if (name == "status") == (shown == "status")}
        if unknown := self.undeclared & set(manifest.get("status") or ()):
            raise SchemaTooOldError(str(request), 500, f".status.{min(unknown)}: field not declared in schema")
        after, owners, conflicts = applied(base, sent, self.owners.get(key, {}), owner, force=force)
        if conflicts:
            words = "; ".join(f'conflict with "{who}" using {kind.api_version}: {spelled(at)}' for who, at in conflicts)
            raise ConflictError(str(request), 409, f"Apply failed with {len(conflicts)} conflict: {words}")
        after = {name: value for name, value in rest.items() if name not in base} | after
        self._check(request, after, shown)
        if dry_run:
            return copied(after)
        self.owners[key] = owners
        kept = self._store(key, after, live, owner)
        self.after(request)
        return kept

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Object, subresource: str = "", *, manager: str = ""
    ) -> Object:
        request = self._asked("patch", kind, namespace, name, subresource)
        key = (kind.name, namespace or "", name)
        live = self.objects.get(key)
        if live is None:
            raise NotFoundError(str(request), 404, f'{kind.plural} "{name}" not found')
        self._same_uid(request, live, (patch.get("metadata") or {}).get("uid"))
        seen = (patch.get("metadata") or {}).get("resourceVersion")
        if seen is not None and seen != live["metadata"]["resourceVersion"]:
            raise ConflictError(str(request), 409, "the object has been modified")
        kept = self._store(key, merged(live, patch), live)
        self.after(request)
        return kept

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        request = self._asked("delete", kind, namespace, name)
        live = self.objects.get((kind.name, namespace or "", name))
        if live is not None and uid in {None, live["metadata"]["uid"]}:
            self.remove(kind, namespace, name)
        self.after(request)

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        limit_bytes: int | None = None,
        tail_lines: int | None = None,
    ) -> str | None:
        request = self._asked("logs", Kind("Pod", "", "v1", "pods"), namespace, pod)
        text = self.container_logs.get((namespace, pod, container, previous))
        self.after(request)
        if text is None:
            return None
        if tail_lines is not None:
            text = "".join(text.splitlines(keepends=True)[-tail_lines:])
        return text if limit_bytes is None else text.encode()[:limit_bytes].decode(errors="replace")

    # ------------------------------------------------------------------ what users, controllers and tests do

    def find(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object as it is, without a request."""
        found = self.objects.get((kind.name, namespace or "", name))
        return None if found is None else copied(found)

    def all_of(self, kind: Kind, namespace: str | None = None) -> list[Object]:
        """Objects of a kind as they are, without a request."""
        return [
            one
            for (name, place, _), one in sorted(self.objects.items())
            if name == kind.name and namespace in {None, place}
        ]

    def put(self, manifest: Object, manager: str = "kubectl") -> Object:
        """Make an object, or replace what ``manager`` says of it."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        key = (kind.name, metadata.get("namespace") or "", metadata["name"])
        live = self.objects.get(key)
        self._check(Request("put", kind.name, key[1], key[2]), manifest, "spec")
        if live is not None:
            kept = {name: value for name, value in live.items() if name not in manifest}
            own = {n: v for n, v in live["metadata"].items() if n not in metadata}
            manifest = {**manifest, **kept, "metadata": {**metadata, **own}}
        others = {who: paths for who, paths in self.owners.get(key, {}).items() if who != manager}
        self.owners[key] = {**others, manager: owned_paths({n: v for n, v in manifest.items() if n != "status"})}
        return self._store(key, copied(manifest), live)

    def change(self, kind: Kind, namespace: str | None, name: str, **patch: Any) -> Object:
        """A merge patch that nobody asked for."""
        key = (kind.name, namespace or "", name)
        return self._store(key, merged(self.objects[key], patch), self.objects[key])

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Delete an object; with a finalizer it only begins to go."""
        key = (kind.name, namespace or "", name)
        live = self.objects.get(key)
        if live is None:
            return
        if live["metadata"].get("finalizers"):
            if not live["metadata"].get("deletionTimestamp"):
                self.change(kind, namespace, name, metadata={"deletionTimestamp": self._stamp()})
            return
        self._forget(key)

    def release(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Take the finalizers off an object that is being deleted."""
        self._forget((kind.name, namespace or "", name))

    @property
    def writes(self) -> list[Request]:
        """Requests that asked for a change, in their order."""
        return [request for request in self.requests if request.is_write]

    # ------------------------------------------------------------------ inside

    def _asked(
        self, verb: str, kind: Kind, namespace: str | None, name: str, subresource: str = "", dry_run: bool = False
    ) -> Request:
        request = Request(verb, kind.name, namespace or "", name, subresource, dry_run)
        self.requests.append(request)
        self.before(request)
        if (verb, kind.name) in self.forbidden:
            raise ForbiddenError(
                str(request), 403, f'{kind.plural} is forbidden: cannot {verb} resource "{kind.plural}"'
            )
        return request

    def _same_uid(self, request: Request, live: Object | None, uid: str | None) -> None:
        if live is not None and uid is not None and live["metadata"]["uid"] != uid:
            raise ConflictError(str(request), 409, f"Precondition failed: UID in precondition: {uid}")

    def _same_version(self, request: Request, live: Object | None, metadata: Object) -> None:
        """As an API server words it for an apply that names what was seen."""
        if live is None and "uid" in metadata:
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise ConflictError(str(request), 409, f"Operation cannot be fulfilled: {why}")
        seen = metadata.get("resourceVersion")
        if live is not None and seen not in {None, live["metadata"]["resourceVersion"]}:
            raise ConflictError(str(request), 409, "Operation cannot be fulfilled: the object has been modified")

    def _check(self, request: Request, manifest: Object, shown: str) -> None:
        if why := self.admission(manifest):
            raise RefusedError(str(request), 422, why)
        model = MODELS.get(manifest["kind"])
        if model is None or request.verb == "put":
            return
        try:
            if shown == "status":  # the spec may be of a time with another CRD
                STATUS_MODELS[manifest["kind"]].from_manifest(manifest["status"])
            else:
                model.from_manifest(manifest)
        except ValidationError as error:
            raise AssertionError(f"{request}: slotune wrote an invalid {shown}: {error}") from error

    def _store(self, key: Id, manifest: Object, live: Object | None, writer: str = "") -> Object:
        metadata = dict(manifest.get("metadata") or {})
        manifest = {**manifest, "metadata": metadata}
        metadata |= {"name": key[2]} | ({"namespace": key[1]} if key[1] else {})
        if live is None:
            metadata |= {"uid": f"uid-{next(self._numbers)}", "creationTimestamp": self._stamp(), "generation": 1}
            if key[0] == "LlamaDeployment":
                metadata.setdefault("finalizers", ["slotune.dev/restore"])
        else:
            metadata |= {name: live["metadata"][name] for name in ("uid", "creationTimestamp", "generation")}
            if manifest.get("spec") != live.get("spec"):
                metadata["generation"] += 1
        if key[0] == "Deployment":
            manifest["spec"] = {"replicas": 1, **manifest["spec"]}
        if key[0] in {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "Job", "LlamaTrial"}:
            owners = {who: paths for who, paths in self.owners.get(key, {}).items() if "/" not in who}
            as_before = live is not None and all(live.get(n) == manifest.get(n) for n in ("spec", "data"))
            as_before = as_before and bool(live["metadata"].get("managedFields"))
            written_at = live["metadata"]["managedFields"][0]["time"] if as_before else self._stamp()
            metadata["managedFields"] = managed_fields(owners, written_at)
            for entry in metadata["managedFields"]:  # who loses a field to another has written nothing
                if entry["manager"] == "slotune-rollout" != writer:
                    entry["time"] = self._sent.get(key, entry["time"])
            if writer == "slotune-rollout":
                self._sent[key] = written_at
        before = None if live is None else _plain(live)
        if before is None or before != _plain(manifest):
            metadata["resourceVersion"] = str(next(self._numbers))
            self.objects[key] = manifest
            self.changes.append(Change("ADDED" if live is None else "MODIFIED", copied(manifest)))
        return copied(self.objects[key])

    def _forget(self, key: Id) -> None:
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        self.owners.pop(key, None)
        gone["metadata"]["resourceVersion"] = str(next(self._numbers))
        self.changes.append(Change("DELETED", copied(gone)))
        uid = gone["metadata"]["uid"]
        for other, one in list(self.objects.items()):
            owners = one["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == uid for owner in owners):
                self._forget(other)

    def _stamp(self) -> str:
        return self.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _plain(manifest: Object) -> Object:
    """What counts as a change: who owns what, too, but not when they wrote it."""
    metadata = {n: v for n, v in manifest["metadata"].items() if n != "resourceVersion"}
    if "managedFields" in metadata:
        metadata["managedFields"] = [{**one, "time": ""} for one in metadata["managedFields"]]
    return {**manifest, "metadata": metadata}


def written(requests: Iterable[Request], kind: Kind) -> list[Request]:
    """The writes about one kind."""
    return [request for request in requests if request.is_write and request.kind == kind.name]


__all__ = [
    "CONFIG_MAP",
    "JOB",
    "LLAMA_DEPLOYMENT",
    "START",
    "Change",
    "FakeCluster",
    "Request",
    "written",
]
