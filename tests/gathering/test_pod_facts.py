"""What a diagnosis learns from a pod's and a node's objects: limits, ends, warnings, volumes, and never a key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.kubernetes_types import PodTemplate
from slotune.diagnose.evidence import LONGEST
from slotune.diagnose.symptoms import PodFacts
from slotune.gathering.claimed_gpus import claimed_gpus, claimed_parts
from slotune.gathering.command_words import HIDDEN, server_flags, shown_words
from slotune.gathering.pod_facts import node_facts, pod_facts
from slotune.gathering.pod_troubles import MOST_EVENTS
from slotune.tuning.pod_reading import PodReading, read_pod
from tests.gathering.pods import container, container_status, crashed, event, node, pod

SECRET = "sk-5ca1ab1e"  # a key of the tests' own


def reading_of(own: dict[str, Any], config_maps: dict[str, dict[str, str]] | None = None) -> PodReading:
    template = PodTemplate.from_manifest({"spec": {"containers": [own]}})
    return read_pod(template, template.spec.containers[0], config_maps or {})


def facts_of(own: dict[str, Any], **config_maps: dict[str, str]) -> PodFacts:
    return pod_facts(pod("chat-5d4f-a", own), "llama", reading_of(own, config_maps))


def flags_of(own: dict[str, Any]) -> tuple[str, ...]:
    template = PodTemplate.from_manifest({"spec": {"containers": [own]}})
    return server_flags(template.spec.containers[0], reading_of(own))


def texts(facts: PodFacts) -> list[str]:
    return [str(one) for one in facts.events]


def test_limits_are_cores_and_bytes():
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1500m", "memory": "2Gi"}}
    facts = facts_of(container(resources=resources))
    assert (facts.cpu_limit, facts.memory_limit_bytes) == (1.5, 2 << 30)


def test_a_limit_of_the_whole_pod_counts_where_the_container_has_none():
    limits = {"resources": {"limits": {"cpu": "3", "memory": "1G"}}}
    own = container(resources={"limits": {"cpu": "2"}})
    facts = pod_facts(pod("chat-5d4f-a", own, spec=limits), "llama")
    assert (facts.cpu_limit, facts.memory_limit_bytes) == (2, 1_000_000_000)


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param({"nvidia.com/gpu": "2"}, 2, id="two devices"),
        pytest.param({"nvidia.com/mig-1g.10gb": 1}, 1, id="a partition"),
        pytest.param({"nvidia.com/gpumem": "4000"}, 1, id="a part of one's memory"),
        pytest.param({"cpu": "2", "rdma/ib": "1"}, 0, id="none"),
        pytest.param({"nvidia.com/gpu": "0"}, 0, id="none of them"),
        pytest.param({"nvidia.com/gpu": "many"}, 0, id="no number"),
    ],
)
def test_gpus_are_counted_in_devices(limits, want):
    assert facts_of(container(resources={"limits": limits})).gpus == want


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param({"nvidia.com/mig-1g.5gb": 1, "cpu": "2"}, ("nvidia.com/mig-1g.5gb",), id="a slice"),
        pytest.param({"nvidia.com/gpu": 1, "nvidia.com/gpucores": "30"}, ("nvidia.com/gpucores",), id="a share of it"),
        pytest.param({"nvidia.com/gpu": 1}, (), id="all of it"),
        pytest.param({"nvidia.com/mig-1g.5gb": "many"}, (), id="no number"),
    ],
)
def test_what_a_pod_has_no_more_than_a_part_of_is_told(limits, want):
    assert facts_of(container(resources={"limits": limits})).gpu_parts == want


def test_gpus_of_a_native_sidecar_count_and_those_of_what_only_runs_at_the_start_do_not():
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    proxy = container(name="proxy", image="envoy", args=None)
    beside, before = container(restartPolicy="Always", **limits), container(name="fetch", **limits)
    assert pod_facts(pod("a", proxy, spec={"initContainers": [beside, before]}), "llama").gpus == 1
    assert pod_facts(pod("a", proxy, spec={"initContainers": [before]}), "proxy").gpus == 0


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({"exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}, 2, id="of today"),
        pytest.param({"deviceClassName": "gpu.nvidia.com"}, 1, id="as it was written before"),
        pytest.param({"exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}}, 1, id="all"),
        pytest.param({"exactly": {"deviceClassName": "sriov-nic"}}, 0, id="a network"),
        pytest.param(
            {"firstAvailable": [{"deviceClassName": "gpu.a", "count": 1}, {"deviceClassName": "gpu.b", "count": 4}]},
            4,
            id="whatever is free",
        ),
    ],
)
def test_gpus_of_a_resource_claim_are_counted(request_, want):
    own = {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}
    assert claimed_gpus(own, {"one": {"spec": {"spec": {"devices": {"requests": [request_]}}}}}) == want
    assert claimed_gpus(own, {}) == 0


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({"exactly": {"deviceClassName": "mig.nvidia.com"}}, ("mig.nvidia.com",), id="a slice"),
        pytest.param({"exactly": {"deviceClassName": "gpu.nvidia.com"}}, (), id="all of one"),
        pytest.param({"deviceClassName": "migration.example.com"}, (), id="another word"),
        pytest.param(
            {"firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}, {"deviceClassName": "mig.nvidia.com"}]},
            ("mig.nvidia.com",),
            id="perhaps a slice",
        ),
    ],
)
def test_a_slice_that_is_claimed_is_a_part(request_, want):
    own = pod("chat-5d4f-a", container(), spec={"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "one"}]})
    parts = claimed_parts(own, {"one": {"spec": {"spec": {"devices": {"requests": [request_]}}}}})
    assert parts == want
    assert pod_facts(own, "llama", claimed_gpus=1, claimed_parts=parts).gpu_parts == want


def test_the_last_end_is_the_one_before_a_restart():
    status = container_status(restartCount=3, lastState=crashed(137, "OOMKilled"))
    facts = pod_facts(pod(statuses=[status]), "llama")
    assert (facts.restarts, facts.last_exit, facts.ready) == (3, ("OOMKilled", 137), True)
    assert facts.last_exit_ago_s is None, "nobody said what time it is"


def test_how_long_ago_it_ended_is_told_by_a_clock_that_may_differ_from_the_nodes():
    own = pod(statuses=[container_status(restartCount=1, lastState=crashed())])  # it ended at 12:00:30
    assert pod_facts(own, "llama", now=datetime(2026, 3, 3, 12, 0, 30, tzinfo=UTC)).last_exit_ago_s == 86_400
    assert pod_facts(own, "llama", now=datetime(2026, 3, 2, 12, 0, 0, tzinfo=UTC)).last_exit_ago_s == 0
    assert pod_facts(pod(), "llama", now=datetime(2026, 3, 3, tzinfo=UTC)).last_exit_ago_s is None


def test_a_container_that_waits_to_be_started_again_says_so_first():
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}}
    status = container_status(ready=False, restartCount=3, state=waiting, lastState=crashed())
    unready = [{"type": "Ready", "status": "False"}]
    facts = pod_facts(
        pod(statuses=[status], conditions=unready), "llama", events=[event("BackOff", "Back-off restarting")]
    )
    assert facts.ready is False
    assert texts(facts) == [
        "pod  waiting: CrashLoopBackOff: back-off 40s restarting failed container",
        "event  BackOff: Back-off restarting",
    ]


def test_a_pod_without_a_node_says_why():
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    facts = pod_facts(pod(statuses=[], phase="Pending", conditions=[unscheduled]), "llama")
    assert texts(facts) == ["pod  not scheduled: Unschedulable: 0/3 nodes"]
    assert facts.ready is False


def test_warnings_come_newest_first_and_bounded():
    many = [event("Unhealthy", f"probe {n}", f"2026-03-02T13:{n:02}:00Z") for n in range(MOST_EVENTS + 5)]
    facts = pod_facts(pod(), "llama", events=[*many, event("Pulled", "fine", type="Normal")])
    assert len(facts.events) == MOST_EVENTS
    assert texts(facts)[0] == f"event  Unhealthy: probe {MOST_EVENTS + 4}"


def test_what_was_said_of_a_start_that_went_well_is_over():
    start = event("Unhealthy", "connection refused", "2026-03-02T12:00:50Z")
    assert pod_facts(pod(), "llama", events=[start]).events == ()
    restarted = pod(statuses=[container_status(restartCount=1, lastState=crashed())])
    assert len(pod_facts(restarted, "llama", events=[start]).events) == 1


def test_the_same_warning_counts_once_with_its_number():
    twice = [event("Unhealthy", "503", count=4), event("Unhealthy", "503", "2026-03-02T14:00:00Z", count=2)]
    assert texts(pod_facts(pod(), "llama", events=twice)) == ["event  Unhealthy × 6: 503"]


def test_an_event_of_the_newer_kind_is_read_too():
    newer = {"type": "Warning", "reason": "OOM", "note": "killed", "series": {"count": 3, "lastObservedTime": None}}
    assert texts(pod_facts(pod(conditions=[]), "llama", events=[newer])) == ["event  OOM × 3: killed"]


def test_a_long_message_is_cut_and_stands_on_one_line():
    [found] = pod_facts(pod(), "llama", events=[event("Failed", "a\nb " * 400)]).events
    assert len(found.text) == LONGEST
    assert "\n" not in found.text


VOLUMES = {
    "share": {"nfs": {"server": "filer", "path": "/models"}},
    "disk": {"hostPath": {"path": "/models"}},
    "scratch": {"emptyDir": {}},
    "tmpfs": {"emptyDir": {"medium": "Memory"}},
    "driver": {"csi": {"driver": "efs.csi.aws.com"}},
    "inside": {"image": {"reference": "models:1"}},
    "claim": {"persistentVolumeClaim": {"claimName": "models"}},
    "own": {"ephemeral": {"volumeClaimTemplate": {}}},
    "token": {"projected": {"sources": []}},
}


def volumes_of(*names: str, **known: Any) -> dict[str, str]:
    own = container(volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in names])
    spec = {"volumes": [{"name": name} | VOLUMES[name] for name in names]}
    return dict(pod_facts(pod("chat-5d4f-a", own, spec=spec), "llama", **known).volumes)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("share", "nfs"),
        ("disk", "hostPath"),
        ("scratch", "emptyDir"),
        ("tmpfs", "emptyDir (memory)"),
        ("driver", "csi efs.csi.aws.com"),
        ("inside", "image"),
        ("claim", "persistentVolumeClaim"),
    ],
)
def test_a_mount_is_told_by_the_kind_of_its_volume(name, want):
    assert volumes_of(name) == {f"/{name}": want}


def test_a_claim_is_told_by_the_volume_behind_it_or_by_its_class():
    claim = {"spec": {"volumeName": "pv-1", "storageClassName": "fast"}}
    volume = {"spec": {"capacity": {"storage": "1Gi"}, "claimRef": {}, "nfs": {"server": "filer"}}}
    assert volumes_of("claim", claims={"models": claim}) == {"/claim": "persistentVolumeClaim (class fast)"}
    found = volumes_of("claim", claims={"models": claim}, volumes={"pv-1": volume})
    assert found == {"/claim": "persistentVolumeClaim (nfs)"}


def test_a_claim_that_a_pod_makes_itself_is_found_by_its_name():
    claim = {"spec": {"volumeName": "pv-1"}}
    volume = {"spec": {"csi": {"driver": "ebs.csi.aws.com"}}}
    found = volumes_of("own", claims={"chat-5d4f-a-own": claim}, volumes={"pv-1": volume})
    assert found == {"/own": "persistentVolumeClaim (csi ebs.csi.aws.com)"}


def test_volumes_with_keys_are_no_storage():
    assert volumes_of("token") == {}


def test_a_node_is_its_cores_its_kind_and_its_pressures():
    labels = {
        "node.kubernetes.io/instance-type": "g6.xlarge",
        "nvidia.com/gpu.product": "NVIDIA-L4",
        "example.com/owner": "somebody",
    }
    conditions = [
        {"type": "MemoryPressure", "status": "True"},
        {"type": "DiskPressure", "status": "False"},
        {"type": "Ready", "status": "True"},
    ]
    facts = node_facts(node(labels=labels, conditions=conditions))
    assert (facts.name, facts.cores, facts.pressures) == ("node-1", 16, ("MemoryPressure",))
    assert set(facts.labels) == {"node.kubernetes.io/instance-type", "nvidia.com/gpu.product"}


def test_a_node_says_how_much_memory_and_swap_it_has_or_nothing():
    silent = node()
    assert (node_facts(silent).memory_bytes, node_facts(silent).swap_bytes) == (64 << 30, None)
    for capacity in (0, 8 << 30):
        silent["status"]["nodeInfo"] = {"swap": {"capacity": capacity}}
        assert node_facts(silent).swap_bytes == capacity


def test_how_long_a_start_took_is_known_of_a_pod_that_is_ready():
    assert pod_facts(pod(), "llama").ready_after_s == 50
    assert pod_facts(pod(conditions=[]), "llama").ready_after_s is None
    assert pod_facts(pod(statuses=[container_status(state=crashed())]), "llama").ready_after_s is None
    odd = container_status(state={"running": {"startedAt": "yesterday"}})
    assert pod_facts(pod(statuses=[odd]), "llama").ready_after_s is None


def test_arguments_have_their_variables_filled_in():
    env = [
        {"name": "SLOTS", "value": "4"},
        {"name": "SIZE", "valueFrom": {"configMapKeyRef": {"name": "chat", "key": "size"}}},
    ]
    own = container(command=["llama-server"], args=["-np", "$(SLOTS)", "-c", "$(SIZE)", "-a", "$(NOBODY)"], env=env)
    facts = facts_of(own, chat={"size": "8192"})
    assert facts.args == ("llama-server", "-np", "4", "-c", "8192", "-a", "$(NOBODY)")


def test_variables_of_llama_cpp_are_kept_and_others_are_not():
    env = [
        {"name": "LLAMA_ARG_N_PARALLEL", "value": "4"},
        {"name": "GGML_CUDA_NO_PINNED", "value": "1"},
        {"name": "DATABASE_URL", "value": "postgres://"},
        {"name": "LLAMA_ARG_CTX_SIZE", "valueFrom": {"secretKeyRef": {"name": "chat", "key": "size"}}},
    ]
    assert facts_of(container(env=env)).env == {"LLAMA_ARG_N_PARALLEL": "4", "GGML_CUDA_NO_PINNED": "1"}


def test_a_key_is_named_and_never_shown():
    env = [
        {"name": "LLAMA_API_KEY", "value": SECRET},
        {"name": "LLAMA_TOKEN", "valueFrom": {"secretKeyRef": {"name": "chat", "key": "token"}}},
        {"name": "HF_TOKEN", "value": SECRET},
    ]
    own = container(args=["--api-key", SECRET, "-np", "2"], env=env)
    facts = facts_of(own)
    assert facts.args == ("--api-key", HIDDEN, "-np", "2")
    assert facts.env == {"LLAMA_API_KEY": HIDDEN, "LLAMA_TOKEN": "(Secret chat)"}
    assert flags_of(own) == ("--api-key", HIDDEN, "-np", "2")
    assert SECRET not in repr(facts)


@given(
    st.sampled_from(["--api-key", "--api_key", "-hft", "--hf-token", "--auth-token", "--some-password"]),
    st.lists(st.sampled_from(["-np", "4", "-c", "8192", "--metrics"]), max_size=4),
    st.lists(st.sampled_from(["-b", "512", "--port", "8080"]), max_size=4),
    st.sampled_from(["behind", "joined", "scripted"]),
)
def test_no_key_gets_out_wherever_it_stands(flag, before, after, how):
    stated = {"behind": [flag, SECRET], "joined": [f"{flag}={SECRET}"], "scripted": [f"llama-server {flag} {SECRET}"]}
    found = list(shown_words([*before, *stated[how], *after]))
    assert SECRET not in " ".join(found)
    assert found[: len(before)] == before
    assert found[len(found) - len(after) :] == after


def test_a_file_that_holds_a_key_is_no_key():
    words = ["--api-key-file", "/keys/chat", "--ssl-key-file", "/keys/tls"]
    assert list(shown_words(words)) == words


def test_variables_that_are_flags_come_before_the_arguments_which_win():
    env = [{"name": "LLAMA_ARG_CTX_SIZE", "value": "4096"}, {"name": "LLAMA_ARG_N_PARALLEL", "value": "8"}]
    found = flags_of(container(args=["-np", "2"], env=env))
    assert found[-2:] == ("-np", "2")
    assert "4096" in found
    assert "8" not in found


@pytest.mark.parametrize(
    "command",
    [["sh", "-c", "exec llama-server -np 4"], ["/entrypoint.sh"], ["python3", "-m", "llama_cpp.server"]],
    ids=" ".join,
)
def test_flags_are_not_known_where_something_else_starts_the_server(command):
    assert flags_of(container(command=command, args=["-np", "4"])) == ()


def test_an_object_that_says_nothing_is_no_error():
    facts = pod_facts({"metadata": {"name": "a"}}, "llama")
    assert facts == PodFacts("a")
    assert node_facts({}).cores is None


NOT_READY = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]


def waiting(name: str, reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container_status(name=name, ready=False, state={"waiting": {"reason": reason, "message": message}}, **more)


@pytest.mark.parametrize(
    ("statuses", "init", "want"),
    [
        pytest.param(
            [waiting("llama", "ImagePullBackOff", "Back-off pulling image")],
            [],
            ["pod  waiting: ImagePullBackOff: Back-off pulling image"],
            id="its own image",
        ),
        pytest.param(
            [waiting("llama", "PodInitializing")],
            [waiting("fetch", "CrashLoopBackOff", "back-off 10s", lastState=crashed(3))],
            ["pod  init container fetch: CrashLoopBackOff: back-off 10s (exit code 3)"],
            id="an init container",
        ),
        pytest.param(
            [container_status(), waiting("proxy", "CrashLoopBackOff", lastState=crashed(2))],
            [],
            ["pod  container proxy: CrashLoopBackOff: (exit code 2)"],
            id="one beside it",
        ),
        pytest.param(
            [container_status(), container_status(name="proxy", ready=False)],
            [],
            ["pod  container proxy: not ready"],
            id="one beside it runs and isn't ready",
        ),
        pytest.param([waiting("llama", "ContainerCreating")], [], [], id="a usual start"),
    ],
)
def test_what_keeps_a_pod_from_being_ready_is_told_of_every_container(statuses, init, want):
    names = [one["name"] for one in statuses[1:]]
    spec = {"initContainers": [container(name=one["name"]) for one in init]}
    own = pod("chat-5d4f-a", container(), *(container(name=name) for name in names), spec=spec, conditions=NOT_READY)
    own["status"] |= {"containerStatuses": statuses, "initContainerStatuses": init}
    facts = pod_facts(own, "llama")
    assert facts.ready is False
    assert texts(facts) == want
    assert len(facts.troubles) == len(want)


def test_a_kill_for_a_probe_is_told_although_it_is_no_warning():
    said = [
        event("Killing", "Container llama failed liveness probe, will be restarted", type="Normal"),
        event("Killing", "Stopping container llama", type="Normal"),
        event("Scheduled", "assigned to node-1", type="Normal"),
    ]
    facts = pod_facts(pod(conditions=NOT_READY), "llama", events=said)
    assert texts(facts) == ["event  Killing: Container llama failed liveness probe, will be restarted"]


def test_what_is_said_of_another_container_names_it():
    of_proxy = {"kind": "Pod", "name": "chat-5d4f-a", "fieldPath": "spec.containers{proxy}"}
    own = {"kind": "Pod", "name": "chat-5d4f-a", "fieldPath": "spec.containers{llama}"}
    said = [
        event("Unhealthy", "Readiness probe failed", at="2026-03-02T13:00:01Z", involvedObject=of_proxy),
        event("Unhealthy", "Liveness probe failed", involvedObject=own),
    ]
    facts = pod_facts(pod(conditions=NOT_READY), "llama", events=said)
    assert texts(facts) == [
        "event  Unhealthy (proxy): Readiness probe failed",
        "event  Unhealthy: Liveness probe failed",
    ]


def test_how_long_it_has_been_there_and_has_run_is_known():
    now = datetime(2026, 3, 2, 12, 5, tzinfo=UTC)
    facts = pod_facts(pod(creationTimestamp="2026-03-02T12:00:00Z"), "llama", now=now)
    assert (facts.phase, facts.age_s, facts.running_s) == ("Running", 300, 290)
