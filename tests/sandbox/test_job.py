"""The Job of a trial: the user's pod as it is, nothing of production in it, and no way out of it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client as kubernetes_client

from slotune.api.v1alpha1.gpu_class import GPUClass
from slotune.api.v1alpha1.sandbox import Sandbox
from slotune.api.v1alpha1.trial import LlamaTrialSpec
from slotune.sandbox.job import (
    TRIAL_SPEC_ANNOTATION,
    ClientImage,
    TrialServer,
    network_policy,
    trial_job,
)
from slotune.sandbox.kept_template import UnusableTemplateError, kept_of
from slotune.sandbox.server_environment import launch_words, server_environment
from tests.sandbox.templates import UNTIDY
from tests.sandbox.trials import SPEC, trial

Object = dict[str, Any]

BARE: Object = {"spec": {"containers": [{"name": "llama", "image": "llama.cpp:server"}]}}
SERVER = TrialServer("llama", ("-m", "/models/m.gguf", "--host", "0.0.0.0"), ("/app/llama-server",))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def gpu_class(**spec: Any) -> GPUClass:
    stated = {"pricePerHour": "0.8", **spec}
    return GPUClass.from_manifest(
        {"apiVersion": "slotune.dev/v1alpha1", "kind": "GPUClass", "metadata": {"name": "l4"}, "spec": stated}
    )


L4 = gpu_class(resourceName="nvidia.com/gpu", nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"})
CPU = gpu_class()


def job(template: Object = UNTIDY, server: TrialServer = SERVER, of: GPUClass = L4, **more: Any) -> Object:
    sandbox, node = Sandbox.from_manifest(more.pop("sandbox", {})), more.pop("node", None)
    return trial_job(
        trial(**more),
        template,
        server,
        gpu_class=of,
        sandbox=sandbox,
        client=ClientImage("slotune:1"),
        measuring_s=600,
        node=node,
    )


def pod(*args: Any, **more: Any) -> Object:
    return job(*args, **more)["spec"]["template"]["spec"]  # type: ignore[no-any-return]  # plain JSON


def server_of(spec: Object) -> Object:
    return spec["initContainers"][-1]  # type: ignore[no-any-return]  # plain JSON


def client_of(spec: Object) -> Object:
    (only,) = spec["containers"]
    return only  # type: ignore[no-any-return]  # plain JSON


@pytest.mark.parametrize("template", [UNTIDY, BARE], ids=["untidy", "bare"])
def test_every_field_is_one_that_kubernetes_knows(template):
    """The official client's models know every field of Kubernetes 1.34; what they do not know would be dropped."""
    api = kubernetes_client.ApiClient()

    class Answer:
        def __init__(self, body: Object) -> None:
            self.data = json.dumps(body)

    for made, kind in ((job(template), "V1Job"), (network_policy("chat", "models", "u", Sandbox()), "V1NetworkPolicy")):
        text = Answer(made).data
        read = api.deserialize(text, kind, "application/json")
        assert api.sanitize_for_serialization(read) == made


def test_the_same_arguments_give_the_same_job_and_the_template_is_left_alone():
    before = copy.deepcopy(UNTIDY)
    assert job() == job()
    assert before == UNTIDY


def test_the_server_is_the_last_sidecar_after_all_init_containers_and_the_client_the_only_main_container():
    spec = pod()
    assert [c["name"] for c in spec["initContainers"]] == ["mesh", "fetch", "llama"]
    assert server_of(spec)["restartPolicy"] == "Always"
    assert client_of(spec)["name"] == "load-client"
    assert client_of(spec)["args"][:5] == ["trial", "--directory", "/slotune", "--port", "8080"]


def test_the_server_runs_what_is_measured_and_nothing_of_what_was_written_before():
    server = server_of(pod())
    assert server["command"] == ["/app/llama-server"]
    assert server["args"] == list(SERVER.args)
    assert "command" not in server_of(pod(server=TrialServer("llama", ("-m", "x"))))
    assert not {"livenessProbe", "readinessProbe", "lifecycle", "ports", "envFrom"} & server.keys()
    assert server["image"] == "llama.cpp:server-cuda-b11434"


