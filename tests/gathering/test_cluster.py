"""A Deployment is looked at in one go, reading only; whatever may not be seen is left out and said, never guessed."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from slotune.controller.listening import Listening
from slotune.diagnose.symptoms import ProbeFacts, ServerLook
from slotune.gathering import cluster, pod_server
from slotune.gathering.cluster import look_at_deployment
from slotune.gathering.cluster_reader import PodPlace
from slotune.gathering.look_errors import (
    NoSuchDeploymentError,
    NotLlamaServerError,
    UnreachableClusterError,
)
from slotune.gathering.pod_relay import relayed
from slotune.gathering.watching import Watch
from slotune.tuning.errors import InvalidInputError
from tests.gathering.api_server import Handler, llama_server, silent, wanting, web_server
from tests.gathering.looking import KEY, POD
from tests.gathering.pods import container, event, llama_deployment, pod

GPU = {
    "apiVersion": "slotune.dev/v1alpha1",
    "kind": "GPUClass",
    "metadata": {"name": "l4"},
    "spec": {"pricePerHour": "0.80", "memoryBandwidth": "300G", "resourceName": "nvidia.com/gpu"},
}


async def test_everything_about_a_pod_comes_in_one_go(look):
    look.server.say(event("Evicting", "soon"), event("Other", "of another pod", involvedObject={"name": "else"}))
    [found] = await look.take()
    assert found.name == POD
    assert found.log is not None
    assert (found.log.source, found.log.starts) == (POD, 1)
    assert found.server is not None
    assert found.server.props is not None
    assert found.server.props.total_slots == 4
    assert found.server.metrics_later is not None
    assert found.server.url == f"http://{POD}:8080"
    assert found.pod is not None
    assert [str(one) for one in found.pod.events] == ["event  Evicting: soon"]
    assert found.node is not None
    assert found.node.cores == 16
    assert found.flags == ("-m", "/models/a.gguf")
    assert look.told == []


async def test_nothing_is_asked_but_for_reading(look):
    look.server.say(event("Failed", "x"))
    await look.take()
    assert {method for method, _ in look.server.asked} == {"GET"}


async def test_a_llama_deployment_brings_what_is_owed_and_the_gpu(look):
    look.server.put(llama_deployment("tuned", targetRef={"name": "chat"}), GPU)
    for name in ("chat", "tuned"):
        [found] = await look.take(name)
        assert found.promise is not None
        assert (found.promise.ttft_s, found.promise.tokens_per_second_per_user) == (1.5, 12)
        assert found.gpu is not None
        assert (found.gpu.name, found.gpu.bandwidth_bytes_per_s, found.gpu.price_per_hour) == ("l4", 3e11, 0.8)


async def test_a_llama_deployment_that_is_not_valid_here_takes_nothing_away(look):
    look.server.put(llama_deployment("tuned", targetRef={"name": "chat"}, slo={"ttftP95": "soon"}))
    [found] = await look.take()
    assert (found.promise, found.gpu) == (None, None)
    assert look.told == ["LlamaDeployment tuned is not valid here, so what it owes is not known"]


@pytest.mark.parametrize(
    ("resource", "part", "words"),
    [
        ("nodes", "node", "get nodes"),
        ("pods/log", "log", "get pods/log in namespace shop"),
        ("llamadeployments", "promise", "list llamadeployments.slotune.dev in namespace shop"),
    ],
)
async def test_what_may_not_be_seen_is_left_out_and_said_once(look, resource, part, words):
    look.server.put(pod("chat-5d4f-b"))
    look.server.forbidden.add(resource)
    found = await look.take()
    assert [getattr(one, part) for one in found] == [None, None]
    assert len([line for line in look.told if words in line]) == 1


async def test_events_that_may_not_be_seen_are_said(look):
    look.server.forbidden.add("events")
    [found] = await look.take()
    assert found.pod is not None
    assert found.pod.events == ()
    assert any("list events in namespace shop" in line for line in look.told)


async def test_a_server_that_may_not_be_asked_is_undecidable_not_silent(look):
    look.server.forbidden.add("pods/proxy")
    [found] = await look.take()
    assert found.server is not None
    assert found.server.props is None
    assert "get pods/proxy in namespace shop" in found.server.refused["/props"]
    assert found.server.silent_s == {}


async def test_a_port_where_nothing_listens_is_said(look):
    del look.server.servers[POD]
    [found] = await look.take()
    assert found.server is not None
    assert "connection refused" in found.server.refused["/health"]


async def test_a_server_with_a_key_says_how_to_give_it_and_takes_it(look):
    look.server.servers[POD] = wanting(KEY)
    [found] = await look.take()
    assert found.server is not None
    assert "--api-key-file" in found.server.refused["/props"]
    [found] = await look.take(api_key="wrong")
    assert found.server is not None
    assert found.server.refused["/props"].startswith(f"pod {POD} does not accept the key in it")
    [found] = await look.take(api_key="wrong", key_file=Path("keys/chat"))
    assert found.server is not None
    assert found.server.refused["/props"] == f"pod {POD} does not accept the key in keys/chat (401)"
    [found] = await look.take(api_key=KEY)
    assert found.server is not None
    assert found.server.props is not None


async def test_a_deployment_of_another_program_is_refused_as_its_address_would_be(look):
    look.server.servers[POD] = web_server
    look.server.logs[POD, False] = b"GET / 200\n" * 100
    said = await look.fails(NotLlamaServerError)
    assert f"at port 8080 of pod {POD} is no llama-server but " in said
    assert "only llama-server can be diagnosed" in said
    assert "--container" in said


async def test_what_speaks_for_llama_server_is_looked_at_though_another_program_answers(look):
    look.server.servers[POD] = web_server
    [found] = await look.take()  # by its log
    assert found.log is not None
    assert found.server.refused["/props"].startswith("no llama-server but ")
    look.server.logs.clear()
    look.server.put(pod("chat-5d4f-b"))
    look.server.servers["chat-5d4f-b"] = llama_server
    assert len(await look.take()) == 2  # by the answer of another pod


async def test_one_server_that_hangs_holds_no_other_up(look, monkeypatch):
    monkeypatch.setattr(pod_server, "DOOR_LIMIT_S", 0.1)
    monkeypatch.setattr(pod_server, "LOOK_LIMIT_S", 0.8)
    look.server.put(pod("chat-5d4f-b"))
    look.server.servers |= {"chat-5d4f-b": silent}
    async with asyncio.timeout(5):
        found = {one.name: one for one in await look.take()}
    assert found[POD].server is not None
    assert found[POD].server.props is not None
    hanging = found["chat-5d4f-b"].server
    assert hanging is not None
    assert hanging.props is None
    assert hanging.refused


async def test_the_port_is_that_of_the_flags_or_the_only_one_declared(look):
    for own, port in (
        (container(args=["--port", "9000", "--api-prefix", "/llm"]), 9000),
        (container(args=["-m", "a"], ports=[{"containerPort": 8000}]), 8000),
        (container(args=["-m", "a"], ports=[{"containerPort": 1}, {"containerPort": 2}]), 8080),
    ):
        look.server.put(pod(POD, own))
        [found] = await look.take()
        assert found.server is not None
        assert found.server.url.startswith(f"http://{POD}:{port}")
    assert any(path.endswith(f"{POD}:9000/proxy/llm/health") for _, path in look.server.asked)


def answering(status: int, document: dict[str, Any]) -> Handler:
    """A server that says the same to everything."""

    async def answer(path: str, request: web.Request) -> web.StreamResponse:
        return web.json_response(document, status=status)

    return answer


async def test_what_is_no_use_in_a_pod_is_not_advised(look):
    look.server.servers[POD] = answering(503, {"error": {"code": 503, "message": "Loading model"}})
    [found] = await look.take()
    assert "still loading its model" in found.server.refused["/health"]
    assert "--log" not in found.server.refused["/health"]
    look.server.servers[POD] = answering(200, {"role": "router", "status": "ok"})
    [found] = await look.take()
    assert f"kubectl port-forward {POD}" in found.server.refused["/props"]


async def test_settings_of_a_config_map_and_kinds_of_volumes_are_followed(look):
    own = container(
        envFrom=[{"configMapRef": {"name": "settings"}}], volumeMounts=[{"name": "m", "mountPath": "/models"}]
    )
    spec = {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": "shop"}}
    look.server.put(
        pod(POD, own, spec=spec),
        {
            "kind": "ConfigMap",
            "metadata": {"name": "settings", "namespace": "shop"},
            "data": {"LLAMA_ARG_CTX_SIZE": "9"},
        },
        claim | {"spec": {"volumeName": "pv"}},
        {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"nfs": {"server": "filer"}}},
    )
    [found] = await look.take()
    assert found.pod is not None
    assert found.pod.env == {"LLAMA_ARG_CTX_SIZE": "9"}
    assert found.pod.volumes == {"/models": "persistentVolumeClaim (nfs)"}
    assert "9" in found.flags


async def test_secrets_are_never_asked_for(look):
    reference = {"secretKeyRef": {"name": "chat", "key": "key"}}
    own = container(env=[{"name": "LLAMA_API_KEY", "valueFrom": reference}])
    look.server.put(pod(POD, own))
    [found] = await look.take()
    assert found.pod is not None
    assert found.pod.env == {"LLAMA_API_KEY": "(Secret chat)"}
    assert not any("secrets" in path for _, path in look.server.asked)


async def test_a_pod_that_this_version_cannot_read_is_told_by_its_status(look):
    look.server.put(pod(POD, container(args="not a list")))
    [found] = await look.take()
    assert found.pod is not None
    assert found.pod.ready is True
    assert found.flags == ()


async def test_an_api_server_that_does_not_answer_is_given_up(look, monkeypatch):
    monkeypatch.setattr(cluster, "OBJECTS_LIMIT_S", 0.2)
    look.server.stuck = True
    assert "does not answer within 0.2 s" in await look.fails(UnreachableClusterError)


async def test_an_api_server_that_is_away_is_named(tmp_path, look):
    file = look.server.kubeconfig(tmp_path / "config")
    file.write_text(file.read_text().replace(f":{look.server.port}", ":1"))
    with pytest.raises(UnreachableClusterError, match="does not answer"):
        await asyncio.to_thread(look_at_deployment, "chat", None, kubeconfig=file)


async def test_the_namespace_is_that_of_the_context(tmp_path, look):
    file = look.server.kubeconfig(tmp_path / "config")
    [found] = await asyncio.to_thread(look_at_deployment, "chat", None, kubeconfig=file)
    assert found.name == POD
    with pytest.raises(NoSuchDeploymentError, match="namespace b"):
        await asyncio.to_thread(look_at_deployment, "chat", None, kubeconfig=file, context="other")
    bare = look.server.kubeconfig(tmp_path / "bare", namespace=None)
    with pytest.raises(NoSuchDeploymentError, match="namespace default"):
        await asyncio.to_thread(look_at_deployment, "chat", None, kubeconfig=bare)


@pytest.mark.alone
async def test_all_servers_are_watched_together(look):
    look.server.put(pod("chat-5d4f-b"))
    look.server.servers["chat-5d4f-b"] = llama_server
    begun: list[int] = []
    clock = asyncio.get_running_loop().time
    began = clock()
    found = await look.take(watched=lambda: nullcontext(Watch(1.0, lambda: begun.append(1))))
    assert 1.0 <= clock() - began < 3.0
    assert [one.server.looks_at_metrics for one in found] == [3, 3]
    assert begun == [1, 1]


async def test_a_watch_that_is_ended_leaves_the_probe_out_and_reads_the_logs(look):
    watch = Watch(60.0)
    watch.enough.set()

    async def probe(*_: object) -> ProbeFacts:
        raise AssertionError

    [found] = await look.take(watched=lambda: nullcontext(watch), probe=probe)
    assert found.server.props is not None
    assert found.probe is None
    assert found.log is not None


async def test_a_probe_goes_to_each_server_and_its_failure_is_a_note(look):
    seen: list[tuple[int, Any]] = []

    async def probe(url: str, key: str | None, shown: ServerLook) -> ProbeFacts:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{url}/completion", json={"n_predict": 1})
        seen.append((answer.status_code, shown.props is not None))
        raise InvalidInputError("--probe", None, "nothing came back")

    [found] = await look.take(probe=probe)
    assert seen == [(404, True)]
    assert found.probe is None
    assert look.told == [f"pod {POD} could not be measured: nothing came back"]


async def test_a_relay_only_reads_and_has_a_path_that_nobody_guesses(look):
    place = PodPlace("shop", POD, Listening())
    async with relayed(look.reader, place) as url, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"{url}/health")).json() == {"status": "ok"}
        assert (await client.post(f"{url}/completion", json={})).status_code == 405
        assert (await client.get(f"{url.rpartition('/')[0]}/health")).status_code == 404
