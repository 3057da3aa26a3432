"""The server is found among sidecars by what it starts, then by its variables, then by its image, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.server_container import program_at, server_container

SERVER = "ghcr.io/ggml-org/llama.cpp:server"


def pod(*containers: dict[str, Any]) -> PodTemplate:
    return PodTemplate.model_validate({"spec": {"containers": list(containers)}})


def found(*containers: dict[str, Any], name: str | None = None) -> str | None:
    container = server_container(pod(*containers), name)
    return container.name if container is not None else None


STARTS = {"name": "starts", "image": "a", "args": ["llama-server"]}
VARIABLES = {"name": "variables", "image": "b", "env": [{"name": "LLAMA_ARG_MODEL", "value": "x"}]}
IMAGE = {"name": "image", "image": SERVER}
OTHER = {"name": "other", "image": "envoy"}


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        pytest.param([OTHER], "other", id="the only one"),
        pytest.param([OTHER, IMAGE], "image", id="by its image"),
        pytest.param([IMAGE, VARIABLES, OTHER], "variables", id="variables count more than an image"),
        pytest.param([IMAGE, VARIABLES, STARTS], "starts", id="what is started counts most"),
        pytest.param([OTHER, {**OTHER, "name": "again"}], None, id="none"),
        pytest.param([IMAGE, {**IMAGE, "name": "second"}, OTHER], None, id="two"),
        pytest.param([{"name": "x", "image": "llama-swap:1"}, OTHER], None, id="another program about llamas"),
        pytest.param([{"name": "x", "image": "llama-cpp-exporter:1"}, IMAGE], "image", id="an exporter of its metrics"),
    ],
)
def test_the_server_is_told(containers: list[dict[str, Any]], want: str | None) -> None:
    assert found(*containers) == want


@pytest.mark.parametrize(
    ("sidecar", "want"),
    [
        ({**IMAGE, "name": "beside", "restartPolicy": "Always"}, None),
        ({**STARTS, "name": "beside", "restartPolicy": "Always"}, None),
        ({**OTHER, "name": "beside", "restartPolicy": "Always"}, "image"),
        ({**IMAGE, "name": "beside"}, "image"),
    ],
    ids=["a server by its image", "a server by its program", "something else", "an init container that ends"],
)
def test_a_native_sidecar_that_is_a_server_is_one_more(sidecar: dict[str, Any], want: str | None) -> None:
    template = PodTemplate.model_validate({"spec": {"containers": [IMAGE], "initContainers": [sidecar]}})
    container = server_container(template, None)
    assert (container.name if container is not None else None) == want


def test_a_name_is_taken_at_its_word() -> None:
    assert found(IMAGE, OTHER, name="other") == "other"
    assert found(IMAGE, OTHER, name="nobody") is None


@pytest.mark.parametrize(
    ("command", "args", "want"),
    [
        ([], [], None),
        ([], ["-m", "x", "--alias", "llama-server"], None),
        ([], ["/app/llama-server", "-m", "x"], 0),
        (["/app/llama-server"], ["-m", "x"], 0),
        (["tini", "--", "llama-server"], [], 2),
        (["tini", "--"], ["llama-server", "-m", "x"], 2),
        ([], ["tini", "-g", "llama-server"], 2),
        (["/opt/run"], ["llama-server"], None),
        (["/bin/llama-server-cuda"], [], 0),
        (["ik_llama-server"], [], 0),
        ([], ["llama-server.gguf"], None),
    ],
)
def test_the_program_is_found_in_the_command_line(command: list[str], args: list[str], want: int | None) -> None:
    assert program_at(Container(name="x", command=tuple(command), args=tuple(args))) == want
