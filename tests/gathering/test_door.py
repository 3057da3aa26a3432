"""An address where no llama-server can be looked at is refused, with one clear reason for each that there is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.mock_server import Received, Script, document
from slotune.gathering.address import base_address
from slotune.gathering.server import look_at
from slotune.tuning.errors import InvalidInputError
from tests.controller.tls import server_tls
from tests.gathering.standing_in import (
    MODELS,
    PROPS,
    SILENCE,
    answered,
    said,
    stand_in,
)

QUICK: dict[str, Any] = {"between_s": 0.01, "limit_s": 4.0}


async def refusal(url: str, key: str | None = None, **settings: float) -> str:
    with pytest.raises(InvalidInputError) as caught:
        await look_at(url, key, **{**QUICK, **settings})
    return str(caught.value)


@pytest.mark.parametrize(
    "page_of_it",
    [
        *("/", "/v1", "/health", "/v1/health", "/props", "/slots", "/metrics?x=1", "/v1/models", "/index.html#chat"),
        *("/v1/chat/completions", "/chat/completions/", "/completion"),
    ],
)
async def test_a_page_of_the_server_is_as_good_as_its_address(page_of_it: str) -> None:
    async with stand_in() as server:
        look = await look_at(server.url + page_of_it, None, **QUICK)
        assert look.url == server.url
    assert base_address("https://a.example/llm/props") == "https://a.example/llm"
    assert base_address("https://a.example/my-models") == "https://a.example/my-models"


async def test_a_plain_server_that_waits_for_the_rest_of_tls_is_told_as_plain() -> None:
    """As llama-server does: it reads on for a line's end that never comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"authorization" not in head.lower()
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"status":"ok"}')
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        began = time.monotonic()
        told = await refusal(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", "a-key", limit_s=4.0)
        assert time.monotonic() - began < 1.0
    assert "it does not speak TLS there: try http:// in place of https://" in told


async def test_plain_words_to_a_port_for_tls_are_told_as_such() -> None:
    body = b"Client sent an HTTP request to an HTTPS server.\n"
    head = f"HTTP/1.0 400 Bad Request\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with raw(head + body) as port:
        assert "try https:// in place of http://" in await refusal(f"http://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("", "--url is empty: must begin with http:// or https://"),
        ("localhost:8080", "localhost:8080: must begin with http:// or https://: give http://localhost:8080"),
        ("https:/localhost/v1", "give https://localhost"),
        (":8080", "give http://127.0.0.1:8080"),
        ("[::1]:8080", "give http://[::1]:8080"),
        ("::1", "give http://[::1]"),
        ("http://::1:8080", "an IPv6 address stands in brackets, such as http://[::1]:8080"),
        ("http://a:1,http://b:1", "its port must be a number"),
        ("ftp://127.0.0.1", "must begin with http:// or https://, such as http://127.0.0.1:8080"),
        ("http://", "names no host: give an address such as"),
        ("http://127.0.0.1:port", "is no address: its port must be a number from 1 to 65535"),
        ("http://127.0.0.1:70000", "is no address: its port must be a number from 1 to 65535"),
        ("http://127.0.0.1:0", "is no address: its port must be a number from 1 to 65535"),
        ("./chat.log", "a server's log is given with --log FILE"),
        ("/run/llama.sock", "is a Unix socket, which can't be asked"),
        ("http://[::1", "is no address"),
        ("http://user:hunter2@127.0.0.1", "has a name or password in it"),
        ("http://exa mple", "is no address"),
        ("\x1b[31mhttp//", "must begin with"),
        ("http://xn--a.invalid", "is no address"),
        ("unix:///run/llama.sock", "is a Unix socket, which can't be asked"),
    ],
)
async def test_what_is_no_address_is_refused_before_anything_is_sent(url: str, want: str) -> None:
    told = await refusal(url)
    assert want in told
    assert told.isprintable()
    assert "hunter2" not in told


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel", "a\x00b"])
async def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    told = await refusal("http://127.0.0.1:1", key)
    assert told == "--api-key-file: must hold one key of plain characters on a single line"


async def test_a_port_that_nothing_listens_on_is_told_as_such() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert (
            await refusal(url)
            == f"--url is {url}: nothing listens there: is the port right, and has the server got its model yet?"
        )


