"""The operator's pod is closed in, told dead from alive by its loop, and started with options that exist."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.cli import make_parser
from tests.chart.reading import CONFIG, one


@pytest.fixture
def spec() -> dict[str, Any]:
    pod: dict[str, Any] = one(CONFIG / "deployment.yaml", "Deployment", "slotune")["spec"]
    return pod


@pytest.fixture
def container(spec: dict[str, Any]) -> dict[str, Any]:
    [only] = spec["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_never_two_operators_at_once(spec: dict[str, Any]) -> None:
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_pod_passes_the_restricted_standard(spec: dict[str, Any], container: dict[str, Any]) -> None:
    pod = spec["template"]["spec"]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["enableServiceLinks"] is False
    assert [set(volume) for volume in pod["volumes"]] == [{"name", "emptyDir"}]
    [service_account] = [one(CONFIG / "service-account.yaml", "ServiceAccount", pod["serviceAccountName"])]
    assert service_account["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is True


def test_the_loops_heartbeat_decides_what_is_alive_and_ready(container: dict[str, Any]) -> None:
    asked = {probe: container[probe]["httpGet"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe: (it["path"], it["port"]) for probe, it in asked.items()} == {
        "startupProbe": ("/livez", "health"),
        "livenessProbe": ("/livez", "health"),
        "readinessProbe": ("/readyz", "health"),
    }


def test_ports_of_the_pod_are_those_that_the_operator_is_told(container: dict[str, Any]) -> None:
    args = container["args"]
    ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
    assert args[args.index("--health-port") + 1] == ports["health"]
    assert args[args.index("--metrics-port") + 1] == ports["metrics"]


def test_the_operator_takes_the_options_that_it_is_started_with(container: dict[str, Any]) -> None:
    parsed = make_parser().parse_args([*container["args"], "--namespace", "team-a", "--namespace", "team-b"])
    assert parsed.trial_image == container["image"]
    assert callable(parsed.run)


def test_the_image_of_trials_is_where_overlays_look_for_it(container: dict[str, Any]) -> None:
    # docs/install.md has a replacement that writes args.2.
    assert container["args"][:3] == ["operator", "--trial-image", container["image"]]


def test_an_image_that_nobody_set_cannot_be_somebody_elses(container: dict[str, Any]) -> None:
    # RFC 6761: names below .invalid never resolve.
    assert container["image"].split("/")[0].endswith(".invalid")


def test_memory_is_bounded_and_processor_time_is_not(container: dict[str, Any]) -> None:
    assert set(container["resources"]["limits"]) == {"memory"}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