def test_the_startup_probe_is_ours_and_lasts_as_long_as_a_start_may_take():
    probe = server_of(pod(measurement=SPEC["measurement"] | {"startupTimeout": "10m"}))["startupProbe"]
    assert probe["httpGet"] == {"path": "/health", "port": 8080}
    assert probe["periodSeconds"] * probe["failureThreshold"] == 600


def test_the_client_reads_the_trial_from_a_file_and_its_spec_comes_back():
    made = job(BARE)
    template = made["spec"]["template"]
    text = template["metadata"]["annotations"][TRIAL_SPEC_ANNOTATION]
    assert LlamaTrialSpec.from_manifest(json.loads(text)) == trial().spec
    (item,) = template["spec"]["volumes"][-1]["projected"]["sources"][0]["downwardAPI"]["items"]
    assert item == {
        "path": "trial.json",
        "fieldRef": {"fieldPath": f"metadata.annotations['{TRIAL_SPEC_ANNOTATION}']"},
    }


def test_prompts_and_trace_are_mounted_as_the_one_key_that_is_named():
    workload = {
        "load": {"trace": {"configMapKeyRef": {"name": "busy", "key": "t.jsonl"}}},
        "prompts": {"secretKeyRef": {"name": "asked", "key": "p.jsonl"}},
        "output": {"tokens": 8},
    }
    sources = pod(workload=workload)["volumes"][-1]["projected"]["sources"]
    assert sources[1:] == [
        {"secret": {"name": "asked", "items": [{"key": "p.jsonl", "path": "prompts"}]}},
        {"configMap": {"name": "busy", "items": [{"key": "t.jsonl", "path": "trace"}]}},
    ]


def test_what_a_comparison_compares_with_is_mounted_and_may_be_gone():
    reference = {"configMap": "chat-9876543210-reference", "digest": "ab" * 32}
    spec = pod(purpose="Quality", requestRate="0", reference=reference)
    item = {"key": "reference", "path": "reference"}
    wanted = {"name": "chat-9876543210-reference", "items": [item], "optional": True}
    assert spec["volumes"][-1]["projected"]["sources"][-1] == {"configMap": wanted}
    assert len(spec["volumes"][-1]["projected"]["sources"]) == len(pod()["volumes"][-1]["projected"]["sources"]) + 1


def test_only_the_client_sees_the_prompts():
    spec = pod()
    volume = spec["volumes"][-1]["name"]
    seen = [c["name"] for c in [*spec["initContainers"], *spec["containers"]] if _mounts(c, volume)]
    assert seen == ["load-client"]


def test_a_volume_of_the_users_that_is_called_like_ours_keeps_its_name():
    spec = pod()
    assert [v["name"] for v in spec["volumes"]].count("slotune") == 1
    assert spec["volumes"][-1]["name"] == "slotune-2"
    assert client_of(spec)["volumeMounts"] == [{"name": "slotune-2", "mountPath": "/slotune", "readOnly": True}]


def test_volumes_are_read_only_but_for_those_that_begin_empty():
    spec = pod()
    fetch, server = spec["initContainers"][1], server_of(spec)
    assert [m.get("readOnly") for m in _mounts(fetch, "models", "fetched")] == [None, True]
    assert {m["name"]: m.get("readOnly", False) for m in server["volumeMounts"]} == {
        "models": True,
        "fetched": False,
        "shm": False,
        "slotune": True,
    }


def test_secrets_stay_with_the_fetch_of_the_model_and_leave_the_server():
    spec = pod()
    assert [v["name"] for v in spec["volumes"]] == [
        "models", "fetched", "shm", "store-key", "slotune", "slotune-2",
    ]  # fmt: skip
    assert _mounts(spec["initContainers"][1], "store-key")
    named = TrialServer("llama", ("--lora", "/tls/adapter.gguf"))
    assert _mounts(server_of(pod(server=named)), "tls")


