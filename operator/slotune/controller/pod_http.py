"""Questions to one server in a pod, with bounds on what comes back: a pod belongs to somebody else.

A message here names the pod, the cause and the cure. What the pod answered never gets into it: builds of llama-server
differ in whether ``/slots`` repeats users' prompts.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import httpx

from slotune.controller.listening import Listening
from slotune.controller.serving_pods import ServingPod
from slotune.llama.server_http import (
    LlamaServer,
    ServerBusyError,
    ServerError,
    ServerLoadingError,
    ServerUnreachableError,
)

__all__ = ["ANSWER_S", "NotAskedError", "any_certificate", "ask_server"]

T = TypeVar("T")

ANSWER_S: Final = 5.0
"""For one question, from the connection to the last byte."""
_SILENCE: Final = 0.9
"""Share of that time after which a silent server is given up. Then the connection is closed in order; a TLS handshake
that is cut off from outside leaves its socket open."""
LARGEST_ANSWER: Final = 16 << 20
"""Bytes. Old builds repeat the prompt of each slot."""

_NO_KEY: Final = (
    "wants an API key, and slotune reads no server's keys: set spec.rollout.mode to Recommend and apply the patch "
    "yourself"
)


class NotAskedError(Exception):
    """A server that gave no usable answer."""

    def __init__(self, pod: str, why: str, *, serves_nobody: bool = False) -> None:
        self.pod, self.why = pod, why
        self.serves_nobody = serves_nobody
        """Whether users get no answer there either: nothing listens, or it still loads its model."""
        super().__init__(f"pod {pod} {why}")


async def ask_server(
    pod: ServingPod, listening: Listening, question: Callable[[LlamaServer], Awaitable[T]], *, path: str, cure: str
) -> T:
    """What ``question`` gives, or :class:`NotAskedError`.

    Args:
        pod: whose server is asked.
        listening: how it is reached there.
        question: one or two calls.
        path: what they ask for, in words.
        cure: what to do where the server does not offer that.
    """
    if pod.address is None:
        raise NotAskedError(pod.name, "has no address yet")
    transport = _BoundedTransport()
    try:
        async with (
            asyncio.timeout(ANSWER_S),
            LlamaServer(pod.url(listening), timeout_s=_SILENCE * ANSWER_S, transport=transport) as server,
        ):
            return await question(server)
    except (TimeoutError, ServerBusyError) as error:
        raise NotAskedError(pod.name, f"does not answer {path} within {ANSWER_S:g} s") from error
    except ServerLoadingError as error:
        raise NotAskedError(pod.name, "still loads its model", serves_nobody=True) from error
    except ServerUnreachableError as error:
        how = "with TLS, as its flags say" if listening.is_encrypted else "without TLS"
        cure = (
            f"does llama-server listen on 0.0.0.0:{listening.port} {how}, and do NetworkPolicies let slotune in "
            "(the chart's own one has networkPolicy.servers.ports)?"
        )
        raise NotAskedError(pod.name, f"can't be reached: {cure}", serves_nobody=True) from error
    except ServerError as error:
        raise NotAskedError(pod.name, _refused(transport.status, listening.prefix + path, cure)) from error


def any_certificate() -> ssl.SSLContext:
    """TLS with whoever has the pod's address.

    A certificate is made out for the name that users call, never for the address of a pod, and the authority behind it
    is in the user's own files. So nothing could be checked. Nothing is lost either: what slotune asks has no key or
    password in it, and a server without TLS is asked the same in plain text. That the address is the pod's is the API
    server's word.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reads no certificates of the system, which takes its time
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _refused(status: int | None, path: str, cure: str) -> str:
    if status in {401, 403}:
        return _NO_KEY
    if status in {404, 501}:
        return f"has no {path}: {cure}"
    return f"answers {path} as no llama-server does (HTTP {status}): is that its port?"


class _BoundedTransport(httpx.AsyncBaseTransport):
    """HTTP to a pod: remembers the last status and reads no endless answer."""

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport(verify=any_certificate(), trust_env=False)
        self.status: int | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        self.status = response.status_code
        assert isinstance(response.stream, httpx.AsyncByteStream)
        # Nothing is unpacked: a small answer may hide a huge one.
        headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
        return httpx.Response(response.status_code, headers=headers, stream=_BoundedStream(response.stream))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > LARGEST_ANSWER:
                raise httpx.ReadError(f"more than {LARGEST_ANSWER} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
