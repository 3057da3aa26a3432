"""The node is a real one: what the product needs of Kubernetes works here, with real pods."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from e2e.cluster import Cluster, KubectlError, Object
from e2e.conftest import Images
from e2e.models import WEIGHTS
from e2e.node.configuration import PAUSE_IMAGE
from e2e.waiting import eventually

GPU = {"limits": {"nvidia.com/gpu": "1"}}
POD_LIMIT_S = 60.0
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(autouse=True)
def own_node(cluster: Cluster) -> None:
    """These tests are about the node that the tests make."""
    if cluster.node is None:
        pytest.skip("another cluster is its owner's business")


def container(name: str, script: str, **fields: Any) -> Object:
    """One that Pod Security ``restricted`` lets in."""
    return {
        "name": name,
        "image": PAUSE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **fields,
    }


def pod_spec(*containers: Object, **fields: Any) -> Object:
    """A pod's specification that Pod Security ``restricted`` lets in."""
    return {
        "containers": list(containers),
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        **fields,
    }


def pod(name: str, spec: Object, **labels: str) -> Object:
    """A pod that is no one's."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def web_server(name: str, text: str, **fields: Any) -> Object:
    """A container that answers every request for ``/`` with ``text``, on port 8080."""
    script = f"mkdir -p /tmp/site && echo {text} > /tmp/site/index.html && exec httpd -f -v -p 8080 -h /tmp/site"
    return container(name, script, **fields)


def phase(cluster: Cluster, namespace: str, name: str) -> str:
    """A pod's phase."""
    held = cluster.find("pod", name, namespace)
    assert held is not None
    return str(held["status"]["phase"])


def read(url: str) -> str:
    """The answer's text; not yet, when nobody answers."""
    try:
        with DIRECT.open(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError as error:
        raise AssertionError(f"{url}: {error}") from error


def test_the_node_is_ready_and_claims_one_gpu(cluster: Cluster) -> None:
    (node,) = cluster.items("nodes")

    conditions = {held["type"]: held["status"] for held in node["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")


def test_a_main_container_talks_to_its_native_sidecar_and_its_termination_message_comes_back(
    cluster: Cluster, namespace: str
) -> None:
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 30}
    server = web_server("server", "served-by-the-sidecar", restartPolicy="Always", startupProbe=probe)
    client = container("client", "wget -qO- http://127.0.0.1:8080/ > /dev/termination-log; echo the client has ended")
    template = {"spec": pod_spec(client, initContainers=[server], restartPolicy="Never")}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "trial"}}

    cluster.apply({**job, "spec": {"backoffLimit": 0, "template": template}}, namespace)
    cluster.text("wait", "--for=condition=Complete", "job/trial", f"--timeout={POD_LIMIT_S:g}s", namespace=namespace)

    (run,) = cluster.items("pods", namespace, "job-name=trial")
    ended = run["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["message"] == "served-by-the-sidecar\n"
    assert cluster.logs(run["metadata"]["name"], "client", namespace) == "the client has ended\n"


def test_a_second_pod_waits_for_the_only_gpu_until_the_first_has_gone(cluster: Cluster, namespace: str) -> None:
    for name in ("first", "second"):
        cluster.apply(pod(name, pod_spec(container("works", "sleep infinity", resources=GPU))), namespace)
        if name == "first":
            eventually(lambda: phase(cluster, namespace, "first") == "Running", POD_LIMIT_S, "the first pod runs")

    def refused() -> bool:
        held = cluster.find("pod", "second", namespace)
        assert held is not None
        reasons = [condition.get("message", "") for condition in held["status"].get("conditions", [])]
        return held["status"]["phase"] == "Pending" and any("Insufficient nvidia.com/gpu" in why for why in reasons)

    eventually(refused, POD_LIMIT_S, "the scheduler finds no second GPU")
    cluster.delete("pod", "first", namespace)
    eventually(lambda: phase(cluster, namespace, "second") == "Running", POD_LIMIT_S, "the second pod gets the GPU")


def test_a_deployment_of_two_answers_at_its_services_address(cluster: Cluster, namespace: str) -> None:
    probe = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(web_server("web", "hello", readinessProbe=probe))}
    cluster.apply(
        [
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web"},
                "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
            },
        ],
        namespace,
    )

    cluster.text("rollout", "status", "deployment/web", f"--timeout={POD_LIMIT_S:g}s", namespace=namespace)
    service = cluster.find("service", "web", namespace)
    assert service is not None
    address = service["spec"]["clusterIP"]
    eventually(lambda: read(f"http://{address}/") == "hello\n", POD_LIMIT_S, f"the Service answers at {address}")
    pods = cluster.items("pods", namespace, "app=web")
    assert [read(f"http://{held['status']['podIP']}:8080/") for held in pods] == ["hello\n"] * 2


def test_pod_security_turns_away_a_pod_that_mounts_a_folder_of_the_node(cluster: Cluster, namespace: str) -> None:
    volumes = [{"name": "models", "hostPath": {"path": "/"}}]

    with pytest.raises(KubectlError, match="hostPath"):
        cluster.apply(pod("greedy", pod_spec(container("works", "true"), volumes=volumes)), namespace)


def test_the_engine_image_serves_a_model_from_a_claim_to_a_restricted_pod(
    cluster: Cluster, namespace: str, images: Images, models: str
) -> None:
    engine = container("server", "")
    engine |= {
        "image": images.engine,
        "command": ["llama-server"],
        "args": ["-m", f"/models/{WEIGHTS['Q4_0']}", "--host", "0.0.0.0", "--port", "8080", "-c", "512", "-np", "1"],
        "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}, "periodSeconds": 1},
        "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "1500m", "memory": "1Gi"}},
    }
    engine["securityContext"] |= {"readOnlyRootFilesystem": True}
    volumes = [{"name": "models", "persistentVolumeClaim": {"claimName": models, "readOnly": True}}]

    cluster.apply(pod("engine", pod_spec(engine, volumes=volumes)), namespace)
    cluster.text("wait", "--for=condition=Ready", "pod/engine", "--timeout=120s", namespace=namespace, timeout=130)
    held = cluster.find("pod", "engine", namespace)
    assert held is not None
    question = json.dumps({"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4}).encode()
    url = f"http://{held['status']['podIP']}:8080/v1/chat/completions"
    request = urllib.request.Request(url, question, {"Content-Type": "application/json"})
    with DIRECT.open(request, timeout=60) as answer:
        told = json.load(answer)
    assert told["choices"][0]["message"]["role"] == "assistant"
    assert told["usage"]["completion_tokens"] >= 1


def test_the_products_image_is_the_product(cluster: Cluster, namespace: str, images: Images) -> None:
    asked = container("slotune", "")
    asked |= {"image": images.product, "args": ["--version"]}
    del asked["command"]

    cluster.apply(pod("slotune", pod_spec(asked, restartPolicy="Never")), namespace)
    eventually(lambda: phase(cluster, namespace, "slotune") == "Succeeded", POD_LIMIT_S, "slotune --version ends well")
    assert cluster.logs("slotune", "slotune", namespace).startswith("slotune ")
