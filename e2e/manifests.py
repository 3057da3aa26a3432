"""Manifests as a user would write them, for a real llama.cpp on a small model and a GPU that is only counted."""

from __future__ import annotations

from typing import Any

from e2e.cluster import Object
from e2e.models import MODELS_CLAIM, WEIGHTS

__all__ = ["gpu_class", "llama_deployment", "quick_deployment", "server_template", "target_deployment"]

API = "slotune.dev/v1alpha1"


def gpu_class(name: str, *, price: str = "0.80", node_selector: dict[str, str] | None = None) -> Object:
    """A class of the node's counted GPUs."""
    spec: Object = {"pricePerHour": price, "resourceName": "nvidia.com/gpu"}
    if node_selector:
        spec["nodeSelector"] = node_selector
    return {"apiVersion": API, "kind": "GPUClass", "metadata": {"name": name}, "spec": spec}


def server_template(image: str, *, model: str = "F16", flags: tuple[str, ...] = ()) -> Object:
    """The pod of a server as it is found in the wild: flags in args, a probe, a named port, a restricted context."""
    return {
        "metadata": {"labels": {"app": "chat"}},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 5,
            "containers": [
                {
                    "name": "llama",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["llama-server"],
                    "args": [
                        "-m", f"/models/{WEIGHTS[model]}", "--host", "0.0.0.0", "--port", "8080",
                        "--ctx-size", "512", "--parallel", "1", "--batch-size", "256", "--ubatch-size", "256",
                        "--threads", "1", "--n-gpu-layers", "0", "--cache-ram", "0", "--no-cache-prompt", "--metrics",
                        *flags,
                    ],
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
                    "resources": {
                        "requests": {"cpu": "100m", "memory": "384Mi"},
                        "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"},
                    },
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
                }
            ],
            "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": MODELS_CLAIM, "readOnly": True}}],
        },
    }  # fmt: skip


def target_deployment(name: str, template: Object, replicas: int = 1) -> Object:
    """A Deployment that somebody else applies."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "strategy": {"type": "Recreate"},
            "template": template,
        },
    }


def llama_deployment(name: str, gpu: str, **changes: Any) -> Object:
    """A promise that this machine's cores can keep, with as little measuring as a verdict allows.

    ``changes`` replace parts of the spec; None removes one.
    """
    spec: Object = {
        "slo": {"ttftP95": "3s", "quality": "Off"},
        "workload": {
            "inline": {
                "load": {"requestRate": "2"},
                "prompts": {"synthetic": {"inputTokens": {"mean": 24}, "sharedPrefix": {"tokens": 16}}},
                "output": {"tokens": 8},
            }
        },
        "models": [{"name": name_, "path": f"/models/{file}"} for name_, file in WEIGHTS.items()],
        "gpuClasses": [{"name": gpu, "maxReplicas": 3}],
        "search": {
            "space": {
                "models": ["F16"],
                "parallelSlots": [1, 4],
                "contextSizePerSlot": [512],
                "kvUnified": [False],
                "batchSize": [256],
                "uBatchSize": [256],
                "cacheTypes": ["f16"],
                "cacheRAMMiB": [0],
                "cacheReuse": [0],
                "cacheIdleSlots": [False],
            },
            "budget": {"gpuMinutes": 20, "trials": 20},
            "explain": "Off",
        },
        "measurement": {
            "confidence": "0.8",
            "runs": 2,
            "requestsPerRun": 16,
            "warmupRequests": 2,
            "extensions": 0,
            "probeRequests": 1,
            "sentinelEvery": 0,
            "requestTimeout": "30s",
            "startupTimeout": "2m",
        },
        "sandbox": {"loadClient": {"cpu": "500m", "memory": "256Mi"}},
    }
    spec |= changes
    spec = {key: value for key, value in spec.items() if value is not None}
    return {"apiVersion": API, "kind": "LlamaDeployment", "metadata": {"name": name}, "spec": spec}


def quick_deployment(name: str, *gpus: str, ttft: str = "8s", space: Object | None = None, **changes: Any) -> Object:
    """A promise whose outcome is no matter of speed, so that a busy machine has the same: a trial takes about 15 s.

    Args:
        name: Of the LlamaDeployment.
        gpus: GPU classes; the first is today's.
        ttft: What is owed. 8 s are kept by everything here, 1 ms by nothing.
        space: Over the space of the search, which holds one candidate: Q4_0 with two slots.
        changes: As of :func:`llama_deployment`.
    """
    made = llama_deployment(name, gpus[0], **changes)
    spec = made["spec"]
    spec["slo"]["ttftP95"] = ttft
    spec["gpuClasses"] = [{"name": gpu, "maxReplicas": 1} for gpu in gpus]
    if "models" not in changes:
        spec["models"] = [model for model in spec["models"] if model["name"] != "F16"]
    if "workload" not in changes:
        spec["workload"]["inline"]["load"]["requestRate"] = "4"
        spec["workload"]["inline"]["output"]["tokens"] = 2
    spec["search"]["space"] |= {"models": ["Q4_0"], "parallelSlots": [2]} | (space or {})
    if "sandbox" not in changes:
        spec["sandbox"]["loadClient"]["cpu"] = "1"  # a client that is throttled is late, and then nothing counts
    return made
