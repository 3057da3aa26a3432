"""The one door to the API server, as a protocol: what the operator may ask of a cluster, and how a refusal looks.

Objects are plain dictionaries: typed models refuse what a newer API server sends. Every method raises a
:class:`ClusterError`; each cause that a caller acts on has a class of its own.
"""

from __future__ import annotations

from typing import Any, Protocol

from slotune.controller.kinds import Kind

__all__ = [
    "AlreadyExistsError",
    "Cluster",
    "ClusterError",
    "ConflictError",
    "ForbiddenError",
    "NotFoundError",
    "Object",
    "Objects",
    "RefusedError",
    "SchemaTooOldError",
    "UnavailableError",
]

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""
Objects = list[Object]
"""Several; by a name of its own, since a method of a cluster is called ``list``."""


class ClusterError(Exception):
    """A request that the API server did not carry out."""

    def __init__(self, what: str, status: int | None, message: str) -> None:
        self.what, self.status, self.message = what, status, message
        super().__init__(f"{what}: {message}" + ("" if status is None else f" (HTTP {status})"))


class NotFoundError(ClusterError):
    """There is no such object, or no such kind."""


class AlreadyExistsError(ClusterError):
    """An object of that name exists."""


class ConflictError(ClusterError):
    """Somebody else owns a field (server-side apply), or the object is not the one that was seen (uid, version)."""


class ForbiddenError(ClusterError):
    """The operator's role lacks the right."""


class RefusedError(ClusterError):
    """The object is invalid, or an admission rule refuses it. Trying again changes nothing."""


class SchemaTooOldError(RefusedError):
    """The cluster's CRD does not know a field that this slotune writes: it is of an older version."""


class UnavailableError(ClusterError):
    """The API server can't be reached, is overloaded or broken. Trying again may help."""

    def __init__(self, what: str, status: int | None, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(what, status, message)
        self.retry_after_s = retry_after_s
        """What the API server asked for; None when it said nothing."""


class Cluster(Protocol):
    """Requests to one API server."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """One object. Raises NotFoundError."""
        ...

    async def list(self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "") -> list[Object]:
        """Objects of a namespace (None: of all) that carry ``labels`` (``key=value,key=value``), and whose ``fields``
        are as the same form says, where the kind can be selected by them."""
        ...

    async def list_metadata(self, kind: Kind, namespace: str | None, labels: str = "") -> Objects:
        """As :meth:`list`, of each object only its metadata: who is there, for a small part of the bytes."""
        ...

    async def ping(self) -> None:
        """Ask whether the API server serves at all, and keep nothing of the answer."""
        ...

    async def create(self, manifest: Object) -> Object:
        """A new object. Raises AlreadyExistsError."""
        ...

    async def apply(
        self, manifest: Object, manager: str, *, force: bool = True, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Server-side apply. Without ``force`` a field that another manager owns raises ConflictError. With ``dry_run``
        nothing is kept."""
        ...

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Object, subresource: str = "", *, manager: str = ""
    ) -> Object:
        """A JSON merge patch; with ``metadata.resourceVersion`` in it only for the version that was seen, with
        ``metadata.uid`` only for that object. ``manager``: who then owns the fields."""
        ...

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        """Delete an object and what it owns, in the background. One that is gone already, or whose uid is another, is
        no error."""
        ...

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
        """What a container wrote: the last ``tail_lines`` of it, cut at ``limit_bytes``. None when it never started or
        its log is gone."""
        ...
