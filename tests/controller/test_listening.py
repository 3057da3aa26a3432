"""Production is asked where its flags say that it listens: behind a prefix and with TLS too."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.api.manifests import Manifests
from slotune.controller import pod_http
from slotune.controller.listening import Listening, listening_of
from slotune.rollout.facts import Slots
from tests.controller.llama_pods import LlamaPod, pod_object, serving
from tests.controller.test_rollout_readings import FAR, NOW, TOKENS, cluster_of, look, slots
from tests.controller.tls import server_tls

TLS = ["--ssl-key-file", "/tls/key", "--ssl-cert-file", "/tls/certificate"]


def listening(
    args: list[str] | None = None,
    env: list[dict[str, Any]] | None = None,
    config_maps: dict[str, dict[str, str]] | None = None,
    **container: Any,
) -> Listening:
    """What is read from a container."""
    raw = {"name": "llm", "image": "llama-server:b9000", "args": args or [], "env": env or [], **container}
    template = PodTemplate.model_validate({"spec": {"containers": [raw]}})
    server = Container.model_validate(raw)
    manifests: Any = Manifests(None, None, {}, template, server, 1, Path(), config_maps=config_maps or {})  # type: ignore[arg-type]  # the rest is not looked at
    return listening_of(manifests)


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's."""
    return server_tls(tmp_path_factory.mktemp("tls"))


# ---------------------------------------------------------------------------------------------------- flags


def env(**variables: str) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(listening(), Listening(8080), id="by itself it listens on 8080 without either"),
        pytest.param(listening(["--port", "9000"]), Listening(9000), id="a port"),
        pytest.param(listening(["--api-prefix", "/chat"]), Listening(prefix="/chat"), id="a prefix"),
        pytest.param(listening(["--api-prefix", "/a", "--api-prefix", "/b"]), Listening(prefix="/b"), id="the last"),
        pytest.param(listening(["--api-prefix", ""]), Listening(), id="no prefix in so many words"),
        pytest.param(listening(TLS), Listening(is_encrypted=True), id="key and certificate"),
        pytest.param(listening(TLS[:2]), Listening(), id="a key alone makes no TLS"),
        pytest.param(listening(TLS[2:]), Listening(), id="neither does a certificate"),
        pytest.param(
            listening(env=env(LLAMA_ARG_PORT="81", LLAMA_ARG_API_PREFIX="/v", LLAMA_ARG_SSL_KEY_FILE="/k",
                              LLAMA_ARG_SSL_CERT_FILE="/c")),
            Listening(81, "/v", is_encrypted=True),
            id="all of them in variables",
        ),
        pytest.param(
            listening(["--api-prefix", "/arg"], env(LLAMA_ARG_API_PREFIX="/env")),
            Listening(prefix="/arg"),
            id="an argument wins over a variable",
        ),
        pytest.param(
            listening(["--api-prefix", "/$(TEAM)"], env(TEAM="red")), Listening(prefix="/red"), id="a reference"
        ),
        pytest.param(
            listening(
                config_maps={"server": {"LLAMA_ARG_API_PREFIX": "/m"}}, envFrom=[{"configMapRef": {"name": "server"}}]
            ),
            Listening(prefix="/m"),
            id="a ConfigMap",
        ),
        pytest.param(listening_of(None), Listening(8080), id="nothing is known"),
    ],
)  # fmt: skip
def test_how_a_server_listens_is_read_from_its_flags(found: Listening, want: Listening) -> None:
    assert found == want


@given(st.lists(st.sampled_from(["--port", "--api-prefix", "--ssl-key-file", "--ssl-cert-file", "x", "", "0", "-1"])))
def test_whatever_the_flags_are_there_is_somewhere_to_ask(args: list[str]) -> None:
    found = listening(args)
    assert found.port > 0
    assert found.url("10.0.0.1").startswith(("http://10.0.0.1:", "https://10.0.0.1:"))


# ---------------------------------------------------------------------------------------------------- asking


async def test_requests_at_work_are_counted_behind_a_prefix() -> None:
    async with serving([LlamaPod(busy=2, prefix="/team/chat")]) as port:
        assert (await slots(cluster_of(pod_object(0)), Listening(port, "/team/chat"))).busy == 2
        missed = await slots(cluster_of(pod_object(0)), Listening(port, "/team"))
    assert missed.busy is None
    assert "has no /team/slots: start it with --slots" in missed.why


async def test_requests_at_work_are_counted_over_tls_although_the_certificate_is_for_another_name(
    tls: ssl.SSLContext,
) -> None:
    async with serving([LlamaPod(busy=1), LlamaPod(busy=2)], tls) as port:
        seen = await slots(cluster_of(pod_object(0), pod_object(1)), Listening(port, is_encrypted=True))
    assert seen == Slots(NOW, 3)


async def test_a_server_that_listens_otherwise_than_its_flags_say_leaves_it_unknown(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_http, "ANSWER_S", 0.5)
    async with serving([LlamaPod()], tls) as port:
        assert "without TLS" in (await slots(cluster_of(pod_object(0)), Listening(port))).why
    async with serving([LlamaPod()]) as port:
        assert (await slots(cluster_of(pod_object(0)), Listening(port, is_encrypted=True))).busy is None
    asked_in_vain = await slots(cluster_of(pod_object(0)), Listening(FAR, is_encrypted=True))
    assert f"does llama-server listen on 0.0.0.0:{FAR} with TLS" in asked_in_vain.why


@pytest.mark.parametrize("prefix", ["", "/chat", "/v1", "/team/v1"])
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_probes_reach_a_server_behind_a_prefix_and_with_tls(
    tls: ssl.SSLContext, prefix: str, is_encrypted: bool
) -> None:
    pod = LlamaPod(prefix=prefix)
    async with serving([pod], tls if is_encrypted else None) as port:
        at = Listening(port, prefix, is_encrypted)
        seen = await look(cluster_of(pod_object(0)), at, demand=TOKENS, probeRequests=10)
    assert (seen.outcome, len(pod.prompts)) == ("Kept", 1)
