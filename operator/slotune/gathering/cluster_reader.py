"""Reading a cluster with the caller's own rights: objects, logs as they come, and a pod's HTTP through the API server.

The way through the API server needs no address that reaches the pod, no open port in the cluster and no process beside
this one, so it works from a laptop as it does inside of the cluster. Nothing here writes an object.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
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
from slotune.controller.listening import Listening

__all__ = ["ClusterReader", "PodPlace"]

LARGEST_ERROR: Final = 64 << 10
"""Bytes of an answer with an error status that are looked at: the API server's own is far smaller."""
CHUNK: Final = 256 << 10
"""Bytes of a log at a time."""
LONGEST_MESSAGE: Final = 1024

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_FALLBACK: Final = "default"


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Where a server in a pod answers."""

    namespace: str
    pod: str
    listening: Listening

    @property
    def path(self) -> str:
        """Below the API server; the server's own paths follow. It checks no certificate of a pod."""
        scheme = "https:" if self.listening.is_encrypted else ""
        name = f"{scheme}{self.pod}:{self.listening.port}"
        return f"{POD.path(self.namespace, name, 'proxy')}{self.listening.prefix}"


class ClusterReader(KubeCluster):
    """An async context manager: it holds the connections."""

    def __init__(self, client: ApiClient) -> None:
        super().__init__(client)
        self.namespace = _FALLBACK
        """Where nothing else is stated: that of the pod that this runs in."""

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None) -> ClusterReader:
        """See :meth:`KubeCluster.connect`."""
        reader = await super().connect(kubeconfig, context)
        assert isinstance(reader, cls)
        if not kubeconfig and _SERVICE_ACCOUNT.is_file():
            reader.namespace = _SERVICE_ACCOUNT.read_text(encoding="utf-8").strip() or _FALLBACK
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
    ) -> AsyncGenerator[bytes, None]:
        """What a container wrote, from its beginning or the last ``tail_lines``, up to ``limit_bytes``.

        Raises:
            NotFoundError: there is no such pod any more.
            RefusedError: the container never started, or its log is gone.
            ForbiddenError: the caller may not read logs.
            UnavailableError: the API server, or kubelet behind it, does not answer.
        """
        query = {"container": container, "limitBytes": str(limit_bytes)}
        query |= {"previous": "true"} if previous else {}
        query |= {"tailLines": str(tail_lines)} if tail_lines is not None else {}
        path = POD.path(namespace, pod, "log")
        async with self._opened(path, query, {}) as answer:
            if answer.status != 200:
                raise _error(f"GET {path}", answer.status, await answer.content.read(LARGEST_ERROR))
            try:
                async for part in answer.content.iter_chunked(CHUNK):
                    yield part
            except (aiohttp.ClientError, OSError) as error:
                raise UnavailableError(f"GET {path}", None, f"the log breaks off: {error}") from error

    @asynccontextmanager
    async def ask_pod(
        self, place: PodPlace, path: str, *, api_key: str | None = None, body: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer of a server in a pod as it comes, through the API server. No answer of that server is an error.

        Args:
            place: where it answers.
            path: with its query.
            api_key: of llama-server. The header Authorization is the API server's own and goes no further, so it
                travels as X-Api-Key, which llama-server takes as well.
            body: JSON to send; None only reads.

        Raises:
            ForbiddenError: the caller may not use the proxy.
            NotFoundError: there is no such pod any more.
            UnavailableError: nothing listens there, or the API server does not answer.
        """
        where = place.path + path
        headers = {} if api_key is None else {"X-Api-Key": api_key}
        async with self._opened(where, {}, headers, body) as answer:
            if answer.status >= 400:
                said = await answer.read() if (answer.content_length or 0) <= LARGEST_ERROR else b""
                if _is_status(said):
                    raise _error(where, answer.status, said)
            yield answer

    @asynccontextmanager
    async def _opened(
        self, path: str, query: dict[str, str], headers: dict[str, str], body: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        self.requests += 1
        request = await self._client.param_serialize(
            "GET" if body is None else "POST",
            path,
            query_params=list(query.items()),
            header_params={"Accept": "*/*", "Content-Type": "application/json", **headers},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer: aiohttp.ClientResponse = (await self._client.call_api(*request)).response
        except (aiohttp.ClientError, OSError) as error:
            what = f"the API server does not answer: {error or type(error).__name__}"
            raise UnavailableError(path, None, what) from error
        try:
            yield answer
        finally:
            answer.close()  # of a log that is left in the middle nothing more is fetched


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
