"""Which pods of a Deployment are looked at, and which container of them is llama-server."""

from __future__ import annotations

from typing import Any

from slotune.gathering.deployment_pods import MOST_PODS
from slotune.gathering.look_errors import (
    NoPodsError,
    NoServerContainerError,
)
from tests.gathering.looking import POD
from tests.gathering.pods import container, container_status, crashed, deployment, pod


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
