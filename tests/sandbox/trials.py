"""LlamaTrials and the pods that run them, in the shapes that a real API server sends (Kubernetes 1.34)."""

from __future__ import annotations

import copy
from typing import Any

from slotune.api.v1alpha1.trial import LlamaTrial

SPEC: dict[str, Any] = {
    "candidate": {
        "model": "only",
        "gpuClass": "cpu",
        "parallelSlots": 2,
        "contextSizePerSlot": 256,
        "kvUnified": False,
        "batchSize": 256,
        "uBatchSize": 256,
        "flashAttention": "Enabled",
        "cacheTypeK": "f16",
        "cacheTypeV": "f16",
        "cachePrompt": True,
        "cacheRAMMiB": 0,
        "cacheIdleSlots": False,
        "cacheReuse": 0,
        "gpuLayers": "all",
        "threads": 1,
        "speculation": "none",
    },
    "modelPath": "/models/m.gguf",
    "requestRate": "20",
    "confidence": "0.6",
    "promise": {"ttftP95": "10s"},
    "workload": {
        "load": {"requestRate": "20"},
        "prompts": {"synthetic": {"inputTokens": {"mean": 32}}},
        "output": {"tokens": 8},
    },
    "measurement": {
        "confidence": "0.6",
        "requestsPerRun": 12,
        "runs": 2,
        "warmupRequests": 2,
        "extensions": 0,
        "probeRequests": 3,
        "requestTimeout": "30s",
        "startupTimeout": "30s",
    },
    "contextDigest": "0123456789abcdef",
    "llamaDeployment": "chat",
}


def trial(**spec: Any) -> LlamaTrial:
    """One small trial; ``spec`` replaces fields of its spec, in YAML's spelling."""
    return LlamaTrial.from_manifest(
        {
            "apiVersion": "slotune.dev/v1alpha1",
            "kind": "LlamaTrial",
            "metadata": {"name": "chat-0123456789", "namespace": "models", "uid": "7a1d"},
            "spec": copy.deepcopy(SPEC) | spec,
        }
    )
