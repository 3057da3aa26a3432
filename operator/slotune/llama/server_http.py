"""Control calls to a running llama-server: is it up, what is it, is it busy.

For questions between measurements, never for load (httpx was 6.6 s wrong at 50 requests/s as a load client). A slow
answer means *busy*: older builds answer /metrics and /slots only between two decodes, so a time-out is a state
(:class:`ServerBusyError`), not the end of the server. Each call opens its own connection: llama-server drops idle ones
after 5 s or 100 requests, and a call that meets the drop looks like a crash.
"""

from __future__ import annotations

import asyncio
import enum
import re
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from slotune.llama.server_answers import (
    EXCERPT,
    Metrics,
    ModelMeta,
    Props,
    Slot,
    parse_metrics,
    parse_model,
    parse_props,
    parse_slots,
)

__all__ = [
    "EndpointDisabledError",
    "HealthState",
    "LlamaServer",
    "NotIdleError",
    "RefusedRequestError",
    "ServerBusyError",
    "ServerError",
    "ServerExitedError",
    "ServerLoadingError",
    "ServerUnreachableError",
    "StartupTimeoutError",
    "UnexpectedAnswerError",
]

T = TypeVar("T")

_KIND = re.compile(r"[a-z_]{1,60}")

CALL_TIMEOUT_S = 5.0
POLL_S = 0.05
"""Pause between two questions while waiting; a start takes 0.5 s at least, so this costs a few answers."""


class ServerError(Exception):
    """A control call failed; subclasses say what that means."""


class ServerUnreachableError(ServerError):
    """Nothing listens, or the connection broke."""


class ServerLoadingError(ServerError):
    """503: the model is still being loaded."""


class ServerBusyError(ServerError):
    """No answer within the time-out. The server may well be fine: it answers between decodes."""


class EndpointDisabledError(ServerError):
    """501 or 403: the server runs without the flag that this endpoint needs."""


class UnexpectedAnswerError(ServerError):
    """An answer that no llama-server gives: another server on that port, or a key is needed."""


class RefusedRequestError(ServerError):
    """A request with a body was answered with an error. The server's own words are left out: they may quote the body.

    ``status`` is the code, ``kind`` the server's name of the error (``invalid_request_error``,
    ``exceed_context_size_error``, …), empty when it gives none.
    """

    def __init__(self, url: str, status: int, kind: str) -> None:
        super().__init__(f"{url}: refused with {status}{f' ({kind})' if kind else ''}; the server's log may say more")
        self.status = status
        self.kind = kind


class ServerExitedError(ServerError):
    """The process ended while it was waited for."""


class StartupTimeoutError(ServerError):
    """The server was not ready in time."""


class NotIdleError(ServerError):
    """Requests were still running or queued at the deadline."""


class HealthState(enum.StrEnum):
    """What /health says. READY does not exclude a wedge (ggml-org/llama.cpp#27388)."""

    READY = "ready"
    LOADING = "loading"


