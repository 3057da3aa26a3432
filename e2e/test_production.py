"""What production delivers stands in the status beside what was measured, read from a real Prometheus of real pods."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.cluster import Cluster, Object
from e2e.conftest import Images
from e2e.manifests import gpu_class, llama_deployment, server_template
from e2e.operator_process import definitions, no_operator_inside, operating
from e2e.prometheus import Prometheus, prometheus
from e2e.waiting import eventually

NAME = "chat"
LOOK_LIMIT_S = 30.0
"""For a state to be seen: some looks, 2 s apart, of a busy machine."""
MEASURED_LIMIT_S = 180.0
"""For a survey and one trial."""
REQUESTS = 6
TOKENS = 24
"""Of each answer."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module", autouse=True)
def alone(cluster: Cluster) -> Iterator[None]:
    """The kinds are there, and no other operator is: one in a pod would not find a Prometheus on the loopback."""
    with no_operator_inside(cluster), definitions(cluster):
        yield


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes nothing yet."""
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with prometheus(folder) as running:
        yield running


@pytest.fixture
def chat(cluster: Cluster, namespace: str, images: Images, watcher: Prometheus, tmp_path: Path) -> Iterator[None]:
    """A LlamaDeployment whose search measures what serves, and nothing else."""
    assert cluster.node is not None, "a Prometheus of this machine reaches pods of the tests' own node only"
    gpu = f"gpu-{namespace}"
    wanted = llama_deployment(
        NAME,
        gpu,
        template=server_template(images.engine, model="Q4_0"),
        slo={"ttftP95": "20s", "quality": "Off"},
        observe={"prometheus": {"url": watcher.url, "interval": "2s", "timeout": "5s"}},
    )
    wanted["spec"]["search"]["budget"] = {"trials": 1, "gpuMinutes": 20}
    wanted["spec"]["search"]["space"] |= {"models": ["Q4_0"], "parallelSlots": [1]}
    cluster.set_gpus(2)
    with operating(cluster, images.product, namespace, tmp_path / "operator.log"):
        cluster.apply([gpu_class(gpu), wanted | {"metadata": {"name": NAME, "namespace": namespace}}])
        yield
    cluster.delete("gpuclass", gpu)
    cluster.set_gpus(1)


@pytest.mark.usefixtures("models", "chat")
def test_production_is_shown_beside_what_was_measured_and_why_when_it_cannot_be_seen(
    cluster: Cluster, namespace: str, watcher: Prometheus
) -> None:
    seen(cluster, namespace, "NoData", MEASURED_LIMIT_S)

    pod = eventually(lambda: serving_pod(cluster, namespace), LOOK_LIMIT_S, "a pod serves")
    watcher.scrape(f"{pod['status']['podIP']}:8080", {"namespace": namespace, "pod": pod["metadata"]["name"]})
    seen(cluster, namespace, "NotANumber")

    eventually(lambda: status(cluster, namespace)["baseline"]["measured"], MEASURED_LIMIT_S, "what serves was measured")
    scrapes = "count_over_time(llamacpp:tokens_predicted_total[5m])"
    eventually(lambda: watcher.ask(scrapes) >= [2], LOOK_LIMIT_S, "the counters are known from before the traffic")
    chat_with(cluster, namespace)
    # A change of less than 5 % is not written, and the first look may come after the first answer.
    own = pytest.approx(own_speed(pod), rel=0.1)
    eventually(lambda: float(seen(cluster, namespace, "Value")["tokensPerSecond"]) == own, LOOK_LIMIT_S, f"{own} tok/s")
    shown = seen(cluster, namespace, "Value")
    assert "ttftP95" not in shown
    beside = r"(\S+) tok/s per user on average, measured (\S+) for 95 % of users"
    found = re.search(beside, shown["message"])
    assert found is not None, shown["message"]
    measured = status(cluster, namespace)["baseline"]["measured"]["tokensPerSecondP5"]
    assert float(found[2]) == pytest.approx(float(measured), rel=0.05)

    observe(cluster, namespace, tokensPerSecondQuery='{__name__=~"llamacpp:.*"}')
    shown = seen(cluster, namespace, "SeveralSeries")
    assert "tokensPerSecond" not in shown

    observe(cluster, namespace, tokensPerSecondQuery=None)
    seen(cluster, namespace, "Value")

    watcher.stop()
    shown = seen(cluster, namespace, "Unreachable")
    assert watcher.url in shown["message"]


def status(cluster: Cluster, namespace: str) -> Object:
    """Of the LlamaDeployment."""
    found = cluster.find("llamadeployment", NAME, namespace)
    assert found is not None
    said: Object = found["status"]
    return said


def seen(cluster: Cluster, namespace: str, state: str, limit_s: float = LOOK_LIMIT_S) -> Object:
    """``status.production``, once it is in this state."""

    def is_so() -> Object:
        production: Object = status(cluster, namespace)["production"]
        assert production["state"] == state, production
        return production

    return eventually(is_so, limit_s, f"production is seen as {state}")


def observe(cluster: Cluster, namespace: str, **changes: str | None) -> None:
    """Change fields of ``spec.observe.prometheus``; None removes one."""
    patch = json.dumps({"spec": {"observe": {"prometheus": changes}}})
    cluster.text("patch", "llamadeployment", NAME, "--type=merge", "--patch", patch, namespace=namespace)


def serving_pod(cluster: Cluster, namespace: str) -> Object:
    """The pod that serves, once it is ready."""
    pods = cluster.items("pods", namespace, f"slotune.dev/deployment={NAME},!slotune.dev/trial,!slotune.dev/survey")
    ready = [pod for pod in pods if all(one["ready"] for one in pod["status"].get("containerStatuses", [{"ready": 0}]))]
    return ready[0]


def chat_with(cluster: Cluster, namespace: str) -> None:
    """A little traffic, as users send it: through the Service."""
    service = cluster.find("service", NAME, namespace)
    assert service is not None
    address = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}/v1/chat/completions"
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": TOKENS}
    for _ in range(REQUESTS):
        request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with DIRECT.open(request, timeout=60) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"]


def own_speed(pod: Object) -> float:
    """Tokens per second of all answers so far, by the server's own counters."""
    with DIRECT.open(f"http://{pod['status']['podIP']}:8080/metrics", timeout=10) as answer:
        text = answer.read().decode()
    tokens, seconds = (
        float(re.findall(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE)[0])
        for name in ("tokens_predicted_total", "tokens_predicted_seconds_total")
    )
    return tokens / seconds
