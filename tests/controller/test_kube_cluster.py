"""What the API server answers becomes one class per cause that a caller acts on, over a real connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from slotune.controller import kube_cluster
from slotune.controller.cluster import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    RefusedError,
    SchemaTooOldError,
    UnavailableError,
)
from slotune.controller.heartbeat import Heartbeat
from slotune.controller.kinds import CONFIG_MAP, DEPLOYMENT, EVENT, JOB, LLAMA_DEPLOYMENT, NODE, POD
from slotune.controller.kube_cluster import KubeCluster

JOB_MANIFEST = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "shop"}}


@dataclass
class Server:
    """An API server that says what a test wants."""

    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    seen: list[tuple[str, str, dict[str, str], str, bytes]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(
            (request.method, request.path, dict(request.query), request.headers.get("Content-Type", ""), body)
        )
        assert self.answer is not None
        return await self.answer(request)

    def says(self, status: int = 200, body: Any = None, **headers: str) -> None:
        async def answer(_: web.Request) -> web.StreamResponse:
            text = body if isinstance(body, str) else json.dumps(body or {})
            return web.Response(status=status, text=text, headers=headers)

        self.answer = answer

    def refuses(self, status: int, reason: str, message: str, **headers: str) -> None:
        self.says(status, {"kind": "Status", "code": status, "reason": reason, "message": message}, **headers)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, KubeCluster]]:
    spoken = Server()
    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", spoken.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with KubeCluster(ApiClient(Configuration(host=f"http://127.0.0.1:{port}"))) as cluster:
            yield spoken, cluster
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "reason", "message", "kind"),
    [
        (409, "AlreadyExists", 'jobs "a" already exists', AlreadyExistsError),
        (409, "Conflict", "the object has been modified", ConflictError),
        (401, "Unauthorized", "Unauthorized", ForbiddenError),
        (403, "Forbidden", "cannot create resource", ForbiddenError),
        (404, "NotFound", "not found", NotFoundError),
        (422, "Invalid", "spec.template: Required value", RefusedError),
        (400, "BadRequest", "admission webhook denied the request", RefusedError),
        (429, "TooManyRequests", "try later", UnavailableError),
        (410, "Expired", "The provided continue parameter is too old", UnavailableError),
        (408, "Timeout", "request did not complete in time", UnavailableError),
        (500, "InternalError", "etcdserver: request timed out", UnavailableError),
        (503, "ServiceUnavailable", "apiserver is shutting down", UnavailableError),
        (500, "", "failed to create typed patch object (shop/a; batch/v1, Kind=Job): .x: not so", RefusedError),
        (500, "", "unable to convert unstructured object to batch/v1, Kind=Job: no such form", RefusedError),
    ],
)
async def test_each_refusal_has_a_class_of_its_own(server, status, reason, message, kind):
    spoken, cluster = server
    spoken.refuses(status, reason, message)
    with pytest.raises(kind) as caught:
        await cluster.create(JOB_MANIFEST)
    error = caught.value
    assert type(error) is kind
    assert isinstance(error, ClusterError)
    assert (error.status, error.message) == (status, message)
    assert "POST /apis/batch/v1/namespaces/shop/jobs" in str(error)


NOT_DECLARED = ".spec.resourcess: field not declared in schema"


async def test_a_field_that_is_not_known_blames_the_crds_only_where_the_kind_is_theirs(server):
    spoken, cluster = server
    spoken.refuses(500, "", f"failed to create typed patch object (shop/a; batch/v1, Kind=Job): {NOT_DECLARED}")
    with pytest.raises(RefusedError) as caught:
        await cluster.apply(JOB_MANIFEST, "slotune-sandbox")
    assert type(caught.value) is RefusedError
    own = {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaTrial", "metadata": {"name": "a", "namespace": "shop"}}
    with pytest.raises(SchemaTooOldError):
        await cluster.apply(own, "slotune-status", subresource="status")


async def test_an_amount_that_is_none_is_told_with_its_field(server):
    spoken, cluster = server
    said = "quantities must match the regular expression"
    pod = {"containers": [{"name": "llama", "resources": {"limits": {"cpu": "lots"}}}]}
    for status, words in ((500, f"unable to convert unstructured object: {said}"), (400, said)):
        spoken.refuses(status, "", words)
        for ask in (cluster.create, lambda manifest: cluster.apply(manifest, "slotune-sandbox")):
            with pytest.raises(RefusedError) as caught:
                await ask({**JOB_MANIFEST, "spec": {"template": {"spec": pod}}})
            where = "spec.template.spec.containers[0].resources.limits.cpu is lots"
            assert caught.value.message == f"{where}: {words}"


async def test_how_long_to_wait_is_read_from_the_answer(server):
    spoken, cluster = server
    spoken.refuses(429, "TooManyRequests", "slow down", **{"Retry-After": "7"})
    with pytest.raises(UnavailableError) as caught:
        await cluster.get(JOB, "shop", "a")
    assert caught.value.retry_after_s == 7
    spoken.refuses(503, "", "away", **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    with pytest.raises(UnavailableError) as caught:
        await cluster.get(JOB, "shop", "a")
    assert caught.value.retry_after_s is None


@pytest.mark.parametrize("body", ["<html>Bad Gateway</html>", "", "[]", '"text"', "x" * 100_000])
async def test_an_answer_of_a_proxy_is_an_error_like_any_other(server, body):
    spoken, cluster = server
    spoken.says(502, body)
    with pytest.raises(UnavailableError) as caught:
        await cluster.get(JOB, "shop", "a")
    assert len(caught.value.message) <= kube_cluster.LONGEST_MESSAGE


@pytest.mark.parametrize("body", ["<html>hello</html>", "[]", ""])
async def test_an_answer_that_is_no_object_is_no_crash(server, body):
    spoken, cluster = server
    spoken.says(200, body)
    with pytest.raises(UnavailableError):
        await cluster.get(JOB, "shop", "a")


async def test_a_server_that_never_answers_is_given_up(server, monkeypatch):
    spoken, cluster = server
    monkeypatch.setattr(kube_cluster, "TIMEOUT_S", 0.2)
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    spoken.answer = hang
    try:
        with pytest.raises(UnavailableError, match="does not answer"):
            await cluster.get(JOB, "shop", "a")
    finally:
        never.set()


async def test_a_server_that_is_not_there_is_unavailable():
    async with KubeCluster(ApiClient(Configuration(host="http://127.0.0.1:9"))) as cluster:
        with pytest.raises(UnavailableError) as caught:
            await cluster.get(JOB, "shop", "a")
    assert caught.value.status is None


async def test_a_list_is_read_page_by_page_and_its_items_know_what_they_are(server):
    spoken, cluster = server

    async def pages(request: web.Request) -> web.StreamResponse:
        page = int(request.query.get("continue", "0"))
        following = {"continue": str(page + 1)} if page < 2 else {}
        return web.json_response({"metadata": following, "items": [{"metadata": {"name": f"p{page}"}}]})

    spoken.answer = pages
    found = await cluster.list(POD, "shop", "a=b,c=d", "regarding.name=x")
    assert [one["metadata"]["name"] for one in found] == ["p0", "p1", "p2"]
    assert {(one["apiVersion"], one["kind"]) for one in found} == {("v1", "Pod")}
    assert all(query["labelSelector"] == "a=b,c=d" for _, _, query, *_ in spoken.seen)
    assert all(query["fieldSelector"] == "regarding.name=x" for _, _, query, *_ in spoken.seen)
    assert int(spoken.seen[0][2]["limit"]) <= 500


async def test_who_is_there_is_asked_without_the_objects_and_told_in_their_own_kind(server):
    spoken, cluster = server
    accepted: list[str] = []

    async def metadata(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers["Accept"])
        page = int(request.query.get("continue", "0"))
        following = {"continue": str(page + 1)} if page < 1 else {}
        item = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"uid": f"u{page}"}}
        return web.json_response({"metadata": following, "items": [item]})

    spoken.answer = metadata
    found = await cluster.list_metadata(LLAMA_DEPLOYMENT, "shop", "a=b")
    want = {"apiVersion": "slotune.dev/v1alpha1", "kind": "LlamaDeployment"}
    assert found == [want | {"metadata": {"uid": uid}} for uid in ("u0", "u1")]
    assert {one.split(",")[0] for one in accepted} == {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    }
    assert all(query["labelSelector"] == "a=b" for _, _, query, *_ in spoken.seen)


async def test_a_list_may_be_empty_or_of_everybody(server):
    spoken, cluster = server
    spoken.says(200, {"items": None})
    assert await cluster.list(NODE, None) == []
    assert await cluster.list(LLAMA_DEPLOYMENT, None) == []
    assert [path for _, path, *_ in spoken.seen] == ["/api/v1/nodes", "/apis/slotune.dev/v1alpha1/llamadeployments"]


async def test_an_apply_says_who_owns_the_fields_and_takes_none_by_force_unless_told(server):
    spoken, cluster = server
    spoken.says(200, {"kind": "Deployment"})
    manifest = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}}
    await cluster.apply(manifest, "slotune-rollout", force=False, dry_run=True)
    await cluster.apply(manifest, "slotune-status", subresource="status")
    (method, path, query, content, body), (_, status_path, status_query, *_) = spoken.seen
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web")
    assert query == {"fieldManager": "slotune-rollout", "force": "false", "dryRun": "All"}
    assert content.startswith("application/apply-patch+yaml")
    assert json.loads(body) == manifest
    assert status_path.endswith("/deployments/web/status")
    assert status_query == {"fieldManager": "slotune-status", "force": "true"}


async def test_a_text_beyond_the_basic_plane_is_sent_as_yaml_can_read_it(server):
    spoken, cluster = server
    spoken.says(200, {})
    data = {"chat": "🦙 says \\ud83e\\udd99 and ö"}
    await cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data}, "m"
    )
    body = spoken.seen[0][4].decode()
    assert "\\U0001F999 says" in body
    assert "\\\\ud83e" in body


async def test_a_deletion_is_of_the_object_that_was_seen_and_may_come_too_late(server):
    spoken, cluster = server
    spoken.says(200, {"kind": "Status"})
    await cluster.delete(JOB, "shop", "a", uid="u1")
    method, path, _, _, body = spoken.seen[0]
    assert (method, path) == ("DELETE", "/apis/batch/v1/namespaces/shop/jobs/a")
    assert json.loads(body) == {"propagationPolicy": "Background", "preconditions": {"uid": "u1"}}
    spoken.refuses(404, "NotFound", "gone")
    await cluster.delete(JOB, "shop", "a", uid="u1")
    spoken.refuses(409, "Conflict", "Precondition failed: UID in precondition: u1, UID in object meta: u2")
    await cluster.delete(JOB, "shop", "a", uid="u1")
    with pytest.raises(ConflictError):
        await cluster.delete(JOB, "shop", "a")
    spoken.refuses(403, "Forbidden", "cannot delete")
    with pytest.raises(ForbiddenError):
        await cluster.delete(JOB, "shop", "a", uid="u1")


async def test_a_patch_is_a_merge_patch_of_the_part_that_is_named(server):
    spoken, cluster = server
    spoken.says(200, {"kind": "Scale"})
    await cluster.patch(DEPLOYMENT, "shop", "web", {"spec": {"replicas": 0}}, "scale")
    method, path, _, content, body = spoken.seen[0]
    assert (method, path) == ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale")
    assert content.startswith("application/merge-patch+json")
    assert json.loads(body) == {"spec": {"replicas": 0}}


async def test_logs_are_read_within_bounds_and_may_not_be_there(server):
    spoken, cluster = server
    spoken.says(200, "one\ntwo\n")
    text = await cluster.logs("shop", "pod-1", "llama", previous=True, limit_bytes=100, tail_lines=2)
    assert text == "one\ntwo\n"
    _, path, query, *_ = spoken.seen[0]
    assert path == "/api/v1/namespaces/shop/pods/pod-1/log"
    assert query == {"container": "llama", "previous": "true", "limitBytes": "100", "tailLines": "2"}
    for status, reason in ((404, "NotFound"), (400, "BadRequest")):
        spoken.refuses(status, reason, 'container "llama" is waiting to start')
        assert await cluster.logs("shop", "pod-1", "llama") is None
    spoken.refuses(403, "Forbidden", "cannot get pods/log")
    with pytest.raises(ForbiddenError):
        await cluster.logs("shop", "pod-1", "llama")


async def test_half_a_character_at_the_cut_of_a_log_is_no_error(server):
    spoken, cluster = server

    async def cut(_: web.Request) -> web.StreamResponse:
        return web.Response(body="é".encode()[:1])

    spoken.answer = cut
    assert await cluster.logs("shop", "pod-1", "llama") == "\ufffd"


@pytest.mark.parametrize("status", [200, 201, 403, 404, 409, 410, 422])
async def test_whatever_the_api_server_decides_is_an_answer(server, status):
    spoken, cluster = server
    assert "has not answered yet" in cluster.contact.trouble
    spoken.refuses(status, "", "decided")
    with contextlib.suppress(ClusterError):
        await cluster.create(JOB_MANIFEST)
    assert cluster.contact.trouble == ""


@pytest.mark.parametrize("status", [401, 429, 500, 502, 503, 504])
async def test_a_token_that_is_not_taken_and_a_broken_server_are_none(server, status):
    spoken, cluster = server
    spoken.refuses(status, "", "no")
    with pytest.raises(ClusterError):
        await cluster.create(JOB_MANIFEST)
    assert "has not answered yet" in cluster.contact.trouble


async def test_a_ping_asks_for_next_to_nothing_and_is_bounded(server, monkeypatch):
    spoken, cluster = server
    spoken.says(200, "ok")
    await cluster.ping()
    assert [(method, path) for method, path, *_ in spoken.seen] == [("GET", "/readyz")]
    assert cluster.contact.trouble == ""
    monkeypatch.setattr(kube_cluster, "PING_S", 0.2)
    never = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    spoken.answer = hang
    try:
        with pytest.raises(UnavailableError):
            await cluster.ping()
    finally:
        never.set()


async def test_a_request_that_ends_shows_that_the_look_it_belongs_to_is_not_stuck(server):
    spoken, cluster = server
    heartbeat, now = Heartbeat(0), [0.0]
    with heartbeat.working(lambda: now[0]):
        for status in (200, 503):
            now[0] += 200
            spoken.says(status, {})
            with contextlib.suppress(UnavailableError):
                await cluster.get(JOB, "shop", "a")
            heartbeat.beat(now[0])
            assert heartbeat.age(now[0]) == 0
        now[0] += 200
        heartbeat.beat(now[0])
        assert heartbeat.age(now[0]) == 200


async def test_every_request_is_counted(server):
    spoken, cluster = server
    spoken.says(200, {"items": []})
    await cluster.list(EVENT, "shop")
    await cluster.get(CONFIG_MAP, "shop", "a")
    assert cluster.requests == 2
