"""What kubectl takes, owned mode takes: a template with one item twice serves as it would have served."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.controller.kinds import DEPLOYMENT
from slotune.controller.merged_template import lost_names, with_merged_template
from tests.controller.manifests import NAMESPACE, TEMPLATE, owned
from tests.controller.simulation import Simulation, world

CONTAINER = "template__spec__containers__0"


def merged(part: str, items: list[Any], place: str = CONTAINER) -> Any:
    raw = owned(**{f"{place}__{part}": items})
    before = copy.deepcopy(raw)
    found = with_merged_template(raw)
    assert raw == before
    spec = found["spec"]["template"]["spec"]
    return (spec["containers"][0] if place == CONTAINER else spec)[part]


def variable(name: str, value: str) -> dict[str, str]:
    return {"name": name, "value": value}


def started_with(env: list[dict[str, str]]) -> dict[str, str]:
    """The environment that kubelet makes: in order, each value from what was before it, the last of a name counts."""
    found: dict[str, str] = {}
    for one in env:
        found[one["name"]] = re.sub(r"\$\((\w)\)", lambda m: found.get(m[1], m[0]), one["value"])
    return found


NAMED = st.sampled_from("ABC")
VALUES = st.sampled_from(["1", "2", "$(A)", "$(B)x", "$(A)$(C)"])


@given(st.lists(st.builds(variable, NAMED, VALUES), max_size=8))
def test_variables_mean_what_they_meant_and_each_is_there_once_where_that_can_be(env):
    found = merged("env", env)
    assert started_with(found) == started_with(env)
    names = [one["name"] for one in found]
    plain = not any("$(" in one["value"] for one in env)
    assert not plain or len(names) == len(set(names))
    assert merged("env", found) == found


def test_a_variable_that_something_else_is_made_of_stays():
    env = [variable("PATH", "/bin"), variable("OTHER", "x"), variable("PATH", "/opt:$(PATH)")]
    assert merged("env", env) == env
    assert merged("env", [variable("A", "1"), variable("B", "$(A)"), variable("A", "2")])[0] == variable("A", "1")


@pytest.mark.parametrize(
    ("ports", "want"),
    [
        (
            [{"containerPort": 8080, "name": "http"}, {"containerPort": 8080, "name": "metrics"}],
            [{"containerPort": 8080, "name": "http"}],
        ),
        (
            [{"containerPort": 8080}, {"containerPort": 8080, "protocol": "TCP", "name": "http"}],
            [{"containerPort": 8080, "protocol": "TCP", "name": "http"}],
        ),
        (
            [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
            [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}],
        ),
        (
            [{"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "hostPort": 81}],
            [{"containerPort": 80, "hostPort": 80}, {"containerPort": 80, "hostPort": 81}],
        ),
    ],
    ids=["two names", "one name", "two protocols", "two ports of the node, which no one port is"],
)
def test_ports_of_one_number_become_one(ports, want):
    assert merged("ports", ports) == want


def test_the_name_that_a_port_loses_is_said():
    raw = owned(**{f"{CONTAINER}__ports": [{"containerPort": 8080, "name": n} for n in ("http", "metrics")]})
    (said,) = lost_names(raw, with_merged_template(raw))
    assert "8080" in said
    assert "metrics" in said
    assert lost_names(owned(), with_merged_template(owned())) == ()


def test_pull_secrets_and_host_aliases_become_one_of_each():
    pod = "template__spec"
    assert merged("imagePullSecrets", [{"name": "a"}, {"name": "b"}, {"name": "a"}], pod) == [
        {"name": "a"},
        {"name": "b"},
    ]
    aliases = [{"ip": "10.0.0.1", "hostnames": ["a"]}, {"ip": "10.0.0.1", "hostnames": ["b", "a"]}]
    assert merged("hostAliases", aliases, pod) == [{"ip": "10.0.0.1", "hostnames": ["a", "b"]}]


@pytest.mark.parametrize(
    "spec", [{}, {"template": None}, {"template": []}, {"template": {"spec": "x"}}, {"targetRef": {"name": "web"}}]
)
def test_what_is_no_template_stays_what_it_is(spec):
    raw = {"metadata": {"name": "chat"}, "spec": spec}
    assert with_merged_template(raw) is raw


@pytest.mark.parametrize("items", [[1, 2], ["x"], [{"value": "1"}, {"value": "1"}], [None], [{"name": ["a"]}] * 2])
@pytest.mark.parametrize("part", ["env", "ports"])
def test_items_of_no_known_form_are_left_to_the_api_server(part, items):
    if part == "env":
        assert merged(part, items) == items
    else:
        assert len(merged(part, items)) <= len(items)


async def test_a_template_with_a_variable_and_a_port_twice_serves_and_is_tuned():
    server = {
        **TEMPLATE["spec"]["containers"][0],
        "env": [variable("LLAMA_ARG_N_PARALLEL", "1"), variable("LLAMA_ARG_N_PARALLEL", "2")],
        "ports": [{"containerPort": 8080, "name": "http"}, {"containerPort": 8080, "name": "metrics"}],
    }
    server["args"] = [*server["args"][:2], *server["args"][4:]]
    simulation = Simulation(world(seconds=lambda _: 2.0))
    simulation.apply(owned(template__spec__containers=[server]))
    await simulation.until_decided()
    assert simulation.says("SearchCompleted") == ("True", "Found")
    assert simulation.status()["baseline"]["candidate"]["parallelSlots"] == 2
    assert "metrics" in simulation.condition("TargetResolved")["message"]
    serving = simulation.cluster.find(DEPLOYMENT, NAMESPACE, "chat")
    assert serving is not None
    (made,) = serving["spec"]["template"]["spec"]["containers"]
    assert made["env"] == [variable("LLAMA_ARG_N_PARALLEL", "2")]
    assert [port["name"] for port in made["ports"]] == ["http"]
