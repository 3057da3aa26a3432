"""Reading a cluster with the caller's own rights: objects, logs as they come, and a pod's HTTP through the API server.

Everything here is a GET. The way through the API server needs no address that reaches the pod, no open port and no
process beside this one, so it works from a laptop as it does inside of the cluster.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from slotune.controller.cluster import (
    ClusterError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from slotune.controller.kinds import POD
from slotune.controller.kube_cluster import KubeCluster

__all__ = ["ClusterReader", "PodAnswer", "default_namespace"]

LARGEST_ANSWER: Final = 16 << 20
"""Bytes of a pod's answer. Old builds of llama-server repeat the prompt of each slot."""
CHUNK: Final = 256 << 10
"""Bytes of a log at a time."""
LONGEST_MESSAGE: Final = 1024

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FALLBACK: Final = "default"


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """What a server in a pod answered."""

    status: int
    content_type: str
    body: bytes = field(repr=False)


class ClusterReader(KubeCluster):
    """An async context manager: it holds the connections."""

    def __init__(self, client: ApiClient) -> None:
        super().__init__(client)
        self.namespace = _FALLBACK
        """That of the context, or of the pod that this runs in."""

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> ClusterReader:
        """See :meth:`KubeCluster.connect`."""
        reader = await super().connect(kubeconfig, context)
        assert isinstance(reader, cls)
        reader.namespace = default_namespace(kubeconfig, context)
        return reader

    async def log_parts(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool = False,
        limit_bytes: int,
        tail_lines: int | None = None,
    ) -> AsyncIterator[bytes]:
        """What a container wrote, from its beginning or the last ``tail_lines``, up to ``limit_bytes``.

        Raises:
            NotFoundError, RefusedError: it never started, or its log is gone.
            ForbiddenError: the caller may not read logs.
            UnavailableError: the API server, or kubelet behind it, does not answer.
        """
        query = {"container": container, "limitBytes": str(limit_bytes)}
        query |= {"previous": "true"} if previous else {}
        query |= {"tailLines": str(tail_lines)} if tail_lines is not None else {}
        path = POD.path(namespace, pod, "log")
        async with self._opened(path, query, {}) as answer:
            if answer.status != 200:
                raise _error(f"GET {path}", answer.status, await answer.content.read(LONGEST_MESSAGE))
            try:
                async for part in answer.content.iter_chunked(CHUNK):
                    yield part
            except (aiohttp.ClientError, OSError) as error:
                raise UnavailableError(f"GET {path}", None, f"the log breaks off: {error}") from error

    async def ask_pod(
        self, namespace: str, pod: str, port: int, path: str, *, encrypted: bool = False, api_key: str | None = None
    ) -> PodAnswer:
        """GET of a server in a pod, through the API server. No answer of the server itself is an error.

        Args:
            namespace: of the pod.
            pod: its name.
            port: where the server listens.
            path: with prefix and query.
            encrypted: whether the server speaks TLS; the API server checks no certificate of a pod.
            api_key: of llama-server. The header Authorization is the API server's own and goes no further, so it
                travels as X-Api-Key, which llama-server takes as well.

        Raises:
            ForbiddenError: the caller may not use the proxy.
            NotFoundError: there is no such pod any more.
            UnavailableError: nothing listens there, or the API server does not answer.
        """
        where = POD.path(namespace, f"{'https:' if encrypted else ''}{pod}:{port}", "proxy") + path
        headers = {} if api_key is None else {"X-Api-Key": api_key}
        async with self._opened(where, {}, headers) as answer:
            body = bytearray()
            try:
                async for part in answer.content.iter_chunked(CHUNK):
                    body += part
                    if len(body) > LARGEST_ANSWER:
                        raise UnavailableError(f"GET {where}", None, f"answers more than {LARGEST_ANSWER} bytes")
            except (aiohttp.ClientError, OSError) as error:
                raise UnavailableError(f"GET {where}", None, f"the answer breaks off: {error}") from error
            if answer.status >= 400 and _is_status(bytes(body)):
                raise _error(f"GET {where}", answer.status, bytes(body))
            return PodAnswer(answer.status, answer.headers.get("Content-Type", ""), bytes(body))

    @asynccontextmanager
    async def _opened(
        self, path: str, query: dict[str, str], headers: dict[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        self.requests += 1
        request = await self._client.param_serialize(
            "GET",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "*/*", **headers},
            auth_settings=["BearerToken"],
        )
        try:
            answer: aiohttp.ClientResponse = (await self._client.call_api(*request)).response
        except (aiohttp.ClientError, OSError) as error:
            what = f"the API server does not answer: {error or type(error).__name__}"
            raise UnavailableError(f"GET {path}", None, what) from error
        try:
            yield answer
        finally:
            answer.close()  # of a log that is left in the middle nothing more is fetched


def default_namespace(kubeconfig: str | None, context: str | None) -> str:
    """Where kubectl would look without ``-n``."""
    if not kubeconfig and _SERVICE_ACCOUNT.is_file():
        return _SERVICE_ACCOUNT.read_text(encoding="utf-8").strip() or _FALLBACK
    try:
        every, active = config.list_kube_config_contexts(kubeconfig or None)
    except config.ConfigException:  # a file without a current context; the one that was named is in use
        return _FALLBACK
    chosen = active if context is None else next((one for one in every if one.get("name") == context), {})
    return str((chosen.get("context") or {}).get("namespace") or _FALLBACK)


def _is_status(body: bytes) -> bool:
    """Whether the API server itself speaks, and not the server behind it."""
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("kind") == "Status" and answer.get("apiVersion") == "v1"


def _error(what: str, status: int, body: bytes) -> ClusterError:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError):
        message = body.decode(errors="replace")
    message = " ".join(message.split())[:LONGEST_MESSAGE] or "no reason was given"
    causes: dict[int, type[ClusterError]] = {
        400: RefusedError, 401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError,
    }  # fmt: skip
    return causes.get(status, UnavailableError)(what, status, message)