class LlamaServer:
    """The control endpoints of one llama-server. Use as an async context manager.

    Args:
        base_url: scheme, host and port.
        api_key: sent as a bearer token; all but /health need it when the server has one.
        timeout_s: for each call.
        transport: replaces the network in tests.
        clock: seconds, monotonic; for deadlines.
        sleep: waits between two questions.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.base_url = base_url
        self._clock = clock
        self._sleep = sleep
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=timeout_s,
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def health(self) -> HealthState:
        """READY or LOADING. Raises ServerUnreachableError, ServerBusyError, UnexpectedAnswerError."""
        try:
            await self._get("/health")
        except ServerLoadingError:
            return HealthState.LOADING
        return HealthState.READY

    async def props(self) -> Props:
        """/props, which GET always serves."""
        return await self._read("/props", parse_props)

    async def slots(self) -> tuple[Slot, ...]:
        """/slots. EndpointDisabledError with ``--no-slots``."""
        return await self._read("/slots", parse_slots)

    async def metrics(self) -> Metrics:
        """/metrics. EndpointDisabledError without ``--metrics``."""
        return parse_metrics((await self._get("/metrics")).text)

    async def model(self) -> ModelMeta:
        """The first entry of /v1/models."""
        return await self._read("/v1/models", parse_model)

    async def post(self, path: str, body: bytes) -> Any:
        """Send JSON and return the JSON that comes back. For control calls only, see above.

        Raises:
            RefusedRequestError: any status but 200, and 503 while the model is loaded.
            UnexpectedAnswerError: what came back is no JSON.
        """
        response = await self._send("POST", path, body)
        if response.status_code != 200:
            if response.status_code == 503:
                raise ServerLoadingError(f"{self.base_url}{path}: the model is still being loaded")
            raise RefusedRequestError(f"{self.base_url}{path}", response.status_code, _kind(response))
        try:
            return response.json()
        except ValueError as error:
            raise UnexpectedAnswerError(f"{self.base_url}{path}: is this a llama-server? No JSON came back") from error

    async def wait_ready(self, limit_s: float, process_alive: Callable[[], bool] = lambda: True) -> None:
        """Return when the model is loaded.

        Raises:
            ServerExitedError: ``process_alive`` said no.
            StartupTimeoutError: not ready after ``limit_s`` seconds; the message has the last state.
        """
        deadline = self._clock() + limit_s
        state = "no answer yet"
        while True:
            if not process_alive():
                raise ServerExitedError(f"the server at {self.base_url} ended before it was ready ({state})")
            try:
                if await self.health() is HealthState.READY:
                    return
                state = "loading the model"
            except (ServerUnreachableError, ServerBusyError) as error:
                state = str(error)
            if self._clock() >= deadline:
                raise StartupTimeoutError(f"the server was not ready within {limit_s:g} s: {state}")
            await self._sleep(POLL_S)

    async def wait_idle(self, limit_s: float) -> None:
        """Return when no request is running or queued, seen twice in a row.

        Twice, because a request that was parked while a batch decoded is in neither number for a moment. Without
        ``--metrics`` the slots alone are asked, which cannot see a queue.

        Raises:
            NotIdleError: still busy, or too busy to answer, after ``limit_s`` seconds.
        """
        deadline = self._clock() + limit_s
        quiet = 0
        state = "no answer yet"
        while quiet < 2:
            try:
                running, waiting = await self._load()
                state = f"{running} running, {waiting} queued"
                quiet = quiet + 1 if running == waiting == 0 else 0
            except ServerBusyError as error:
                state, quiet = str(error), 0
            if quiet < 2 and self._clock() >= deadline:
                raise NotIdleError(f"the server at {self.base_url} was not idle after {limit_s:g} s: {state}")
            await self._sleep(POLL_S)

    async def _load(self) -> tuple[int, int]:
        try:
            metrics = await self.metrics()
        except EndpointDisabledError:
            return sum(slot.processing for slot in await self.slots()), 0
        return metrics.processing or 0, metrics.deferred or 0

    async def _send(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        headers = None if body is None else {"Content-Type": "application/json"}
        try:
            return await self._client.request(method, path, content=body, headers=headers)
        except httpx.TimeoutException as error:
            raise ServerBusyError(f"{self.base_url}{path}: no answer in time") from error
        except httpx.TransportError as error:
            raise ServerUnreachableError(f"{self.base_url}{path}: {error or type(error).__name__}") from error

    async def _get(self, path: str) -> httpx.Response:
        response = await self._send("GET", path)
        match response.status_code:
            case 200:
                return response
            case 503:
                raise ServerLoadingError(f"{self.base_url}{path}: the model is still being loaded")
            case 501 | 403:
                flag = {"/metrics": "--metrics", "/slots": "--slots"}.get(path, "its flag")
                raise EndpointDisabledError(f"{self.base_url}{path}: switched off: start the server with {flag}")
            case 401:
                raise UnexpectedAnswerError(f"{self.base_url}{path}: 401: the server wants an API key")
            case code:
                body = response.text[:EXCERPT]
                raise UnexpectedAnswerError(f"{self.base_url}{path}: {code}: is this a llama-server? {body}")

    async def _read(self, path: str, parse: Callable[[Any], T]) -> T:
        response = await self._get(path)
        try:
            return parse(response.json())
        except ValueError as error:  # JSONDecodeError and MalformedAnswerError are both
            raise UnexpectedAnswerError(f"{self.base_url}{path}: is this a llama-server? {error}") from error


def _kind(response: httpx.Response) -> str:
    """The server's name of an error: a word of its own, never what was sent."""
    try:
        kind = response.json()["error"]["type"]
    except (ValueError, TypeError, KeyError):
        return ""
    return kind if isinstance(kind, str) and _KIND.fullmatch(kind) else ""