async def test_a_name_that_nobody_knows_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "the name leads to no address" in await refusal("http://nobody.invalid:8080")


async def test_a_server_that_takes_connections_and_says_nothing_is_given_up() -> None:
    began = time.monotonic()
    async with stand_in(dict.fromkeys(("/health", "/props", "/v1/models"), SILENCE)) as server:
        told = await refusal(server.url, limit_s=1.0)
    assert "it takes connections and says nothing: no answer within 0.25 s; it hangs, or requests that stream" in told
    assert "look again" in told
    assert "--threads-http N" in told
    assert time.monotonic() - began < 1.5


async def test_a_server_whose_threads_are_all_taken_is_asked_once_more() -> None:
    """Its first three answers never come, as while as many streams hold them."""
    asked: list[str] = []

    def busy_at_first(script: Script) -> Callable[[Received], Script]:
        def answer(received: Received) -> Script:
            asked.append(received.path)
            return SILENCE if asked.count(received.path) == 1 else script

        return answer

    answers: dict[str, Script | Callable[[Received], Script]] = {
        "/health": busy_at_first(said({"status": "ok"})),
        "/props": busy_at_first(said(PROPS)),
        "/v1/models": busy_at_first(said(MODELS)),
        "/slots": SILENCE,
    }
    began = time.monotonic()
    async with stand_in(answers) as server:
        look = await look_at(server.url, None, limit_s=2.0, between_s=0.01)
    assert time.monotonic() - began < 2.4, "within the limit of a whole look"
    assert look.health_s is not None
    assert look.props is not None
    assert look.metrics is not None
    assert set(look.silent_s) == {"/slots"}


@asynccontextmanager
async def raw(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port whose server answers anything with ``answer`` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_port_that_speaks_no_http_is_told_as_such() -> None:
    async with raw(b"220 mail.example.org ESMTP\r\n") as port:
        assert "it hung up without an HTTP answer" in await refusal(f"http://127.0.0.1:{port}")
    async with raw(b"") as port:
        assert "it hung up without an HTTP answer" in await refusal(f"http://127.0.0.1:{port}")


async def test_tls_where_there_is_none_is_told_as_such() -> None:
    async with raw(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert "it does not speak TLS there: try http://" in await refusal(f"https://127.0.0.1:{port}")


async def test_a_certificate_that_nobody_vouches_for_is_told_as_such(tmp_path: Path) -> None:
    async with raw(b"", tls=server_tls(tmp_path)) as port:
        told = await refusal(f"https://127.0.0.1:{port}")
    assert "its certificate is not trusted here" in told
    assert "SSL_CERT_FILE" in told


async def test_a_file_of_authorities_that_can_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    async with raw(b"", tls=server_tls(tmp_path)) as port:
        for name in ("ca.pem", "missing.pem"):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
            told = await refusal(f"https://127.0.0.1:{port}")
            assert f"SSL_CERT_FILE names {tmp_path / name}, which holds none that can be read" in told


LOADING = said(
    {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}, "503 Service Unavailable"
)
WRONG_KEY = said(
    {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}}, "401 Unauthorized"
)
NO_UPSTREAM = document("<html>no upstream</html>", status="503 Service Unavailable", content_type="text/html")


def moved(place: str) -> Script:
    return [(0.0, f"HTTP/1.1 308 Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())]


MOVED = moved("https://a.example/x?token=1")
HTML = document("<!DOCTYPE html><title>Welcome</title>", content_type="text/html")


def openai(owner: str) -> Script:
    return said({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]})


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param({"/health": LOADING}, "still loading its model", id="loading"),
        pytest.param(
            {"/health": said({"status": "loading model"}, "503 S")},
            "still loading its model",
            id="loading, an old build",
        ),
        pytest.param({"/props": LOADING}, "still loading its model", id="loading again by the next question"),
        pytest.param({"/health": NO_UPSTREAM}, "a proxy that reaches no server", id="a proxy with nothing behind it"),
        pytest.param(
            {"/health": MOVED}, "it redirects to https://a.example/x: give https://a.example/x", id="a redirect"
        ),
        pytest.param(
            {"/health": moved("https://a.example/llm/health")}, "give https://a.example/llm", id="one to another host"
        ),
        pytest.param(
            {"/health": moved("/login")}, "to /login: give the address of the server itself", id="one to a login"
        ),
        pytest.param(
            {"/props": WRONG_KEY, "/v1/models": WRONG_KEY},
            "it wants an API key (401): name a file that holds it with --api-key-file FILE",
            id="no key",
        ),
        pytest.param({"/health": answered("403 Forbidden")}, "lets nobody in from here (403): give", id="a firewall"),
        pytest.param({"/props": answered("429 Too Many Requests")}, "no more questions for now (429)", id="a limit"),
        pytest.param(
            {"/health": answered("401 Unauthorized", 'WWW-Authenticate: Basic realm="llm"\r\n')},
            "wants a login (401, Basic), which can't be given here: give the address of the server itself",
            id="a login",
        ),
        pytest.param(
            {"/health": answered("407 Proxy Authentication Required")}, "wants a login (407)", id="a login of a proxy"
        ),
        pytest.param(
            dict.fromkeys(("/health", "/props", "/slots", "/metrics"), answered("404 Not Found")),
            "only /v1 is passed on to llama-server, by a gateway: give the address",
            id="a gateway",
        ),
        pytest.param(
            {"/props": said({"role": "router", "model_path": "none"})}, "llama-server's router", id="a router"
        ),
    ],
)
async def test_a_llama_server_that_can_not_be_looked_at_yet_says_why(answers: dict[str, Script], want: str) -> None:
    async with stand_in(answers) as server:
        assert want in await refusal(server.url)


