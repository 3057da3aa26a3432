"""What is read from raw objects: Kubernetes' rounding, owners of fields, and names of templates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.labels import ROLLOUT_MANAGER
from slotune.rollout.facts import Serving, Strategy, template_digest
from slotune.rollout.field_owners import LAST_APPLIED
from tests.rollout.objects import HASH, deployment, template


def read(raw: dict[str, Any], *autoscalers: dict[str, Any]) -> Serving:
    return Serving.from_deployment(raw, "llama", autoscalers)


@pytest.mark.parametrize(
    ("stated", "replicas", "want"),
    [
        pytest.param({}, 1, Strategy("RollingUpdate", 1, 0), id="the default surges with one replica"),
        pytest.param({}, 4, Strategy("RollingUpdate", 1, 1), id="the default with four"),
        pytest.param({}, 5, Strategy("RollingUpdate", 2, 1), id="a surge is rounded up, unavailable is rounded down"),
        pytest.param({"type": "Recreate"}, 3, Strategy("Recreate"), id="Recreate"),
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
            3,
            Strategy("RollingUpdate", 0, 1),
            id="both zero becomes one unavailable",
        ),
        pytest.param(
            {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 5}},
            2,
            Strategy("RollingUpdate", 0, 2),
            id="no more are unavailable than there are",
        ),
    ],
)
def test_a_strategy_is_resolved_as_kubernetes_does(stated: dict[str, Any], replicas: int, want: Strategy) -> None:
    assert Strategy.from_stated(stated, replicas) == want


@given(
    st.builds(Strategy, st.just("RollingUpdate"), st.integers(1, 9), st.integers(0, 3)) | st.just(Strategy("Recreate"))
)
def test_a_strategy_survives_a_deployment(strategy: Strategy) -> None:
    assert Strategy.from_stated(strategy.for_deployment(), 9) == strategy


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, True, id="all is well"),
        pytest.param({"observedGeneration": 2}, False, id="the controller has not seen the spec"),
        pytest.param({"updatedReplicas": 1}, False, id="old pods are left to replace"),
        pytest.param({"replicas": 3}, False, id="an old pod has not ended"),
        pytest.param({"availableReplicas": 1}, False, id="a new pod does not answer yet"),
    ],
)
def test_it_is_settled_when_kubectl_rollout_status_says_so(status: dict[str, Any], want: bool) -> None:
    assert read(deployment(replicas=2, status=status)).is_settled == want


def test_giving_up_counts_for_the_present_spec_only() -> None:
    late = {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}], "availableReplicas": 0}
    assert read(deployment(status=late)).has_failed
    assert not read(deployment(status={**late, "observedGeneration": 2})).has_failed


def test_a_fresh_deployment_without_status_can_be_read() -> None:
    raw = deployment()
    del raw["status"], raw["metadata"]["managedFields"]
    found = read(raw)
    assert (found.available, found.observed_generation, found.is_settled) == (0, 0, False)
    assert (found.args_owners, found.last_writer, found.candidate) == ((), None, None)


def entry(manager: str, fields: dict[str, Any], time: str = "2026-03-02T12:00:00Z", **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Apply", "time": time, "fieldsV1": fields, **more}


def of_args(container: str = "llama") -> dict[str, Any]:
    key = f'k:{{"name":"{container}"}}'
    return {"f:spec": {"f:template": {"f:spec": {"f:containers": {key: {".": {}, "f:args": {}}}}}}}


def test_owners_of_fields_are_read_from_managed_fields() -> None:
    found = read(
        deployment(
            managed=[
                entry("kubectl", of_args(), "2026-03-01T00:00:00Z"),
                entry("flux", of_args("proxy"), "2026-03-02T00:00:00Z"),
                entry(ROLLOUT_MANAGER, of_args(), "2026-03-09T00:00:00Z"),
                entry("hpa", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
                entry("controller", {"f:spec": {"f:replicas": {}}, "f:status": {}}, subresource="status"),
            ]
        )
    )
    assert found.args_owners == ("kubectl",)
    assert found.replicas_owners == ("hpa",)
    assert found.last_writer == "flux"


@pytest.mark.parametrize(
    ("managed", "last_applied", "want"),
    [
        pytest.param([], None, True, id="nobody owns them"),
        pytest.param([entry("flux", of_args())], None, True, id="server-side apply"),
        pytest.param([entry("helm", of_args(), operation="Update")], None, False, id="an update"),
        pytest.param([entry("helm", of_args("proxy"), operation="Update")], None, True, id="an update of another one"),
        pytest.param([entry("kubectl", of_args())], json.dumps(deployment()), False, id="a client applied them once"),
        pytest.param([entry("kubectl", of_args())], "{}", False, id="what a client applied cannot be read"),
        pytest.param(
            [entry("flux", of_args())],
            json.dumps(deployment(pods={"spec": {"containers": [{"name": "llama"}]}})),
            True,
            id="a client applied others",
        ),
    ],
)
def test_args_can_move_only_where_letting_go_of_them_deletes_none(
    managed: list[dict[str, Any]], last_applied: str | None, want: bool
) -> None:
    raw = deployment(managed=managed)
    if last_applied is not None:
        raw["metadata"]["annotations"] = {LAST_APPLIED: last_applied}
    assert read(raw).args_can_move == want


def test_an_autoscaler_of_another_deployment_owns_nothing() -> None:
    def scaler(name: str, target: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}}}

    assert read(deployment(), scaler("a", "other")).autoscaler is None
    assert read(deployment(), scaler("a", "other"), scaler("b", "chat")).autoscaler == "b"


def test_a_restart_and_empty_fields_are_the_same_template() -> None:
    restarted = template()
    restarted["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "2026-03-02T12:00:00Z"}
    sparse = {"spec": dict(reversed(template()["spec"].items())), "metadata": {"labels": {"app": "chat"}}}
    assert template_digest(restarted) == template_digest(sparse) == template_digest(template())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(template("-np", "2"), id="other flags"),
        pytest.param(template(candidate=HASH), id="a candidate's name"),
        pytest.param(template(nodeSelector={"gpu": "l4"}), id="another node"),
        pytest.param(template(volumes=[{"name": "m", "emptyDir": {}}]), id="an empty object is no absent one"),
    ],
)
def test_everything_else_is_another_template(other: dict[str, Any]) -> None:
    assert template_digest(other) != template_digest(template())
