"""Requests to a real API server, through the official client's asyncio transport.

Only its transport and its configuration are used: its typed models are strict, and its dynamic client discovers the
whole API at the start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from slotune.api.labels import SANDBOX_MANAGER
from slotune.api.v1alpha1.meta import GROUP
from slotune.controller.bad_quantities import bad_quantities
from slotune.controller.cluster import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Object,
    Objects,
    RefusedError,
    SchemaTooOldError,
    UnavailableError,
)
from slotune.controller.contact import REQUESTS_S, Contact
from slotune.controller.heartbeat import got_somewhere
from slotune.controller.kinds import POD, Kind, kind_of

__all__ = ["KubeCluster"]

TIMEOUT_S = 30.0
PING_S = 10.0
PAGE = 100
"""Objects of one list request: each takes 0.1 MB while it is read."""
LONGEST_MESSAGE = 1024
"""Characters of an API server's answer that an error repeats."""

_JSON = "application/json"
_ONLY_METADATA = f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
"""The whole objects from a server that can't leave the rest out."""
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml; charset=utf-8"
"""With its parameter the client takes the body as it is; the API server looks at what is before it."""
_AGAIN = frozenset({408, 410, 429})
"""Took too long; a list's next page has expired; too many requests."""
_MALFORMED = ("failed to create typed patch object", "unable to convert unstructured object")
"""Said with HTTP 500 of a manifest whose form server-side apply can't read, although nothing is broken."""
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OSError, yaml.YAMLError)
"""What the library ends with on a file that is not as it expects: it checks little of it. Certificates that are none
are an OSError, text that is not UTF-8 or base64 a ValueError."""
_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|.)")
"""One escape of JSON text, or the two that make one character beyond U+FFFF."""


class KubeCluster:
    """An async context manager: it holds the connections."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.contact = Contact("requests", REQUESTS_S)
        """Whether they are answered."""
        self.requests = 0
        """Requests so far."""

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> KubeCluster:
        """The cluster that the pod runs in; with ``kubeconfig``, or outside of a pod, the one that the file names.

        Raises:
            ConfigException: there is no such file, or it is none of Kubernetes.
        """
        configuration = Configuration()
        if not kubeconfig:
            try:
                config.load_incluster_config(client_configuration=configuration)
                return cls(ApiClient(configuration))
            except config.ConfigException:
                pass
        try:
            await config.load_kube_config(kubeconfig or None, context, client_configuration=configuration)
            return cls(ApiClient(configuration))
        except _UNREADABLE as error:
            where = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
            said = " ".join(str(error).split()) or type(error).__name__
            raise config.ConfigException(f"{where} is no kubeconfig: {said}") from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """See :class:`slotune.controller.cluster.Cluster`."""
        return await self._object("GET", kind.path(namespace, name))

    async def list(self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "") -> list[Object]:
        """See :class:`slotune.controller.cluster.Cluster`."""
        return await self._pages(kind, namespace, labels, fields)

    async def list_metadata(self, kind: Kind, namespace: str | None, labels: str = "") -> Objects:
        """See :class:`slotune.controller.cluster.Cluster`."""
        return await self._pages(kind, namespace, labels, accept=_ONLY_METADATA)

    async def ping(self) -> None:
        """See :class:`slotune.controller.cluster.Cluster`. /readyz is open to everybody who has an account, and knows
        whether the API server's own store answers."""
        await self._request("GET", "/readyz", accept="*/*", timeout_s=PING_S)

    async def _pages(
        self, kind: Kind, namespace: str | None, labels: str = "", fields: str = "", *, accept: str = _JSON
    ) -> Objects:
        found: Objects = []
        query = {"limit": str(PAGE)}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        while True:
            page = await self._object("GET", kind.path(namespace), query=query, accept=accept)
            # Elements of a list leave out what the list itself says, or say that they are no more than metadata.
            kinds = {"apiVersion": kind.api_version, "kind": kind.name}
            found += [item | kinds for item in page.get("items") or ()]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return found
            query["continue"] = token

    async def create(self, manifest: Object) -> Object:
        """See :class:`slotune.controller.cluster.Cluster`."""
        namespace = manifest["metadata"].get("namespace")
        with _saying_where(manifest):
            path, query = kind_of(manifest).path(namespace), {"fieldManager": SANDBOX_MANAGER}
            return await self._object("POST", path, query=query, body=manifest)

    async def apply(
        self, manifest: Object, manager: str, *, force: bool = True, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """See :class:`slotune.controller.cluster.Cluster`."""
        metadata = manifest["metadata"]
        path = kind_of(manifest).path(metadata.get("namespace"), metadata["name"], subresource or None)
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        query |= {"dryRun": "All"} if dry_run else {}
        with _saying_where(manifest):
            return await self._object("PATCH", path, query=query, body=_as_yaml(manifest), content_type=_APPLY)

    async def patch(
        self, kind: Kind, namespace: str | None, name: str, patch: Object, subresource: str = "", *, manager: str = ""
    ) -> Object:
        """See :class:`slotune.controller.cluster.Cluster`."""
        path = kind.path(namespace, name, subresource or None)
        query = {"fieldManager": manager} if manager else {}
        return await self._object("PATCH", path, query=query, body=patch, content_type=_MERGE)

    async def delete(self, kind: Kind, namespace: str | None, name: str, *, uid: str | None = None) -> None:
        """See :class:`slotune.controller.cluster.Cluster`."""
        options: Object = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._object("DELETE", kind.path(namespace, name), body=options)
        except NotFoundError:
            pass
        except ConflictError:
            if uid is None:
                raise

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
        """See :class:`slotune.controller.cluster.Cluster`."""
        query = {"container": container}
        query |= {"previous": "true"} if previous else {}
        query |= {"limitBytes": str(limit_bytes)} if limit_bytes is not None else {}
        query |= {"tailLines": str(tail_lines)} if tail_lines is not None else {}
        try:
            raw = await self._request("GET", POD.path(namespace, pod, "log"), query=query, accept="*/*")
        except (NotFoundError, RefusedError):  # 400: the container waits to start, or has no earlier life
            return None
        return raw.decode(errors="replace")

    async def _object(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Object:
        data = await self._request(method, path, query=query, body=body, content_type=content_type, accept=accept)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):  # a proxy in between
            raise UnavailableError(f"{method} {path}", 200, "the answer is no object of Kubernetes")
        return answer

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout_s: float | None = None,
    ) -> bytes:
        what = f"{method} {path}"
        self.requests += 1
        request = await self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept, "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = await self._client.call_api(*request, _request_timeout=timeout_s or TIMEOUT_S)
            data: bytes = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.contact.failed()
            raise UnavailableError(
                what, None, f"the API server does not answer: {error or type(error).__name__}"
            ) from error
        finally:
            got_somewhere()
        self.contact.heard(answer.status)
        if 200 <= answer.status <= 299:
            return data
        raise _error(what, answer.status, data, answer.headers.get("Retry-After"))