def test_no_token_of_the_api_server_is_in_the_pod():
    spec = pod()
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert "serviceAccountToken" not in json.dumps(spec)


def test_a_service_never_sends_users_to_a_trial():
    made = job()
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert "app" not in labels
    assert labels["slotune.dev/trial"] == made["metadata"]["name"] == "chat-0123456789"
    assert labels["slotune.dev/deployment"] == "chat"


def test_annotations_stay_but_for_those_that_bring_in_scrapers_and_meshes():
    annotations = job()["spec"]["template"]["metadata"]["annotations"]
    assert annotations["example.com/team"] == "nlp"
    assert "prometheus.io/scrape" not in annotations
    assert annotations["linkerd.io/inject"] == "disabled"


def test_the_job_runs_once_and_says_so_when_it_was_a_disruption():
    spec = job()["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 1, 1)
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["ttlSecondsAfterFinished"] == 86400
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_the_pods_deadline_comes_before_the_jobs_which_would_delete_what_it_says():
    spec = job(sandbox={"capacityTimeout": "1h"})["spec"]
    inner = spec["template"]["spec"]["activeDeadlineSeconds"]
    assert inner > 600 + 30
    assert spec["activeDeadlineSeconds"] >= inner + 3600


def test_the_trial_owns_its_job():
    (owner,) = job()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("LlamaTrial", "chat-0123456789", "7a1d")
    assert owner["controller"]
    assert owner["blockOwnerDeletion"]


def test_at_most_one_trial_per_node_in_all_namespaces_beside_the_users_own_rules():
    theirs, ours = pod()["affinity"]["podAntiAffinity"][REQUIRED]
    assert theirs["labelSelector"] == {"matchLabels": {"app": "batch"}}
    assert ours["labelSelector"]["matchExpressions"] == [{"key": "slotune.dev/trial", "operator": "Exists"}]
    assert ours["namespaceSelector"] == {}
    assert ours["topologyKey"] == "kubernetes.io/hostname"


def test_a_node_is_a_wish_beside_the_users_own_and_never_a_must():
    before = pod()["affinity"]
    after = pod(node="gpu-7")["affinity"]
    (wish,) = after["nodeAffinity"].pop("preferredDuringSchedulingIgnoredDuringExecution")[-1:]
    assert wish["weight"] == 100
    assert wish["preference"] == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}]}
    assert after["podAntiAffinity"] == before["podAntiAffinity"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    assert after["nodeAffinity"].get(required) == before.get("nodeAffinity", {}).get(required)
    assert pod(node=None)["affinity"] == before


def test_the_class_decides_the_node():
    spec = pod(of=gpu_class(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"}, tolerations=[{"operator": "Exists"}]))
    assert spec["nodeSelector"] == {"pool": "gpu", "nvidia.com/gpu.product": "NVIDIA-L4"}
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"operator": "Exists"}]


@pytest.mark.parametrize(
    ("resources", "of", "want"),
    [
        pytest.param({"limits": {"nvidia.com/gpu": 1}}, L4, {"limits": {"nvidia.com/gpu": 1}}, id="the same kind"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}, "requests": {"nvidia.com/gpu": 1}},
            gpu_class(resourceName="amd.com/gpu"),
            {"limits": {"cpu": "4", "amd.com/gpu": "1"}},
            id="another kind",
        ),
        pytest.param({"limits": {"cpu": "4"}}, L4, {"limits": {"cpu": "4", "nvidia.com/gpu": "1"}}, id="none so far"),
        pytest.param(
            {"limits": {"aliyun.com/gpu-mem": 10, "gpu.intel.com/millicores": 500}},
            L4,
            {"limits": {"nvidia.com/gpu": "1"}},
            id="shares count as one",
        ),
        pytest.param(
            {"limits": {"nvidia.com/mig-1g.10gb": 1, "rdma/hca": 1}}, CPU, {"limits": {"rdma/hca": 1}}, id="onto a CPU"
        ),
        pytest.param({"claims": [{"name": "gpu"}]}, L4, {"claims": [{"name": "gpu"}]}, id="a device claim is the GPU"),
    ],
)
def test_the_kind_of_gpu_is_the_classes(resources, of, want):
    template = copy.deepcopy(BARE)
    template["spec"]["containers"][0]["resources"] = resources
    template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    assert server_of(pod(template, of=of))["resources"] == want


