"""The examples are right, and say what their comments promise."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from slotune.api.manifests import Manifests, load_manifests

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Manifests:
    return load_manifests([EXAMPLES / f"{name}.yaml"])


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_is_valid_and_complete(path: Path) -> None:
    found = load_manifests([path])

    assert found.notes == ()
    assert found.gpu_classes


def test_the_support_chat_is_the_worked_example() -> None:
    found = example("support-chat")
    slo, (l4,) = found.deployment.spec.slo, found.gpu_classes.values()

    assert (slo.ttft_p95_seconds, slo.tokens_per_second) == (1, 30)
    assert (found.workload.load.request_rate, found.replicas) == ("6", 5)
    assert [model.name for model in found.deployment.spec.models] == ["BF16", "Q8_0", "Q4_K_M"]
    assert (l4.spec.price, l4.spec.memory_bytes, l4.spec.bandwidth_bytes_per_second) == (
        Decimal("0.80"),
        24 * 1024**3,
        300 * 10**9,
    )
    assert found.deployment.spec.max_replicas("l4") == 5


def test_the_home_server_is_slow_and_borrows_its_only_card() -> None:
    found = example("home-server")

    assert found.workload.load.request_rate == "0.1"
    assert found.deployment.spec.sandbox.mode == "Borrow"
    assert found.deployment.spec.max_replicas("old-card") == 1


def test_the_existing_deployment_is_read_from_its_own_manifest() -> None:
    found = example("existing-deployment")

    assert found.deployment.spec.target_ref is not None
    assert (found.container.name, found.replicas) == ("server", 3)
    assert found.config_maps["code-complete-settings"] == {"ubatch": "256"}
    assert (found.workload.arrival_process, found.workload.burstiness) == ("Gamma", 0.5)
    assert found.deployment.spec.max_replicas("l4") == 8
    assert found.deployment.spec.max_replicas("a10") == 2


def test_the_approved_rollout_asks_first_and_leaves_a_gpu_to_trials() -> None:
    found = example("approved-rollout")

    assert found.deployment.spec.template is not None
    assert found.deployment.spec.rollout.mode == "RequireApproval"
    assert found.deployment.spec.rollout.approved_candidate is None
    assert (found.replicas, found.deployment.spec.max_replicas("l4")) == (2, 2)


def test_prompts_and_traces_of_the_examples_are_json_lines() -> None:
    for name in ("existing-deployment", "cpu-node"):
        found = example(name)
        assert found.prompts is not None
        for line in (found.prompts + (found.trace or b"")).splitlines():
            assert json.loads(line)