def _as_yaml(manifest: Object) -> bytes:
    """JSON that is YAML too: Go's reader of YAML refuses an emoji in a user's template as JSON escapes it."""

    def joined(escape: re.Match[str]) -> str:
        if escape[1] is None:
            return escape[0]
        return f"\\U{0x10000 + ((int(escape[1], 16) & 0x3FF) << 10) + (int(escape[2], 16) & 0x3FF):08X}"

    return _ESCAPE.sub(joined, json.dumps(manifest)).encode()


@contextmanager
def _saying_where(manifest: Object) -> Iterator[None]:
    """Of an amount that is none the API server says no more than that there is one."""
    try:
        yield
    except RefusedError as error:
        if "quantit" in error.message and (fields := bad_quantities(manifest)):
            raise type(error)(error.what, error.status, f"{'; '.join(fields)}: {error.message}") from error
        raise


def _error(what: str, status: int, data: bytes, retry_after: str | None) -> ClusterError:
    try:
        answer = json.loads(data)
        message, reason = str(answer.get("message") or ""), str(answer.get("reason") or "")
    except (ValueError, AttributeError):
        message, reason = data.decode(errors="replace"), ""
    message = message[:LONGEST_MESSAGE] or "no reason was given"
    if status == 409:
        return (AlreadyExistsError if reason == "AlreadyExists" else ConflictError)(what, status, message)
    if "field not declared in schema" in message and f"/apis/{GROUP}/" in what:
        return SchemaTooOldError(what, status, message)
    if any(words in message for words in _MALFORMED):
        return RefusedError(what, status, message)
    if status in _AGAIN or status >= 500:
        seconds = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
        return UnavailableError(what, status, message, seconds)
    causes = {401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError}
    return causes.get(status, RefusedError)(what, status, message)
