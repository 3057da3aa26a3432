"""A manifest that a tiny random model can keep within seconds, with what a test wants to change."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from tests.tiny_models import write_tiny_model

GPU_CLASS = {
    "apiVersion": "slotune.dev/v1alpha1",
    "kind": "GPUClass",
    "metadata": {"name": "cpu"},
    "spec": {"pricePerHour": "0.10"},
}
DEPLOYMENT = {
    "apiVersion": "slotune.dev/v1alpha1",
    "kind": "LlamaDeployment",
    "metadata": {"name": "tiny"},
    "spec": {
        "slo": {"ttftP95": "3s", "quality": "Off"},
        "workload": {
            "inline": {
                "load": {"requestRate": "20"},
                "prompts": {
                    "synthetic": {"inputTokens": {"mean": 32}, "sharedPrefix": {"tokens": 16}},
                },
                "output": {"tokens": 4},
            }
        },
        "models": [{"name": "F16", "path": "/models/f16.gguf"}],
        "gpuClasses": [{"name": "cpu", "maxReplicas": 2}],
        "replicas": 1,
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "server",
                        "args": ["-m", "/models/f16.gguf", "-np", "1", "-c", "256", "-t", "1", "--cache-ram", "0"],
                    }
                ]
            }
        },
        "search": {
            "space": {
                "parallelSlots": [1, 2],
                "kvUnified": [False],
                "batchSize": [256],
                "uBatchSize": [256],
                "cacheRAMMiB": [0],
                "cacheTypes": ["f16"],
            },
            "explain": "Off",
            "budget": {"gpuMinutes": 5, "trials": 12},
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
            "startupTimeout": "30s",
        },
    },
}


def manifest(tmp_path: Path, *, model: bool = True, **changes: Any) -> Path:
    """Write the manifest; ``changes`` are dotted paths below ``spec`` with ``__`` for the dots, None removes."""
    deployment = copy.deepcopy(DEPLOYMENT)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place: Any = deployment["spec"]
        for part in parents:
            place = place[int(part) if part.isdigit() else part]
        if value is None:
            del place[last]
        else:
            place[int(last) if last.isdigit() else last] = value
    if model:
        write_tiny_model(tmp_path / "f16.gguf", quantization="F16")
    file = tmp_path / "slotune.yaml"
    file.write_text(yaml.safe_dump_all([GPU_CLASS, deployment]))
    return file
