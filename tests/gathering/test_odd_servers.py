"""What answers may be anything: each oddity on the wire gets a clear word, within bounds of time and memory."""

from __future__ import annotations

import json
import time

import pytest

from bench.mock_server import Script, chunk, document, http_head
from slotune.gathering.asking import LARGEST_BODY, Answer, Asker, Cause, Silence
from slotune.gathering.server import look_at
from slotune.tuning.errors import InvalidInputError
from tests.gathering.standing_in import METRICS, PROPS, page, said, stand_in

NO_HTTP = "what comes back is no HTTP"
HUNG_UP = "it hung up without an HTTP answer"
OK = b"HTTP/1.1 200 OK\r\n"


def raw(*pieces: bytes) -> Script:
    return [(0.0, piece) for piece in pieces]


def models(owner: str, **more: object) -> Script:
    return said({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner, **more}]})


def titled(title: str) -> Script:
    return document(f"<!doctype html><html><title>{title}</title></html>", content_type="text/html")


async def refusal(answers: dict[str, Script], *, usual: bool = True) -> str:
    async with stand_in(answers, usual=usual) as server:
        with pytest.raises(InvalidInputError) as caught:
            await look_at(server.url, None, between_s=0.01, limit_s=2.0)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n"), NO_HTTP, id="chunks of no size"),
        pytest.param(raw(OK + b"Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}"), NO_HTTP, id="two lengths"),
        pytest.param(raw(OK + b"Content-Length: -2\r\n\r\n{}"), NO_HTTP, id="a length below nothing"),
        pytest.param(raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), NO_HTTP, id="HTTP/2 alone"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.6\r\n" * 2), HUNG_UP, id="another protocol"),
        pytest.param(raw(OK, *[b"X-A: " + b"a" * 60_000 + b"\r\n"] * 60), NO_HTTP, id="headers without end"),
        pytest.param(raw(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 50), HUNG_UP, id="nothing but 100"),
        pytest.param(raw(OK + b"Content-Length: 99\r\n\r\n["), HUNG_UP, id="broken off"),
    ],
)
async def test_what_is_no_proper_http_is_told_as_such(answer: Script, want: str) -> None:
    assert want in await refusal({"/health": answer})


async def test_headers_that_drip_are_given_up_in_time() -> None:
    drip: Script = [(0.05 * index, b"H") for index in range(400)]
    async with stand_in({"/props": drip}) as server, Asker(server.url) as asker:
        began = time.monotonic()
        silence = await asker.get("/props", 0.3)
    assert time.monotonic() - began < 1.0
    assert isinstance(silence, Silence)
    assert silence.cause is Cause.SLOW


async def test_a_body_is_read_up_to_its_bound_and_no_further() -> None:
    most: Script = [(0.0, http_head(content_type="text/plain")), (0.0, chunk(b"x" * LARGEST_BODY)), (0.0, b"0\r\n\r\n")]
    async with stand_in({"/props": most}) as server, Asker(server.url) as asker:
        whole = await asker.get("/props", 10)
    assert isinstance(whole, Answer)
    assert len(whole.body) == LARGEST_BODY


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        ({"/health": document(""), "/v1/models": models("m", created=0)}, "text-generation-inference"),
        ({"/v1/models": models("tensorrt_llm")}, "TensorRT-LLM's server"),
        ({"/v1/models": models("docker")}, "Docker Model Runner"),
        ({"/": document("Docker Model Runner is running")}, "Docker Model Runner"),
        ({"/v1/models": models("llama-swap")}, "llama-swap, a proxy (the address of a server behind it ends with /up"),
        ({"/v1/models": models(""), "/": titled("LocalAI API - v3")}, "LocalAI"),
        ({"/health": said({"status": True}), "/": titled("Open WebUI")}, "Open WebUI"),
        ({"/": titled("LiteLLM API - Swagger UI")}, "LiteLLM, a proxy"),
        ({"/v1/models": models("m", created=1_700_000_000)}, "another server with OpenAI's interface"),
    ],
)
async def test_other_servers_of_models_are_named(answers: dict[str, Script], want: str) -> None:
    assert f"no llama-server but {want}" in await refusal(answers, usual=False)


@pytest.mark.parametrize(
    ("metrics", "want"),
    [
        pytest.param(page({f'{name}{{pod="a"}}': 1 for name in METRICS}), "its metrics have labels", id="labels"),
        pytest.param(titled("Not found"), "a page without any of llama-server's metrics", id="a web page"),
        pytest.param(said({"a": 1}), "a page without any of llama-server's metrics", id="JSON"),
        pytest.param(document(""), "a page without any of llama-server's metrics", id="empty"),
        pytest.param(page({**METRICS, "n_decode_total": "9" * 500}), "n_decode_total 9999999999", id="500 digits"),
    ],
)
async def test_a_page_of_metrics_that_is_none_says_what_it_is(metrics: Script, want: str) -> None:
    async with stand_in({"/metrics": metrics}) as server:
        look = await look_at(server.url, None, between_s=0.01, limit_s=2.0)
    assert want in look.refused["/metrics"]
    assert look.props is not None


async def test_metrics_with_times_and_other_line_ends_are_read() -> None:
    samples = (f"# TYPE {name} gauge\r\nllamacpp:{name} {value} 1700000000000\r\n" for name, value in METRICS.items())
    text = document("".join(samples) + "# EOF\r\n", content_type="application/openmetrics-text")
    async with stand_in({"/metrics": text}) as server:
        look = await look_at(server.url, None, between_s=0.01, limit_s=2.0)
    assert look.metrics is not None
    assert look.metrics.get("prompt_tokens_total") == 900
    assert not look.refused


async def test_the_type_that_an_answer_is_said_to_have_does_not_matter() -> None:
    async with stand_in({"/props": document(json.dumps(PROPS), content_type="text/html")}) as server:
        look = await look_at(server.url, None, between_s=0.01, limit_s=2.0)
    assert look.props is not None
