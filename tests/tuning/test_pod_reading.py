"""What a process gets is what kubelet would give it, as far as the manifest says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.tuning.pod_reading import Origin, PodReading, Variable, escaped, expanded, read_pod, references_in


def kubelet(text: str, environment: dict[str, str]) -> str:
    """Kubernetes' own expansion, character by character."""
    result, place = "", 0
    while place < len(text):
        following = text[place + 1 : place + 2]
        if text[place] != "$" or not following:
            result, place = result + text[place], place + 1
        elif following == "$":
            result, place = result + "$", place + 2
        elif following == "(" and ")" in text[place:]:
            end = text.index(")", place)
            name = text[place + 2 : end]
            result, place = result + environment.get(name, f"$({name})"), end + 1
        else:
            result, place = result + text[place : place + 2], place + 2
    return result


TEXT = st.text(alphabet="$()AB x", max_size=12)


@given(TEXT, TEXT)
def test_an_expanded_text_that_is_written_back_means_what_it_meant(text: str, value: str) -> None:
    known = {"A": Variable("A", escaped(value), Origin("env", variable="A"))}

    written_back = expanded(text, known)

    assert kubelet(written_back, {"B": "b", "A": "never"}) == kubelet(text, {"A": value, "B": "b"})


@given(TEXT)
def test_an_escaped_value_means_itself(value: str) -> None:
    assert kubelet(escaped(value), {}) == value
    assert references_in(escaped(value)) == ()


def read(container: dict[str, Any], config_maps: dict[str, dict[str, str]] | None = None) -> PodReading:
    server = Container.model_validate({"name": "llm", **container})
    template = PodTemplate.model_validate({"spec": {"containers": [{"name": "llm", **container}]}})
    return read_pod(template, server, config_maps or {})


def test_a_variable_sees_those_before_it_and_the_last_of_a_name_wins() -> None:
    environment = read(
        {
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)-$(C)"},
                {"name": "A", "value": "2"},
                {"name": "C", "value": "$(A)"},
                {"name": "EMPTY"},
            ]
        }
    ).environment

    assert environment == {"A": "2", "B": "1-$(C)", "C": "2", "EMPTY": ""}


def test_whole_config_maps_come_first_and_in_order() -> None:
    reading = read(
        {
            "envFrom": [
                {"configMapRef": {"name": "one"}},
                {"configMapRef": {"name": "two"}, "prefix": "P_"},
                {"configMapRef": {"name": "three"}},
                {"configMapRef": {"name": "four", "optional": True}},
                {"configMapRef": {"name": "five"}},
            ],
            "env": [{"name": "X", "value": "$(A) $(P_A)"}, {"name": "B", "value": "env"}],
        },
        {"one": {"A": "1", "B": "1"}, "two": {"A": "2"}, "three": {"A": "3 $$(B)"}},
    )

    assert reading.missing == ("five",)
    assert reading.environment["X"] == "3 $$$$(B) 2"
    assert reading.environment["B"] == "env"
    assert reading.variables["P_A"].origin == Origin("ConfigMap", variable="P_A", source="two", key="A")


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ({"resource": "limits.cpu"}, "4"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "3500"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "2"),
        ({"resource": "requests.cpu"}, None),
        ({"resource": "limits.cpu", "containerName": "other"}, None),
        ({"resource": "limits.cpu", "containerName": "llm"}, "4"),
        ({"resource": "limits.ephemeral-storage"}, None),
    ],
)
def test_resources_are_known_where_the_manifest_states_them(source: dict[str, Any], want: str | None) -> None:
    reading = read(
        {
            "env": [{"name": "R", "valueFrom": {"resourceFieldRef": source}}],
            "resources": {"limits": {"cpu": "3500m", "memory": "1536Mi"}},
        }
    )

    assert reading.variables["R"].value == want


def test_values_of_secrets_are_not_known_and_why_is_said() -> None:
    reading = read(
        {
            "args": ["--x", "$(KEY) $(POD)"],
            "env": [
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
    )

    assert reading.arguments == ["--x", "$(KEY) $(POD)"]
    assert reading.why_unknown("$(KEY)") == "it comes from Secret s, whose values are never read"
    assert reading.why_unknown("$(POD)") == "only a running pod knows its metadata.name"
    assert reading.why_unknown("$(NONE)") == "there is no variable NONE"


def test_a_value_is_not_part_of_what_is_printed() -> None:
    assert "hunter2" not in repr(read({"args": ["hunter2"], "env": [{"name": "K", "value": "hunter2"}]}))
