"""What slotune applies where it owns production, and what it keeps to come back to."""

from __future__ import annotations

import copy

import pytest

from slotune.rollout.facts import Capacity, Serving, Strategy, template_digest
from slotune.rollout.last_good import LastGoodLostError, record_name, template_from_record, template_record
from slotune.rollout.owned import serving_deployment, serving_pod_template, serving_service
from slotune.rollout.strategy import SURGE, completes
from tests.rollout.objects import HASH, OWN_HASH, owner, template


def test_the_users_template_is_kept_and_only_added_to() -> None:
    pods = template(nodeSelector={"gpu": "l4"}, volumes=[{"name": "models", "emptyDir": None}])
    pods["metadata"]["annotations"] = {"team": "chat"}
    before = copy.deepcopy(pods)
    sent = serving_deployment(owner(), pods, HASH, 2)["spec"]["template"]
    assert pods == before
    assert sent["spec"] == pods["spec"]
    assert sent["metadata"]["labels"].items() >= {"app": "chat", "slotune.dev/deployment": "chat"}.items()
    assert sent["metadata"]["annotations"] == {"team": "chat", "slotune.dev/candidate": HASH}


def test_name_owner_and_deadline_come_from_the_llama_deployment() -> None:
    made = serving_deployment(owner(rollout={"progressDeadline": "1500ms"}), template(), OWN_HASH, 1)
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("chat", "shop")
    (reference,) = made["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("LlamaDeployment", "lld-1", True)
    assert made["spec"]["progressDeadlineSeconds"] == 2


def test_replicas_of_an_autoscaler_are_left_out() -> None:
    assert "replicas" not in serving_deployment(owner(), template(), HASH, None)["spec"]
    assert serving_deployment(owner(), template(), HASH, 3)["spec"]["replicas"] == 3


def test_the_default_strategy_ends_on_a_single_gpu() -> None:
    made = serving_deployment(owner(), template(), HASH, 1)
    strategy = Strategy.from_stated(made["spec"]["strategy"], 1)
    assert completes(strategy, 1, 1, Capacity(0))
    assert serving_deployment(owner(), template(), HASH, 1, SURGE)["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_what_is_sent_can_be_recognised() -> None:
    made = serving_deployment(owner(), template(), HASH, 1)
    found = Serving.from_deployment(made, "llama")
    assert found.candidate == HASH
    assert found.source == template_digest(serving_pod_template(owner(), template(), HASH))
    other = serving_deployment(owner(), template("-np", "9"), HASH, 1)
    assert Serving.from_deployment(other, "llama").source != found.source


def test_the_service_never_leads_to_a_trial() -> None:
    service = serving_service(owner(), template(), "llama", None)
    pods = serving_deployment(owner(), template(), HASH, 1)["spec"]["template"]["metadata"]["labels"]
    selector = service["spec"]["selector"]
    assert selector.items() <= pods.items()
    assert selector == {"slotune.dev/serves": "chat"}  # trials carry slotune.dev/deployment too


@pytest.mark.parametrize(
    ("ports", "stated", "want"),
    [
        pytest.param([], None, (8080, 8080), id="nothing is said"),
        pytest.param([], 9000, (9000, 9000), id="--port"),
        pytest.param([{"containerPort": 8000}], None, (8000, 8000), id="a containerPort"),
        pytest.param([{"containerPort": 8000, "name": "web"}], 8000, (8000, "web"), id="a name for it"),
        pytest.param([{"containerPort": 8000, "name": "web"}], 9000, (9000, 9000), id="--port says otherwise"),
        pytest.param(
            [{"containerPort": 9100, "name": "metrics"}, {"containerPort": 8000, "name": "http"}],
            None,
            (8000, "http"),
            id="http among several",
        ),
        pytest.param([{"containerPort": 53, "protocol": "UDP"}], None, (8080, 8080), id="UDP is not it"),
    ],
)
def test_the_service_finds_the_port(ports: list[object], stated: int | None, want: tuple[int, int | str]) -> None:
    pods = template()
    pods["spec"]["containers"][0]["ports"] = ports
    (port,) = serving_service(owner(), pods, "llama", stated)["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == want


def test_a_template_comes_back_from_its_record_unchanged() -> None:
    pods = template(candidate=HASH, volumes=[{"name": "m", "emptyDir": None}])
    record = template_record(owner(), pods)
    assert record["immutable"] is True
    assert record["metadata"]["name"] == record_name("chat", template_digest(pods))
    assert template_from_record(record, "chat", template_digest(pods), template("-np", "9")) == pods


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(None, id="gone"),
        pytest.param({"data": {}}, id="empty"),
        pytest.param({"data": {"template.json": "{"}}, id="cut off"),
        pytest.param({"data": {"template.json": '{"spec": {}}'}}, id="another one"),
    ],
)
def test_a_record_that_is_not_what_was_written_is_refused(record: dict[str, object] | None) -> None:
    with pytest.raises(LastGoodLostError, match="kubectl rollout undo") as caught:
        template_from_record(record, "chat", template_digest(template()), template())
    assert caught.value.record.startswith("chat-template-")