def test_device_claims_come_along_when_a_kept_container_uses_them():
    assert pod()["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]


def test_the_load_client_is_restricted_and_never_takes_more_than_its_own():
    client = client_of(pod(sandbox={"loadClient": {"cpu": "2", "memory": "1Gi"}}))
    assert client["resources"]["limits"] == client["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert client["securityContext"]["runAsNonRoot"] is True
    assert client["securityContext"]["readOnlyRootFilesystem"] is True
    assert client["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "env" not in client


def test_what_the_user_says_about_security_stays_and_gaps_are_filled():
    spec = pod()
    assert spec["securityContext"] == {
        "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert server_of(spec)["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
    }  # fmt: skip
    assert server_of(pod(BARE))["securityContext"] == {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip


def test_a_privileged_server_is_not_made_a_contradiction():
    template = copy.deepcopy(BARE)
    template["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    assert server_of(pod(template))["securityContext"] == {"privileged": True}


def test_priority_is_the_sandboxes_and_never_productions():
    assert "priorityClassName" not in pod()
    assert pod(sandbox={"priorityClassName": "idle"})["priorityClassName"] == "idle"
    assert "priority" not in pod()


def test_kueue_gets_the_job_through_its_label():
    assert job(sandbox={"queueName": "gpus"})["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "suspend" not in job(sandbox={"queueName": "gpus"})["spec"]


def test_more_containers_leave_less_room_for_the_summary():
    few, many = copy.deepcopy(BARE), copy.deepcopy(BARE)
    many["spec"]["initContainers"] = [{"name": f"i{n}", "image": "x"} for n in range(6)]
    assert client_of(pod(few))["args"][-1] == "4096"
    assert client_of(pod(many))["args"][-1] == "1536"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param({"initContainers": [{"name": "load-client", "image": "x"}]}, "load-client", id="our name"),
        pytest.param({"containers": [{"name": "other", "image": "x"}]}, "llama", id="no such container"),
        pytest.param(
            {
                "containers": [{"name": "llama", "resources": {"claims": [{"name": "g"}]}}],
                "resourceClaims": [{"name": "g", "resourceClaimName": "production"}],
            },
            "resourceClaimTemplateName",
            id="production's own device",
        ),
    ],
)
def test_a_template_that_no_job_can_be_made_from_is_refused_with_the_cure(change, word):
    template = copy.deepcopy(BARE)
    template["spec"] |= change
    with pytest.raises(UnusableTemplateError, match=word):
        job(template)


def test_prompts_in_a_file_are_nowhere_in_a_cluster():
    workload = SPEC["workload"] | {"prompts": {"file": {"path": "p.jsonl"}}}
    with pytest.raises(UnusableTemplateError, match="ConfigMap"):
        job(workload=workload)


def test_what_was_left_out_is_said():
    notes = " ".join(kept_of(UNTIDY, "llama").notes)
    for word in ("shipper", "hostNetwork", "tls", "token"):
        assert word in notes


def test_a_container_that_fills_the_servers_volume_is_named_with_it():
    template = copy.deepcopy(UNTIDY)
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "fetched", "mountPath": "/x"}]
    assert any("make it an init container" in note for note in kept_of(template, "llama").notes)


OTHERS = st.dictionaries(
    st.sampled_from(["runtimeClassName", "schedulerName", "dnsPolicy", "hostUsers", "os", "aFieldOfTheFuture"]),
    st.text(max_size=9) | st.booleans() | st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@given(OTHERS, st.dictionaries(st.sampled_from(["imagePullPolicy", "workingDir", "aFieldOfTheFuture"]), st.text()))
def test_nothing_else_of_the_template_is_lost(pod_fields, container_fields):
    template = copy.deepcopy(BARE)
    template["spec"] |= pod_fields
    template["spec"]["containers"][0] |= container_fields
    spec = pod(template)
    assert {name: spec[name] for name in pod_fields} == pod_fields
    assert {name: server_of(spec)[name] for name in container_fields} == container_fields


def test_the_environment_has_no_flag_no_key_and_no_secret_that_is_not_named():
    llama = UNTIDY["spec"]["containers"][1]
    maps = {"flags": {"LLAMA_ARG_THREADS": "8", "GGML_SCHED": "1"}}
    names = [entry["name"] for entry in server_environment(llama, ("LICENCE", "S_EXTRA"), maps)]
    assert names == ["GGML_SCHED", "S_EXTRA", "CUDA_VISIBLE_DEVICES", "LICENCE"]


def test_a_key_of_the_server_is_never_given_and_a_variable_that_nobody_knows_always():
    """With a key the load client could not get in; the image's build may know the variable."""
    entries = [{"name": name, "value": "1"} for name in ("LLAMA_API_KEY", "LLAMA_ARG_NEWER", "LLAMA_ARG_NO_JINJA")]
    kept = server_environment({"env": entries}, ("LLAMA_API_KEY", "LLAMA_ARG_NO_JINJA"))
    assert [entry["name"] for entry in kept] == ["LLAMA_ARG_NEWER"]


def test_env_before_the_program_sets_no_flag_and_no_key_in_a_trial():
    words = ["tini", "--", "env", "-i", "LLAMA_ARG_NP=2", "LLAMA_ARG_N_PARALLEL=8", "LLAMA_API_KEY=x", "GGML_A=1", "ls"]
    assert launch_words(words) == ["tini", "--", "env", "-i", "LLAMA_ARG_NP=2", "GGML_A=1", "ls"]


def test_a_key_of_a_whole_secret_is_given_when_it_is_named():
    llama = UNTIDY["spec"]["containers"][1]
    (entry, _) = server_environment(llama, ("S_EXTRA",))
    assert entry["valueFrom"]["secretKeyRef"] == {"name": "all", "key": "EXTRA", "optional": True}


def test_a_token_that_is_written_out_needs_to_be_named_too():
    llama = UNTIDY["spec"]["containers"][1]
    assert "HF_TOKEN" in [entry["name"] for entry in server_environment(llama, ("HF_TOKEN",))]


def test_the_network_is_shut_in_both_directions_unless_the_model_comes_over_it():
    shut = network_policy("chat", "models", "u-1", Sandbox())["spec"]
    assert shut["policyTypes"] == ["Ingress", "Egress"]
    # A list that is empty would be written again and again: the API server does not keep it.
    assert not {"ingress", "egress"} & shut.keys()
    opened = network_policy("chat", "models", "u-1", Sandbox.from_manifest({"egress": "HTTPS"}))["spec"]
    assert [port["port"] for rule in opened["egress"] for port in rule["ports"]] == [443, 53, 53]
    assert "ingress" not in opened


def test_the_policy_selects_trials_of_its_deployment_and_no_pod_that_serves():
    selector = network_policy("chat", "models", "u-1", Sandbox())["spec"]["podSelector"]
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert selector["matchLabels"].items() <= labels.items()
    (only,) = selector["matchExpressions"]
    assert (only["operator"], only["key"] in labels) == ("Exists", True)


def _mounts(container: Object, *names: str) -> list[Object]:
    return [m for m in container.get("volumeMounts") or [] if m["name"] in names]
