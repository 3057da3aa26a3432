"""Defaults decide what happens to people who said nothing, so a change of one must be seen."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.api.model import Model
from slotune.api.v1alpha1 import (
    Borrow,
    GPUClassSpec,
    Measurement,
    Output,
    Prometheus,
    Retune,
    Rollout,
    Sampling,
    Sandbox,
    Search,
    SharedPrefix,
)


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param(
            Measurement(),
            {
                "confidence": "0.95",
                "requestsPerRun": 200,
                "runs": 5,
                "warmupRequests": 50,
                "extensions": 1,
                "seed": 7,
                "requestTimeout": "5m",
                "startupTimeout": "10m",
                "driftPercent": "3",
                "sentinelEvery": 5,
                "probeRequests": 5,
                "qualityPrompts": 64,
                "qualitySteps": 16,
            },
            id="measurement: enough for production",
        ),
        pytest.param(
            Search(),
            {"space": {}, "maxReplicas": 8, "budget": {"gpuMinutes": 120, "trials": 200}, "explain": "Measured"},
            id="search: two hours at most",
        ),
        pytest.param(
            Sandbox(),
            {
                "mode": "SpareGPU",
                "capacityTimeout": "30m",
                "loadClient": {"cpu": "1", "memory": "512Mi"},
                "secretEnv": [],
                "egress": "Denied",
                "retainTrials": 100,
            },
            id="sandbox: production and the network are left alone",
        ),
        pytest.param(
            Borrow(window="02:00-05:00"),
            {"window": "02:00-05:00", "timeZone": "UTC", "maxDowntime": "1h"},
            id="borrow: an hour",
        ),
        pytest.param(
            Rollout(),
            {
                "mode": "Recommend",
                "allowDowntime": False,
                "minSavingPercent": 5,
                "progressDeadline": "20m",
                "drain": {"timeout": "5m", "onTimeout": "Abort"},
                "verify": {
                    "window": "10m",
                    "interval": "1m",
                    "probeRequests": 20,
                    "failureLimit": 2,
                    "inconclusiveLimit": 3,
                },
            },
            id="rollout: nothing is written",
        ),
        pytest.param(
            Retune(),
            {
                "triggers": ["ImageChange", "ModelChange", "WorkloadChange", "HardwareChange"],
                "breachFor": "30m",
                "timeZone": "UTC",
                "cooldown": "24h",
            },
            id="retune: when the answer is stale, once a day at most",
        ),
        pytest.param(
            Prometheus(url="http://prometheus:9090"),
            {"url": "http://prometheus:9090", "interval": "1m", "timeout": "10s"},
            id="prometheus: never without a timeout",
        ),
        pytest.param(Output(tokens=2), {"tokens": 2, "ignoreEOS": True}, id="output: the same for every candidate"),
        pytest.param(Sampling(), {"temperature": "0"}, id="sampling: greedy"),
        pytest.param(SharedPrefix(tokens=1), {"tokens": 1, "groups": 1, "zipfExponent": "1"}, id="one shared prefix"),
        pytest.param(
            GPUClassSpec(price_per_hour="1"),
            {"pricePerHour": "1", "currency": "USD", "nodeSelector": {}, "tolerations": []},
            id="gpu class: nothing is ruled out",
        ),
    ],
)
def test_defaults(model: Model, want: dict[str, Any]) -> None:
    assert model.to_manifest() == want
