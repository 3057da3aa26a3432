"""Pods with a llama-server each, on loopback addresses of their own, and the Deployment that they belong to."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from bench.mock_server import (
    END,
    MockServer,
    Received,
    Script,
    _Connection,
    chunk,
    document,
    event,
    http_head,
    last,
    token,
)

SECRET_TEXT = "my diagnosis is"
"""What a user's prompt holds, and no message may."""


@dataclass
class LlamaPod:
    """One llama-server and how it behaves."""

    busy: int = 0
    prefix: str = ""
    """Of every path that it knows."""
    slots: int = 4
    slots_answer: Script | None = None
    """In place of the slots."""
    vocabulary: int | None = 1000
    facts_status: str = "200 OK"
    """Of /props and /v1/models."""
    answers: Callable[[Received], Script] = field(default=lambda received: generation(received.asked_tokens))
    prompts: list[Received] = field(default_factory=list)

    def respond(self, received: Received) -> Script:
        known = received.path.startswith(f"{self.prefix}/")
        received = replace(received, path=received.path.removeprefix(self.prefix) if known else "/unknown")
        if received.method == "POST" and known:
            self.prompts.append(received)
            return self.answers(received)
        if self.facts_status != "200 OK" and received.path != "/slots":
            return document("{}", status=self.facts_status)
        match received.path:
            case "/slots":
                return self.slots_answer or document(json.dumps([self._slot(number) for number in range(self.slots)]))
            case "/props":
                settings = {"n_ctx": 4096}
                return document(json.dumps({"total_slots": 4, "default_generation_settings": settings}))
            case "/v1/models":
                return document(json.dumps({"data": [{"id": "m", "meta": {"n_vocab": self.vocabulary}}]}))
            case _:
                return document("{}", status="404 Not Found")

    def _slot(self, number: int) -> dict[str, Any]:
        return {"id": number, "n_ctx": 4096, "is_processing": number < self.busy, "prompt": SECRET_TEXT}


def generation(tokens: int, *, first_s: float = 0.01, gap_s: float = 0.001) -> Script:
    """An answer of /completion whose tokens come when they are said to."""
    times = [first_s + number * gap_s for number in range(tokens)]
    script = [(0.0, http_head())]
    script += [(at, chunk(event(token(number=number)))) for number, at in enumerate(times, start=1)]
    return [*script, (times[-1], chunk(event(last(tokens))) + END)]


@dataclass
class _LoopbackServer(MockServer):
    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None

    async def listen(self) -> None:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self), self.host, self.port, reuse_address=True, ssl=self.tls
        )
        self.port = self._server.sockets[0].getsockname()[1]


@asynccontextmanager
async def serving(pods: Sequence[LlamaPod], tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Their common port: pod ``i`` listens on 127.0.1.``i + 1``, with ``tls`` for TLS only."""
    async with AsyncExitStack() as stack:
        port = 0
        for number, pod in enumerate(pods):
            server = _LoopbackServer(pod.respond, port=port, host=address(number), tls=tls)
            await stack.enter_async_context(server)
            port = server.port
        yield port


def address(number: int) -> str:
    """Of a pod."""
    return f"127.0.1.{number + 1}"


def pod_object(
    number: int = 0,
    *,
    name: str | None = None,
    template_hash: str = "5d4f",
    candidate: str | None = None,
    created: str = "2026-03-02T12:00:00Z",
    ready: bool = True,
    phase: str = "Running",
    running: bool = True,
    labels: dict[str, str] | None = None,
    deleting: bool = False,
) -> dict[str, Any]:
    """A Pod of Deployment ``chat`` as the API server gives it."""
    metadata: dict[str, Any] = {
        "name": name or f"chat-{template_hash}-p{number}",
        "namespace": "shop",
        "labels": {"app": "chat", "pod-template-hash": template_hash, **(labels or {})},
        "creationTimestamp": created,
    }
    if candidate is not None:
        metadata["annotations"] = {"slotune.dev/candidate": candidate}
    if deleting:
        metadata["deletionTimestamp"] = created
    state: dict[str, Any] = {"running": {}} if running else {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {
        "phase": phase,
        "podIP": address(number),
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": "llama", "state": state}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": status}
