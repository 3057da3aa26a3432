"""Objects that users apply, small enough that a search over them ends after a few trials."""

from __future__ import annotations

import copy
from typing import Any

from slotune.controller.cluster import Object

NAMESPACE = "shop"
IMAGE = "ghcr.io/ggml-org/llama.cpp:server-b11549"
ARGS = ["-m", "/models/f16.gguf", "-np", "1", "-c", "512", "-t", "1", "--cache-ram", "0", "--no-kv-unified"]

GPU_CLASS: Object = {
    "apiVersion": "slotune.dev/v1alpha1",
    "kind": "GPUClass",
    "metadata": {"name": "cpu"},
    "spec": {"pricePerHour": "0.10"},
}
TEMPLATE: Object = {
    "metadata": {"labels": {"app": "chat"}},
    "spec": {
        "containers": [
            {
                "name": "llama",
                "image": IMAGE,
                "args": ARGS,
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }
        ],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    },
}
SPEC: Object = {
    "slo": {"ttftP95": "3s", "quality": "Off"},
    "workload": {
        "inline": {
            "load": {"requestRate": "4"},
            "prompts": {"synthetic": {"inputTokens": {"mean": 64}}},
            "output": {"tokens": 16},
        }
    },
    "models": [{"name": "F16", "path": "/models/f16.gguf"}],
    "gpuClasses": [{"name": "cpu", "maxReplicas": 8}],
    "search": {
        "space": {
            "parallelSlots": [1, 2, 4],
            "kvUnified": [False],
            "batchSize": [512],
            "uBatchSize": [512],
            "cacheRAMMiB": [0],
            "cacheTypes": ["f16"],
        },
        "explain": "Off",
        "budget": {"gpuMinutes": 600, "trials": 60},
    },
    "measurement": {
        "confidence": "0.6",
        "runs": 2,
        "requestsPerRun": 12,
        "warmupRequests": 2,
        "extensions": 0,
        "probeRequests": 2,
        "sentinelEvery": 0,
        "requestTimeout": "20s",
        "startupTimeout": "60s",
    },
    "rollout": {"mode": "Recommend"},
}


def with_changes(spec: Object, changes: dict[str, Any]) -> Object:
    """A copy of ``spec``; ``changes`` are dotted paths with ``__`` for the dots, None removes."""
    changed = copy.deepcopy(spec)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = changed
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        if value is None:
            place.pop(int(last) if isinstance(place, list) else last, None)
        elif isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value
    return changed


def owned(name: str = "chat", **changes: Any) -> Object:
    """A LlamaDeployment with a template."""
    spec = with_changes({**SPEC, "template": TEMPLATE, "replicas": 2}, changes)
    return _llama_deployment(name, spec)


def targeting(name: str = "chat", target: str = "web", **changes: Any) -> Object:
    """A LlamaDeployment with a Deployment that is there."""
    return _llama_deployment(name, with_changes({**SPEC, "targetRef": {"name": target}}, changes))


def target(name: str = "web", replicas: int = 2, **changes: Any) -> Object:
    """A Deployment of somebody else's."""
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "chat"}}, "template": TEMPLATE}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": with_changes(spec, changes),
    }


def workload(name: str = "traffic", **changes: Any) -> Object:
    """The traffic as an object of its own."""
    return {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaWorkload",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": with_changes(SPEC["workload"]["inline"], changes),
    }


def config_map(name: str, **data: str) -> Object:
    """Text by key."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _llama_deployment(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "slotune.dev/v1alpha1",
        "kind": "LlamaDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