async def test_a_key_is_sent_and_a_wrong_one_is_told_without_showing_it() -> None:
    def locked(received: Received) -> Script:
        return (
            said(PROPS)
            if received.head.endswith(b"Bearer s3cret") or b"Bearer s3cret\r\n" in received.head
            else WRONG_KEY
        )

    async with stand_in({"/props": locked, "/v1/models": locked}) as server:
        told = await refusal(server.url, "0ther")
        assert told == f"--api-key-file: {server.url} does not accept the key in it (401)"
        assert (await look_at(server.url, " s3cret\n", **QUICK)).props is not None


@pytest.mark.parametrize(
    ("answers", "want"),
    [
        pytest.param({"/health": document(""), "/v1/models": openai("vllm")}, "vLLM", id="vLLM"),
        pytest.param({"/health": document(""), "/v1/models": openai("sglang")}, "SGLang", id="SGLang"),
        pytest.param({"/v1/models": openai("library")}, "Ollama", id="Ollama"),
        pytest.param(
            {"/": document("Ollama is running"), "/v1/models": said({"object": "list", "data": None})},
            "Ollama",
            id="Ollama without a model",
        ),
        pytest.param(
            {"/props": said({"error": "Unexpected endpoint"}), "/v1/models": openai("organization_owner")},
            "LM Studio",
            id="LM Studio",
        ),
        pytest.param({"/v1/models": openai("acme")}, "another server with OpenAI's interface", id="some other"),
        pytest.param({"/": HTML}, "a web server that shows pages", id="a web server"),
        pytest.param(
            dict.fromkeys(("/", "/health", "/props", "/v1/models"), HTML),
            "a web server that shows pages",
            id="one page for all",
        ),
        pytest.param(
            dict.fromkeys(("/health", "/props", "/v1/models"), said({}, "500 Internal Server Error")),
            "another server (it answers 500)",
            id="one that fails",
        ),
        pytest.param({"/props": said(["a"]), "/health": said({})}, "another server", id="some JSON"),
        pytest.param({}, "a server that has no /props", id="nothing there"),
    ],
)
async def test_another_server_is_named_where_it_can_be(answers: dict[str, Script], want: str) -> None:
    async with stand_in(answers, usual=False) as server:
        told = await refusal(server.url)
    assert told.startswith(f"--url is {server.url}: no llama-server but {want}")
    assert told.endswith(": only llama-server can be diagnosed")


async def test_a_path_that_leads_nowhere_is_doubted() -> None:
    async with stand_in() as server:
        assert "an address ends with the server's --api-prefix, or has no path" in await refusal(f"{server.url}/llm")


async def test_a_llama_server_whose_props_are_odd_is_still_one() -> None:
    async with stand_in({"/props": said({"total_slots": "many"})}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.props is None
    assert look.refused == {"/props": "its answer is not llama-server's"}
    assert look.model is not None
    assert look.model.id == "small"
