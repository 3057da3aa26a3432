"""A Deployment is looked at in one go, reading only; whatever may not be seen is left out and said, never guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from slotune.controller.listening import Listening
from slotune.diagnose.evidence import Source
from slotune.diagnose.symptoms import ProbeFacts, ServerLook, Symptoms
from slotune.gathering import cluster, pod_logs, pod_server
from slotune.gathering.cluster import Wanted, look_at_deployment, look_in_cluster
from slotune.gathering.cluster_reader import ClusterReader, PodPlace
from slotune.gathering.deployment_pods import MOST_PODS
from slotune.gathering.look_errors import (
    MissingRightError,
    NoPodsError,
    NoServerContainerError,
    NoSuchDeploymentError,
    NotLlamaServerError,
    UnreachableClusterError,
)
from slotune.gathering.pod_relay import relayed
from slotune.gathering.watching import Watch
from slotune.tuning.errors import InvalidInputError
from tests.gathering.api_server import ApiServer, Handler, api_server, llama_server, silent, wanting, web_server
from tests.gathering.pods import container, container_status, crashed, deployment, event, node, pod

POD = "chat-5d4f-a"
LOGS = Path(__file__).parents[1] / "llama" / "logs"
START = (LOGS / "all_defaults.log").read_bytes()
KEY = "open sesame"


@dataclass
class Look:
    """One cluster, and what is told about it."""

    server: ApiServer
    reader: ClusterReader
    told: list[str] = field(default_factory=list)

    async def take(self, name: str = "chat", namespace: str = "shop", **more: Any) -> tuple[Symptoms, ...]:
        return await look_in_cluster(self.reader, namespace, Wanted(name, tell=self.told.append, **more))

    async def fails(self, kind: type[InvalidInputError], name: str = "chat", **more: Any) -> str:
        with pytest.raises(kind) as caught:
            await self.take(name, **more)
        assert type(caught.value) is kind
        return str(caught.value)


@pytest.fixture
async def look(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Look]:
    """A Deployment of one pod whose server is well."""
    monkeypatch.setattr(pod_server, "BETWEEN_S", 0.01)
    async with api_server() as server:
        server.put(deployment(), pod(), node())
        server.logs[POD, False] = START
        server.servers[POD] = llama_server
        async with ClusterReader(ApiClient(Configuration(host=server.url))) as reader:
            yield Look(server, reader)


def llama_deployment(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaDeployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "slo": {"ttftP95": "1500ms", "tokensPerSecondPerUser": "12"},
            "workload": {"ref": {"name": "traffic"}},
            "models": [{"name": "q4", "path": "/models/a.gguf"}],
            "gpuClasses": [{"name": "l4"}],
        }
        | spec,
    }


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


async def test_a_llama_deployment_without_its_deployment_says_which_is_missing(look):
    look.server.put(llama_deployment("tuned", targetRef={"name": "gone"}))
    said = await look.fails(NoSuchDeploymentError, "tuned")
    assert "LlamaDeployment tuned is about Deployment gone" in said


async def test_a_name_with_a_typing_error_gets_the_right_one(look):
    assert "did you mean chat?" in await look.fails(NoSuchDeploymentError, "chatt")


async def test_a_name_that_is_like_none_gets_those_that_there_are(look):
    assert "there is chat" in await look.fails(NoSuchDeploymentError, "frontend")


async def test_a_name_of_another_namespace_is_found_there(look):
    with pytest.raises(NoSuchDeploymentError, match="not in namespace empty, but in shop"):
        await look.take(namespace="empty")


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "ReplicaSet", "Pod"])
async def test_what_is_no_deployment_is_named_with_the_way_to_look_at_it(look, kind):
    look.server.put({"kind": kind, "metadata": {"name": "db", "namespace": "shop"}})
    said = await look.fails(NoSuchDeploymentError, "db")
    assert f"no Deployment of that name but a {kind}" in said
    assert f"kubectl logs -n shop {kind.lower()}/db | slotune diagnose --log -" in said
    assert f"kubectl port-forward -n shop {kind.lower()}/db 8080" in said


async def test_what_a_deployment_made_leads_to_it(look):
    owned = [{"kind": "Deployment", "name": "chat", "controller": True}]
    replicas = {"kind": "ReplicaSet", "metadata": {"name": "chat-5d4f", "namespace": "shop", "ownerReferences": owned}}
    made = [{"kind": "ReplicaSet", "name": "chat-5d4f", "controller": True}]
    look.server.put(replicas, pod(ownerReferences=made))
    assert "that is a Pod of Deployment chat: name that" in await look.fails(NoSuchDeploymentError, POD)
    assert "that is a ReplicaSet of Deployment chat" in await look.fails(NoSuchDeploymentError, "chat-5d4f")


@pytest.mark.parametrize("resource", ["statefulsets", "pods", "replicasets"])
async def test_a_kind_that_may_not_be_seen_keeps_no_name_from_being_corrected(look, resource):
    look.server.forbidden.add(f"get {resource}")
    assert "did you mean chat?" in await look.fails(NoSuchDeploymentError, "chatt")


async def test_a_missing_right_to_list_is_no_empty_namespace(look):
    look.server.forbidden.add("list deployments")
    said = await look.fails(NoSuchDeploymentError, "chatt")
    assert "your account lacks the right to list deployments.apps in namespace shop" in said
    assert "another namespace" not in said
    look.server.forbidden.clear()
    assert "there is none: name another namespace" in await look.fails(NoSuchDeploymentError, "abc", namespace="empty")


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("deployments", "your account lacks the right to get deployments.apps in namespace shop"),
        ("pods", "your account lacks the right to list pods in namespace shop"),
    ],
)
async def test_a_right_that_is_needed_is_named_with_the_role_that_has_it(look, resource, words):
    look.server.forbidden.add(resource)
    said = await look.fails(MissingRightError)
    assert words in said
    assert said.endswith("ask for the role of docs/diagnosis.md#rights-in-a-cluster")
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text()
    assert "\n## Rights in a cluster\n" in page
    assert "config/diagnose/rbac.yaml" in page


async def test_credentials_that_are_not_taken_are_no_missing_right(look):
    look.server.status = 401
    assert "log in again" in await look.fails(MissingRightError)


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


async def test_a_crash_loop_has_its_end_and_its_last_words(look):
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = container_status(ready=False, restartCount=4, state=waiting, lastState=crashed(1))
    look.server.put(pod(statuses=[status], conditions=[{"type": "Ready", "status": "False"}]))
    # While it waits, kubelet gives the same log for both.
    look.server.logs |= dict.fromkeys([(POD, False), (POD, True)], (LOGS / "compute_too_big.log").read_bytes())
    [found] = await look.take()
    assert found.server is None
    assert found.pod is not None
    assert (found.pod.restarts, found.pod.last_exit, found.pod.ready) == (4, ("Error", 1), False)
    assert found.log is not None
    assert found.log.failure is not None
    assert [str(one) for one in found.pod.events] == ["pod  waiting: CrashLoopBackOff: back-off"]


async def test_the_line_before_a_restart_is_kept_beside_the_new_log(look):
    look.server.put(pod(statuses=[container_status(restartCount=1, lastState=crashed(1))]))
    look.server.logs[POD, True] = (LOGS / "compute_too_big.log").read_bytes()
    [found] = await look.take()
    assert found.log is not None
    assert found.log.failure is None
    assert found.pod is not None
    first = found.pod.events[0]
    assert first.source is Source.LOG
    assert first.text.startswith("before the restart: ")


async def test_a_pod_that_never_started_has_no_log(look):
    look.server.logs.clear()
    look.server.put(pod(statuses=[], phase="Pending", conditions=[]))
    [found] = await look.take()
    assert (found.log, found.server) == (None, None)


async def test_a_log_is_not_asked_for_where_no_container_started(look):
    look.server.put(pod(statuses=[], phase="Pending", conditions=[]))
    [found] = await look.take()
    assert (found.log, look.told) == (None, [])


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


async def test_a_log_of_another_program_is_none(look):
    look.server.logs[POD, False] = b"GET / 200\n" * 100
    [found] = await look.take()
    assert found.log is None


LINE = b"9.00.000.%03d I slot      release: id  0 | task %d | stop processing: n_tokens = 9, truncated = 0\n"


@pytest.mark.parametrize("overlap", [True, False])
async def test_of_a_long_log_the_beginning_and_the_end_are_read_and_no_line_twice(look, monkeypatch, overlap):
    body = b"".join(LINE % (number % 1000, number) for number in range(400))
    whole = START + body
    beginning = len(whole) - (20 if overlap else 200) * len(LINE % (1, 100))
    monkeypatch.setattr(pod_logs, "HEAD_BYTES", beginning)
    monkeypatch.setattr(pod_logs, "TAIL_LINES", (100,))
    look.server.logs[POD, False] = whole
    [found] = await look.take()
    assert found.log is not None
    lines = len(whole.splitlines())
    if overlap:
        assert found.log.lines == lines
        assert look.told == []
    else:
        assert found.log.lines < lines
        assert any("the middle was not read" in line for line in look.told)
    assert found.log.starts == 1


async def test_a_log_that_takes_too_long_counts_as_far_as_it_was_read(look, monkeypatch):
    monkeypatch.setattr(cluster, "LOGS_LIMIT_S", 0.0)
    [found] = await look.take()
    assert found.log is None
    assert look.told == [f"the log of pod {POD} was not read: those of others took 0 s"]


async def test_pods_that_are_worse_off_come_first_and_those_left_out_are_named(look):
    look.server.put(*(pod(f"chat-5d4f-{number}") for number in range(MOST_PODS)))
    look.server.put(pod("chat-5d4f-z", statuses=[container_status(ready=False, restartCount=2)]))
    found = await look.take()
    assert len(found) == MOST_PODS
    assert found[0].name == "chat-5d4f-z"
    assert look.told == [
        f"{MOST_PODS} of {MOST_PODS + 2} pods are looked at; left out: chat-5d4f-{MOST_PODS - 1}, {POD}"
    ]


async def test_a_pod_that_was_evicted_is_a_word_and_no_server(look):
    gone = pod("chat-5d4f-old", phase="Failed")
    gone["status"] |= {"reason": "Evicted", "message": "The node was low on resource: memory."}
    look.server.put(gone)
    found = await look.take()
    assert [one.name for one in found] == [POD]
    assert look.told == ["pod chat-5d4f-old is gone: Evicted: The node was low on resource: memory."]


async def test_pods_that_are_being_deleted_and_those_of_others_are_not_looked_at(look):
    look.server.put(pod("going", deletionTimestamp="2026-03-02T12:00:00Z"), pod("other", labels={"app": "else"}))
    assert [one.name for one in await look.take()] == [POD]


async def test_a_deployment_scaled_to_nothing_says_so(look):
    look.server.put(deployment(replicas=0), pod(labels={}))
    assert "its replicas are 0" in await look.fails(NoPodsError)


async def test_pods_that_could_not_be_made_say_why(look):
    quota = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: gpus"}
    look.server.put(deployment(conditions=[quota]), pod(labels={}))
    assert "exceeded quota: gpus" in await look.fails(NoPodsError)


async def test_a_pod_of_two_unknown_programs_wants_the_container_named(look):
    both = (container(name="a", image="x", args=None), container(name="b", image="y", args=None))
    look.server.put(deployment("chat", *both), pod(POD, *both, statuses=[container_status(name="b")]))
    assert "name it with --container, one of a, b" in await look.fails(NoServerContainerError)
    assert "one of a, b" in await look.fails(NoServerContainerError, container="c")
    [found] = await look.take(container="b")
    assert found.pod is not None
    assert found.pod.image == "y"


async def test_of_several_servers_in_a_pod_one_is_to_be_named(look):
    first, second = (container(name=name, args=["-m", name]) for name in ("a", "b"))
    look.server.put(deployment("chat", first, second), pod(POD, first, second, statuses=[container_status(name="b")]))
    said = await look.fails(NoServerContainerError)
    assert "2 of its containers are llama-server: name one with --container: a, b" in said
    [found] = await look.take(container="b")
    assert found.flags == ("-m", "b")


def with_sidecar(made: dict[str, Any], *beside: dict[str, Any]) -> dict[str, Any]:
    spec = made["spec"]["template"]["spec"] if made["kind"] == "Deployment" else made["spec"]
    spec["initContainers"] = [one | {"restartPolicy": "Always"} for one in beside]
    return made


async def test_a_native_sidecar_that_is_the_server_is_looked_at(look):
    proxy = container(name="proxy", image="envoy", args=None)
    own = container(args=["-m", "a", "--port", "9000"], envFrom=[{"configMapRef": {"name": "settings"}}])
    made = pod(POD, proxy, statuses=[container_status(name="proxy")])
    made["status"]["initContainerStatuses"] = [container_status(restartCount=2, lastState=crashed(1))]
    settings = {"kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}}
    look.server.put(with_sidecar(deployment("chat", proxy), own), with_sidecar(made, own))
    look.server.put(settings | {"data": {"LLAMA_ARG_N_PARALLEL": "3"}})
    [found] = await look.take()
    assert found.server is not None
    assert found.server.url == f"http://{POD}:9000"
    assert found.server.props is not None
    assert found.flags == ("--parallel", "3", "-m", "a", "--port", "9000")
    assert found.pod is not None
    assert found.pod.restarts == 2
    assert look.told == ["container llama is taken for llama-server; --container names another"]
    assert "name one of proxy, llama" in await look.fails(NoServerContainerError, container="x")
    [found] = await look.take(container="llama")
    assert found.log is not None


async def test_two_servers_of_which_one_is_a_native_sidecar_are_both_named(look):
    beside = container(name="draft", args=["-m", "b"])
    look.server.put(with_sidecar(deployment(), beside))
    assert "name one with --container: llama, draft" in await look.fails(NoServerContainerError)


async def test_a_server_that_a_shell_starts_is_read_like_any_other(look):
    own = container(image="x", command=["sh", "-c"], args=["exec llama-server -m a -np 2 --port 9000 2>&1"])
    other = container(name="logs", image="y", args=None)
    look.server.put(deployment("chat", other, own), pod(POD, other, own))
    [found] = await look.take()
    assert found.flags == ("-m", "a", "-np", "2", "--port", "9000")
    assert found.server is not None
    assert found.server.url == f"http://{POD}:9000"


async def test_a_container_that_is_only_guessed_is_said(look):
    look.server.put(deployment("chat", container(image="x")), pod(POD, container(image="x")))
    await look.take()
    assert look.told == ["container llama is taken for llama-server, although nothing in the Deployment says so"]


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
