"""Bad input on a real cluster: a condition with the field and the cure for each, and no storm afterwards.

They stand side by side in one namespace, and each is told of by itself. Nothing is ever measured for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from e2e.cluster import Object
from e2e.installed import Operator
from e2e.manifests import gpu_class, quick_deployment, server_template, target_deployment
from e2e.models import WEIGHTS
from e2e.story import Ground, Story
from e2e.waiting import eventually

LIMIT_S = 120
QUIET_S = 20.0
"""How long it is watched that nothing storms."""
MOST_LOOKS = 5
"""At one mistake in that time, on average: a pod that crashes is news of the Deployment, and looked at."""
NOWHERE = "e2e-nowhere"
"""A GPU class whose selector no node has."""
NO_NODE = {"e2e.slotune.dev/no": "node"}
NO_IMAGE = "localhost/llama-server:none"


@dataclass(frozen=True, slots=True)
class Row:
    """One mistake, and what must be said about it."""

    make: Callable[[Ground], Object]
    reason: str
    words: tuple[str, ...]
    """In the message of Stalled: the field, the value, the cure."""


def prompts(key: str, name: str) -> Object:
    """A workload whose prompts are in a ConfigMap."""
    load = {"load": {"requestRate": "4"}, "output": {"tokens": 2}}
    return {"inline": {**load, "prompts": {"configMapKeyRef": {"name": name, "key": key}}}}


def served(
    name: str, *gpus: str, container: Object | None = None, nowhere: bool = False, **changes: Any
) -> Callable[[Ground], Object]:
    """One that owns its server; parts of the spec, or of the server's container, are replaced.

    ``nowhere``: its pods find no node, and so cost nothing. A survey would wait for one.
    """

    def make(ground: Ground) -> Object:
        template = server_template(ground.image, model="Q8_0")
        template["spec"]["containers"][0] |= container or {}
        template["spec"]["containers"][0]["resources"]["limits"].pop("nvidia.com/gpu")
        template["spec"] |= {"nodeSelector": NO_NODE} if nowhere else {}
        return quick_deployment(name, *(gpus or (ground.dear,)), template=template, **changes)

    return make


def capacity(ground: Ground) -> Object:
    """A class that no node has, and little patience."""
    sandbox = {"capacityTimeout": "5s", "loadClient": {"cpu": "100m", "memory": "256Mi"}}
    return quick_deployment("no-node", NOWHERE, targetRef={"name": "idle"}, sandbox=sandbox)


ROWS = {
    "no-class": Row(
        served("no-class", "no-such-class", nowhere=True),
        "ReferenceNotFound",
        ("spec.gpuClasses[0].name", "no-such-class"),
    ),
    "no-map": Row(
        served("no-map", workload=prompts("p.jsonl", "not-there"), nowhere=True),
        "ReferenceNotFound",
        ("prompts.configMapKeyRef", "not-there"),
    ),
    "no-key": Row(
        served("no-key", workload=prompts("other.jsonl", "traffic"), nowhere=True),
        "ReferenceNotFound",
        ("prompts.configMapKeyRef", "other.jsonl"),
    ),
    "bad-line": Row(
        served("bad-line", workload=prompts("p.jsonl", "traffic")),
        "InvalidWorkload",
        ("ConfigMap/traffic p.jsonl:2", "no JSON"),
    ),
    "no-traffic": Row(
        served("no-traffic", workload={"ref": {"name": "rush-hour"}}, nowhere=True),
        "ReferenceNotFound",
        ("spec.workload.ref", "rush-hour"),
    ),
    "no-target": Row(
        lambda ground: quick_deployment("no-target", ground.dear, targetRef={"name": "not-there"}),
        "ReferenceNotFound",
        ("spec.targetRef", "not-there"),
    ),
    "shell": Row(
        served("shell", container={"command": ["sh", "-c", "exec llama-server -m /models/m.gguf"], "args": []}),
        "Refused",
        ("command", "shell"),
    ),
    "no-llama": Row(
        served("no-llama", container={"command": ["httpd"], "args": ["-f"]}),
        "Refused",
        ("llama-server",),
    ),
    "no-file": Row(
        lambda ground: ground.owned(
            "no-file",
            ground.dear,
            models=[
                {"name": "Q8_0", "path": f"/models/{WEIGHTS['Q8_0']}"},
                {"name": "Q4_0", "path": "/models/not-there.gguf"},
            ],
        ),
        "ModelUnreadable",
        ("spec.models[1].path", "/models/not-there.gguf", WEIGHTS["Q4_0"]),
    ),
    "no-image": Row(
        lambda ground: quick_deployment("no-image", ground.dear, targetRef={"name": "imageless"}),
        "ImagePullFailed",
        (f"image {NO_IMAGE} can't be had", "check its name"),
    ),
    "no-node": Row(capacity, "NoCapacity", ("spec.gpuClasses[0].name", NOWHERE, "label one")),
}


@pytest.fixture(scope="module")
def mistakes(shared_ground: Ground, spare_gpus: None) -> dict[str, Story]:
    """All of them, applied at once."""
    ground = shared_ground
    lines = '{"prompt": "Hello"}\n{"prompt": \n'
    traffic = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traffic"}, "data": {"p.jsonl": lines}}
    nowhere = gpu_class(NOWHERE, node_selector=NO_NODE)
    idle = target_deployment("idle", server_template(ground.image, model="Q8_0"))
    # What this one asks for is never there, so its pod waits and holds nothing.
    idle["spec"]["template"]["spec"]["nodeSelector"] = NO_NODE
    imageless = target_deployment("imageless", server_template(NO_IMAGE, model="Q8_0"))
    # An image that could come from somewhere is waited for.
    imageless["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Never"
    ground.stack.callback(ground.cluster.delete, "gpuclass", NOWHERE)
    first = ground.begin(traffic, nowhere, idle, imageless, *(row.make(ground) for row in ROWS.values()))
    return {name: ground.story(first.namespace, name) for name in ROWS}


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_a_condition_with_the_field_and_the_cure(mistakes: dict[str, Story], name: str) -> None:
    row, story = ROWS[name], mistakes[name]
    stalled = story.wait_for("Stalled", reason=row.reason, timeout=LIMIT_S)
    for word in row.words:
        assert word in stalled["message"]
    assert "Traceback" not in stalled["message"]
    ready = story.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", row.reason)
    assert not story.ended()
    told = story.cluster.text("describe", "lld", name, namespace=story.namespace)
    assert stalled["message"].split(":")[0] in " ".join(told.split())


def test_nothing_storms_afterwards(mistakes: dict[str, Story]) -> None:
    for name, story in mistakes.items():
        story.wait_for("Stalled", reason=ROWS[name].reason, timeout=LIMIT_S)
    cluster = next(iter(mistakes.values())).cluster
    operator = Operator(cluster)
    before = {name: story.deployment()["metadata"]["resourceVersion"] for name, story in mistakes.items()}
    # Kubelet and controllers have broken pods to look after meanwhile, so only slotune's own requests are counted.
    seen, looks, began = cluster.requests_seen("slotune.dev"), operator.looks(), time.monotonic()
    eventually(lambda: time.monotonic() - began >= QUIET_S, 2 * QUIET_S, "the watch is over")
    assert (cluster.requests_seen("slotune.dev") - seen) / QUIET_S < 1
    assert (operator.looks() - looks) / len(mistakes) <= MOST_LOOKS
    after = {name: story.deployment()["metadata"]["resourceVersion"] for name, story in mistakes.items()}
    rewritten = {name for name in before if before[name] != after[name]}
    assert rewritten <= {"no-node", "no-file", "no-image"}  # those are looked at again, ever more rarely
