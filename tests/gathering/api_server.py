"""An API server with objects, logs and pods that answer, over a real connection; rights can be taken away."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from slotune.controller.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    GPU_CLASS,
    LLAMA_DEPLOYMENT,
    NODE,
    POD,
    RESOURCE_CLAIM_TEMPLATE,
)
from slotune.gathering.deployment_pods import CLAIM, EVENT, VOLUME
from slotune.gathering.other_kinds import DAEMON_SET, REPLICA_SET, STATEFUL_SET

KINDS = {
    one.name: one
    for one in (
        POD, NODE, DEPLOYMENT, LLAMA_DEPLOYMENT, GPU_CLASS, EVENT, CLAIM, VOLUME, CONFIG_MAP, RESOURCE_CLAIM_TEMPLATE,
        STATEFUL_SET, DAEMON_SET, REPLICA_SET,
    )
}  # fmt: skip

Handler = Callable[[str, web.Request], Awaitable[web.StreamResponse]]

PROPS = {"total_slots": 4, "default_generation_settings": {"n_ctx": 4096}, "build_info": "b11434-abc"}
MODELS = {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_vocab": 1000}}]}
SLOTS = [{"id": 0, "n_ctx": 4096, "is_processing": False}]
METRICS = "".join(
    f"llamacpp:{name} 1\n"
    for name in (
        "requests_processing", "requests_deferred", "n_decode_total", "prompt_tokens_total", "prompt_seconds_total",
        "tokens_predicted_total", "tokens_predicted_seconds_total",
    )
)  # fmt: skip


async def llama_server(path: str, request: web.Request) -> web.StreamResponse:
    """A llama-server that is well."""
    known = {"/health": {"status": "ok"}, "/props": PROPS, "/v1/models": MODELS, "/slots": SLOTS}
    if path == "/metrics":
        return web.Response(text=METRICS)
    return web.json_response(known[path]) if path in known else web.json_response({"error": {}}, status=404)


def wanting(key: str) -> Handler:
    """A llama-server that wants an API key; the API server lets X-Api-Key alone through."""

    async def answer(path: str, request: web.Request) -> web.StreamResponse:
        if path != "/health" and request.headers.get("X-Api-Key") != key:
            return web.json_response({"error": {"code": 401, "message": "Invalid API Key"}}, status=401)
        return await llama_server(path, request)

    return answer


async def web_server(path: str, request: web.Request) -> web.StreamResponse:
    """One that is something else, and says so."""
    page = web.Response(text="<html>Welcome</html>", content_type="text/html", headers={"Server": "nginx/1.27"})
    page.set_status(200 if path == "/" else 404)
    return page


async def silent(path: str, request: web.Request) -> web.StreamResponse:
    """One that takes questions and answers none."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


@dataclass
class ApiServer:
    """What it holds, and what it was asked."""

    port: int = 0
    objects: dict[str, Any] = field(default_factory=dict)
    """By path."""
    logs: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    """By pod and whether it is the one before the restart."""
    servers: dict[str, Handler] = field(default_factory=dict)
    """By pod; one without is not listened to."""
    forbidden: set[str] = field(default_factory=set)
    """Resources that the caller may not touch: ``nodes``, ``pods/log``; with a verb, ``list deployments``, only so."""
    status: int = 0
    """Of every answer, where it is not 0."""
    stuck: bool = False
    """Whether it takes requests and answers none."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and path."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, *manifests: dict[str, Any]) -> None:
        for manifest in manifests:
            kind = KINDS[manifest["kind"]]
            metadata = manifest["metadata"]
            self.objects[kind.path(metadata.get("namespace"), metadata["name"])] = manifest

    def say(self, *events: dict[str, Any]) -> None:
        for number, one in enumerate(events):
            self.objects[f"{EVENT.path('shop')}/{number}"] = one

    def kubeconfig(self, path: Path, *, namespace: str | None = "shop") -> Path:
        place = {"cluster": "here", "user": "me"} | ({} if namespace is None else {"namespace": namespace})
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
            "contexts": [{"name": "here", "context": place}, {"name": "other", "context": place | {"namespace": "b"}}],
        }
        path.write_text(json.dumps(document))
        return path

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.path))
        if self.stuck:
            return await silent("", request)
        if self.status:
            return refusal(self.status, "no")
        resource = resource_of(request.path)
        _, _, verb = right_of(request.method, request.path)
        if self.forbidden & {resource, f"{verb} {resource}"}:
            return refusal(403, f'{resource} is forbidden: User "me" cannot do that')
        if resource in {"pods/proxy", "pods/log"}:
            return await self._of_pod(request)
        return self._object(request)

    async def _of_pod(self, request: web.Request) -> web.StreamResponse:
        found = re.fullmatch(r"/api/v1/namespaces/\w+/pods/(?:https:)?([\w-]+)(?::\d+)?/(proxy|log)(.*)", request.path)
        assert found is not None, request.path
        if found[2] == "log":
            return self._log(found[1], request)
        server = self.servers.get(found[1])
        if server is None:
            return refusal(503, "error trying to reach service: dial tcp 10.0.0.7:8080: connect: connection refused")
        return await server(found[3], request)

    def _object(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        below = [one for path, one in sorted(self.objects.items()) if listed(request.path, path)]
        if below or request.path.rpartition("/")[2] in {kind.plural for kind in KINDS.values()}:
            return web.json_response({"items": [one for one in below if selected(one, request.query)]})
        return refusal(404, "not found")

    def _log(self, pod: str, request: web.Request) -> web.StreamResponse:
        text = self.logs.get((pod, request.query.get("previous") == "true"))
        if text is None:
            return refusal(400, f"container llama in pod {pod} is waiting to start")
        if lines := request.query.get("tailLines"):
            text = b"".join(text.splitlines(keepends=True)[-int(lines) :])
        return web.Response(body=text[: int(request.query.get("limitBytes", len(text)))])


@asynccontextmanager
async def api_server() -> AsyncIterator[ApiServer]:
    """One that listens on this machine."""
    server = ApiServer()
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "apiVersion": "v1", "message": message, "code": status}, status=status)


def resource_of(path: str) -> str:
    """``pods/log`` of the path of a log, ``deployments`` of one of a Deployment."""
    parts = path.strip("/").split("/")
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    parts = parts[2:] if parts[:1] == ["namespaces"] and len(parts) > 2 else parts
    return parts[0] + (f"/{parts[2]}" if len(parts) > 2 else "")


def right_of(method: str, path: str) -> tuple[str, str, str]:
    """(Group, resource, verb) that RBAC asks for."""
    parts = path.strip("/").split("/")
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" else ("", parts[2:])
    rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
    return group, resource_of(path), "create" if method == "POST" else "get" if len(rest) > 1 else "list"


def listed(collection: str, path: str) -> bool:
    """Whether a list of the collection has the object, in one namespace or in all."""
    everywhere = re.sub(r"/namespaces/[^/]+", "", path).rpartition("/")[0]
    return collection in {path.rpartition("/")[0], everywhere}


def selected(one: dict[str, Any], query: Any) -> bool:
    """Whether label and field selectors mean it."""
    labels = (one.get("metadata") or {}).get("labels") or {}
    wanted = [part.split("=") for part in query.get("labelSelector", "").split(",") if part]
    about = {
        "involvedObject.name": (one.get("involvedObject") or {}).get("name"),
        "type": one.get("type"),
        "metadata.name": one["metadata"].get("name"),
    }
    fields = [part.split("=") for part in query.get("fieldSelector", "").split(",") if part]
    return all(labels.get(name) == value for name, value in wanted) and all(about[name] == to for name, to in fields)
