"""A pod that nobody can reach is found with what Kubernetes says of it, and one that only starts is left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.checkup import NOT_ASKED, Rule, check_up
from slotune.diagnose.entry import Item
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity
from slotune.diagnose.rules import health, memory, serving
from slotune.diagnose.symptoms import ServerLook, Symptoms
from slotune.gathering.pod_facts import pod_facts
from slotune.tuning.pod_reading import PodReading
from tests.diagnose.rules.building import ask, found, is_clear, is_undecided, of, server
from tests.diagnose.rules.test_ending import UP, read
from tests.gathering.pods import container, container_status, crashed, event
from tests.gathering.pods import pod as pod_object
from tests.gathering.test_pod_facts import reading_of

NOW = datetime(2026, 3, 2, 13, 0, 5, tzinfo=UTC)
NOT_READY = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
RUNS = container_status(ready=False)
ENDPOINTS = ("/health", "/props", "/slots", "/metrics")


def refusing(why: str) -> ServerLook:
    return ServerLook("http://chat-5d4f-a:8080", refused=dict.fromkeys(ENDPOINTS, why))


def waiting(name: str, reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container_status(name=name, ready=False, state={"waiting": {"reason": reason, "message": message}}, **more)


def seen(
    *statuses: dict[str, Any],
    init: tuple[dict[str, Any], ...] = (),
    said: tuple[dict[str, Any], ...] = (),
    conditions: list[dict[str, Any]] | None = None,
    phase: str = "Running",
    words: tuple[str, ...] = (),
    look: ServerLook | None = None,
    log: str | None = None,
    **metadata: Any,
) -> Symptoms:
    """A server in a pod of this state, as its objects tell it."""
    own = container(args=["-m", "/models/a.gguf", *words])
    names = [str(one["name"]) for one in statuses if one["name"] != "llama"]
    spec = {"initContainers": [container(name=str(one["name"])) for one in init]}
    made = pod_object(
        "chat-5d4f-a", own, *(container(name=one) for one in names), spec=spec, phase=phase,
        conditions=NOT_READY if conditions is None else conditions, statuses=list(statuses), **metadata
    )  # fmt: skip
    made["status"]["initContainerStatuses"] = list(init)
    reading: PodReading = reading_of(own)
    facts = pod_facts(made, "llama", reading, events=said, now=NOW)
    return of(pod=facts, server=look, log=None if log is None else read(log))


def unscheduled(message: str) -> Symptoms:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return seen(phase="Pending", conditions=[condition])


def probed(message: str, **more: Any) -> Symptoms:
    return seen(RUNS, said=(event("Unhealthy", message),), **more)


DEAD = {
    "an image": (seen(waiting("llama", "ImagePullBackOff", 'Back-off pulling image "x"')), "the image's name"),
    "a Secret": (seen(waiting("llama", "CreateContainerConfigError", 'secret "k" not found')), "Secret or ConfigMap"),
    "a command": (seen(waiting("llama", "RunContainerError", 'exec: "llama": not found')), "container's command"),
    "an init container": (
        seen(
            waiting("llama", "PodInitializing"),
            init=(waiting("fetch", "CrashLoopBackOff", lastState=crashed(), restartCount=4),),
            phase="Pending",
        ),
        "kubectl logs chat-5d4f-a -c fetch --previous",
    ),
    "an init container's image": (
        seen(waiting("llama", "PodInitializing"), init=(waiting("fetch", "ErrImagePull"),), phase="Pending"),
        "the image's name",
    ),
    "a sidecar": (
        seen(container_status(), waiting("proxy", "CrashLoopBackOff", lastState=crashed())),
        "kubectl logs chat-5d4f-a -c proxy --previous",
    ),
    "a GPU": (unscheduled("0/3 nodes are available: 3 Insufficient nvidia.com/gpu."), "Free a nvidia.com/gpu"),
    "memory": (unscheduled("0/3 nodes are available: 3 Insufficient memory."), "Lower the pod's requests of memory"),
    "a claim": (unscheduled('0/3 nodes are available: persistentvolumeclaim "w" not found.'), "PersistentVolumeClaim"),
    "a taint": (unscheduled("0/1 nodes are available: 1 node(s) had untolerated taint {gpu: }."), "toleration"),
    "a path": (
        probed("Readiness probe failed: HTTP probe failed with statuscode: 404", look=server()),
        "ask /health at port 8080",
    ),
    "a port": (
        probed(
            'Readiness probe failed: Get "http://10.0.0.7:90/": dial tcp 10.0.0.7:90: connect: connection refused',
            look=server(),
        ),
        "ask port 8080, where the server listens",
    ),
    "a probe's command": (
        probed("Readiness probe failed: cat: /tmp/ready: No such file or directory", look=server()),
        "kubectl exec",
    ),
    "an address": (
        probed(
            'Readiness probe failed: Get "http://10.0.0.7:8080/health": dial tcp 10.0.0.7:8080: connect: '
            "connection refused",
            words=("--host", "127.0.0.1"),
            look=refusing("dial tcp 10.0.0.7:8080: connect: connection refused"),
        ),
        "--host 0.0.0.0",
    ),
    "a frozen server": (
        probed(
            'Readiness probe failed: Get "http://10.0.0.7:8080/health": context deadline exceeded',
            look=refusing("it takes connections and says nothing: no answer in 5 s"),
        ),
        "delete the pod",
    ),
}


@pytest.mark.parametrize("what", DEAD)
def test_a_pod_that_nobody_can_reach_is_found_with_its_cure(what: str) -> None:
    symptoms, first = DEAD[what]
    got = found(serving.RULES, "SLT116", symptoms, Severity.CRITICAL)
    assert first in (got.first or "")
    whole = check_up(symptoms, ALL_RULES)
    assert whole.findings[0].id == "SLT116"
    assert whole.is_healthy is False


@pytest.mark.parametrize(
    "symptoms",
    [
        pytest.param(
            probed(
                "Readiness probe failed: HTTP probe failed with statuscode: 503",
                look=refusing("it is still loading its model: ask again when /health says ok"),
            ),
            id="it loads",
        ),
        pytest.param(
            probed("Readiness probe failed: HTTP probe failed with statuscode: 503", look=server()),
            id="it has just loaded",
        ),
        pytest.param(
            seen(waiting("llama", "ContainerCreating"), phase="Pending", creationTimestamp="2026-03-02T12:59:30Z"),
            id="it is made",
        ),
        pytest.param(
            seen(container_status(ready=False, state={"running": {"startedAt": "2026-03-02T13:00:00Z"}})),
            id="it was just started",
        ),
    ],
)
def test_a_pod_that_only_starts_raises_no_alarm_and_is_not_called_healthy_either(symptoms: Symptoms) -> None:
    found(serving.RULES, "SLT116", symptoms, Severity.INFO)
    assert check_up(symptoms, ALL_RULES).is_healthy is None


def test_a_ready_pod_serves_unless_it_says_nothing_or_listens_to_itself_alone() -> None:
    is_ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T12:01:00Z"}]
    ready: dict[str, Any] = {"conditions": is_ready}
    assert is_clear(serving.RULES, "SLT116", seen(container_status(), look=server(), **ready))
    silent = refusing("it takes connections and says nothing: no answer in 5 s")
    hangs = found(serving.RULES, "SLT116", seen(container_status(), look=silent, **ready))
    assert hangs.confidence is Confidence.LIKELY
    refused = refusing("dial tcp 10.0.0.7:8080: connect: connection refused")
    own = ("--host", "localhost")
    alone = seen(container_status(), look=refused, words=own, **ready)
    assert found(serving.RULES, "SLT116", alone, Severity.CRITICAL).confidence is Confidence.CERTAIN
    beside = seen(container_status(), container_status(name="proxy"), look=refused, words=own, **ready)
    assert is_clear(serving.RULES, "SLT116", beside)  # which may pass requests on


def test_what_ends_and_is_started_again_is_found_once() -> None:
    looping = seen(waiting("llama", "CrashLoopBackOff", restartCount=3, lastState=crashed()))
    assert is_clear(serving.RULES, "SLT116", looping)
    found(health.RULES, "SLT111", looping, Severity.CRITICAL)


def test_a_server_outside_of_a_pod_is_clear_when_it_answers() -> None:
    assert is_clear(serving.RULES, "SLT116", of(server=server()))
    assert is_undecided(serving.RULES, "SLT116", of(log=read(UP)))


KILLED = event("Killing", "Container llama failed liveness probe, will be restarted", type="Normal")


@pytest.mark.parametrize(
    ("message", "first"),
    [
        ("Liveness probe failed: HTTP probe failed with statuscode: 503", "startupProbe"),
        ("Liveness probe failed: HTTP probe failed with statuscode: 404", "ask /health"),
        (
            'Liveness probe failed: Get "http://10.0.0.7:90/health": dial tcp 10.0.0.7:90: connect: connection refused',
            "ask port 8080",
        ),
    ],
)
def test_a_kill_for_a_probe_names_the_probe_and_nothing_else(message: str, first: str) -> None:
    ended = crashed(137)
    said = (KILLED, event("Unhealthy", message))
    symptoms = seen(
        container_status(ready=False, restartCount=4, lastState=ended), said=said, log=UP, words=("--port", "8080")
    )
    got = found(health.RULES, "SLT111", symptoms, Severity.CRITICAL, entry="SLT117")
    assert "its liveness probe failed" in got.sentence
    assert first in (got.first or "")
    assert not isinstance(ask(memory.RULES, "SLT034", symptoms), Finding)


def test_a_hook_that_fails_is_named_and_a_kill_for_memory_is_none_for_a_probe() -> None:
    hook = seen(
        waiting("llama", "CrashLoopBackOff", restartCount=2, lastState=crashed(137)),
        said=(event("FailedPostStartHook", "PostStartHook failed"),),
    )
    got = found(health.RULES, "SLT111", hook, Severity.CRITICAL, entry="SLT117")
    assert "postStart hook" in (got.first or "")
    oom = seen(
        container_status(ready=False, restartCount=2, lastState=crashed(137, "OOMKilled")),
        said=(event("Unhealthy", "Liveness probe failed: timeout"),),
    )
    found(health.RULES, "SLT111", oom, Severity.CRITICAL)


def test_a_container_that_waits_after_a_good_end_does_not_serve() -> None:
    looping = seen(waiting("llama", "CrashLoopBackOff", restartCount=11, lastState=crashed(0, "Completed")))
    found(health.RULES, "SLT111", looping, Severity.CRITICAL)


def test_a_restart_gives_the_cure_that_its_error_names() -> None:
    text = "error: invalid argument: --no-such-flag\n"
    symptoms = seen(waiting("llama", "CrashLoopBackOff", restartCount=2, lastState=crashed()), log=text)
    assert found(health.RULES, "SLT111", symptoms, Severity.CRITICAL).first == "Remove --no-such-flag."
    never = crashed(128, "StartError")
    never["terminated"]["message"] = 'exec: "llama-servr": executable file not found in $PATH'
    started = seen(waiting("llama", "CrashLoopBackOff", restartCount=2, lastState=never))
    got = found(health.RULES, "SLT111", started, Severity.CRITICAL)
    assert "llama-servr" in got.sentence
    assert "command" in (got.first or "")


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param({"log": read(UP), "server": refusing("wants an API key (401)")}, None, id="a key"),
        pytest.param({"log": read(UP), "server": refusing("no answer in 5 s")}, None, id="silence"),
        pytest.param({"log": read(UP), "server": refusing(NOT_ASKED + "no right")}, True, id="its log alone"),
        pytest.param({"server": refusing(NOT_ASKED + "no right")}, None, id="neither"),
        pytest.param({"server": server()}, True, id="it answers"),
        pytest.param({}, None, id="nothing"),
    ],
)
def test_nobody_is_called_healthy_who_was_not_seen_to_serve(parts: dict[str, Any], want: bool | None) -> None:
    clear = Rule("SLT001", Item.GPU, lambda _: Clear("well"))
    assert check_up(of(**parts), [clear]).is_healthy is want


def test_a_volume_that_cannot_be_mounted_is_found_once_it_is_no_first_try() -> None:
    said = (event("FailedMount", 'MountVolume.SetUp failed for volume "key" : secret "key" not found'),)
    made = waiting("llama", "ContainerCreating")
    old = seen(made, said=said, phase="Pending", creationTimestamp="2026-03-02T12:00:00Z")
    got = found(serving.RULES, "SLT116", old, Severity.CRITICAL)
    assert 'secret "key" not found' in got.sentence
    assert "pod's volumes" in (got.first or "")
    new = seen(made, said=said, phase="Pending", creationTimestamp="2026-03-02T13:00:00Z")
    found(serving.RULES, "SLT116", new, Severity.INFO)


def test_a_server_that_is_up_again_after_a_kill_for_a_probe_is_no_emergency_and_not_well() -> None:
    is_ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-02T12:59:00Z"}]
    symptoms = seen(
        container_status(restartCount=1, lastState=crashed(0, "Completed")),
        said=(KILLED,), conditions=is_ready, look=server(),
    )  # fmt: skip
    got = found(health.RULES, "SLT111", symptoms, Severity.WARNING, entry="SLT117")
    assert "startupProbe" in (got.first or "")
