"""A look at a server: what it shows comes out, what it does not show has a reason, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.mock_server import END, Received, Script, chunk, document, http_head
from slotune.gathering.address import base_address
from slotune.gathering.server import look_at
from slotune.tuning.errors import InvalidInputError
from tests.controller.tls import server_tls
from tests.gathering.standing_in import (
    METRICS,
    MODELS,
    PARAMS,
    PROPS,
    SECRET,
    SILENCE,
    SLOTS,
    engine,
    page,
    said,
    stand_in,
)
from tests.tiny_models import write_tiny_model

QUICK: dict[str, Any] = {"between_s": 0.01, "limit_s": 4.0}


async def refusal(url: str, key: str | None = None, **settings: float) -> str:
    with pytest.raises(InvalidInputError) as caught:
        await look_at(url, key, **{**QUICK, **settings})
    return str(caught.value)


# What a server shows


async def test_a_look_holds_what_the_server_shows_and_only_asks() -> None:
    async with stand_in() as server:
        look = await look_at(f"{server.url}/v1/", None, between_s=0.05)
    assert {received.method for received in server.requests} == {"GET"}
    paths = [received.path for received in server.requests]
    assert sorted(paths) == ["/health", "/metrics", "/metrics", "/props", "/slots", "/v1/models"]
    assert look.url == server.url
    assert look.props is not None
    assert (look.props.total_slots, look.props.context_per_slot) == (2, 4096)
    assert look.model is not None
    assert look.model.parameters == 134515008
    assert look.slots is not None
    assert [slot.id for slot in look.slots] == [0, 1]
    assert look.metrics is not None
    assert look.metrics_later is not None
    assert look.between_s == pytest.approx(0.05, abs=0.04)
    assert look.deferred == (3, 3)
    assert not look.refused
    assert not look.silent_s
    for took in (look.health_s, look.slots_s, look.metrics_s):
        assert took is not None
        assert 0 < took < 1


async def test_two_pages_of_metrics_are_told_apart() -> None:
    decodes = iter((60, 66))

    def counted(_: Received) -> Script:
        return page({**METRICS, "n_decode_total": next(decodes)})

    async with stand_in({"/metrics": counted}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is not None
    assert look.metrics_later is not None
    assert (look.metrics.decodes, look.metrics_later.decodes) == (60, 66)


async def test_without_requests_sampling_is_what_props_has_as_defaults() -> None:
    async with stand_in() as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.sampling["repeat_penalty"] == 1.0
    assert look.sampling["samplers"] == ("penalties", "dry", "top_k", "temperature")
    assert not look.request_params_seen
    assert str(look.sampling_source).startswith("/props  defaults: repeat_penalty 1, ")


async def test_a_request_at_work_says_what_requests_ask_for_without_a_word_of_them() -> None:
    costly = {
        **PARAMS,
        "repeat_penalty": 1.3,
        "n_probs": 10,
        "grammar": SECRET * 2,
        "stop": [SECRET],
        "json_schema": None,
    }
    slots = [
        {**SLOTS[0], "id_task": 4, "params": PARAMS},
        {**SLOTS[1], "id_task": 7, "is_processing": True, "params": PARAMS},
        {**SLOTS[1], "id": 2, "id_task": 8, "is_processing": True, "params": costly, "prompt": SECRET},
    ]
    async with stand_in({"/slots": said(slots)}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.request_params_seen
    assert look.sampling["repeat_penalty"] == 1.3
    assert look.sampling["grammar"] == 2 * len(SECRET)
    assert look.sampling["stop"] == 1
    assert look.sampling["json_schema"] == 0
    want = (
        f"/slots  slot 2 works on a request: repeat_penalty 1.3, n_probs 10, grammar {2 * len(SECRET)}, json_schema 0"
    )
    assert str(look.sampling_source) == want
    assert SECRET not in repr(look)


async def test_a_slot_at_rest_tells_of_its_last_request_and_a_fresh_one_of_nothing() -> None:
    fresh = {**SLOTS[0], "id_task": -1, "params": {**PARAMS, "mirostat": 2}}
    used = {**SLOTS[1], "id_task": 3, "params": {**PARAMS, "dry_multiplier": 0.8}}
    async with stand_in({"/slots": said([fresh, used])}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.request_params_seen
    assert str(look.sampling_source) == "/slots  slot 1 had a request: dry_multiplier 0.8"


async def test_a_chat_template_is_described_and_not_kept() -> None:
    async with stand_in() as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.props is not None
    assert look.props.template is not None
    assert "writes the time (%d %b %Y)" in look.props.template.sentence
    assert SECRET not in repr(look)


# What it does not show


@pytest.mark.parametrize("status", ["501 Not Implemented", "404 Not Found"])
async def test_endpoints_that_are_off_name_the_flag(status: str) -> None:
    off = said({"error": {"code": 501, "type": "not_supported_error"}}, status)
    async with stand_in({"/metrics": off, "/slots": off}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.refused == {"/metrics": "off: start it with --metrics", "/slots": "off: start it with --slots"}
    assert (look.slots, look.slots_s, look.metrics, look.metrics_later, look.deferred) == (None, None, None, None, ())
    assert not look.silent_s


async def test_a_server_that_hangs_behind_its_health_is_looked_at_all_the_same() -> None:
    began = time.monotonic()
    async with stand_in({"/slots": SILENCE, "/metrics": SILENCE}) as server:
        look = await look_at(server.url, None, limit_s=1.0)
    assert time.monotonic() - began < 1.5
    assert look.health_s is not None
    assert look.props is not None
    assert (look.slots, look.slots_s, look.metrics) == (None, None, None)
    assert look.refused == {"/slots": "no answer within 0.5 s", "/metrics": "no answer within 0.5 s"}
    assert look.silent_s == pytest.approx({"/slots": 0.5, "/metrics": 0.5}, abs=0.2)
    assert [received.path for received in server.requests].count("/metrics") == 1


async def test_a_server_of_which_only_health_answers_is_looked_at_too() -> None:
    answers = dict.fromkeys(("/props", "/v1/models", "/slots", "/metrics"), SILENCE)
    async with stand_in(answers) as server:
        look = await look_at(server.url, None, limit_s=1.0)
    assert set(look.silent_s) == {"/props", "/v1/models", "/slots", "/metrics"}
    assert look.health_s is not None


async def test_a_slow_answer_is_waited_for_and_its_time_noted() -> None:
    slow: Script = [(0.3, said(SLOTS)[0][1])]
    async with stand_in({"/slots": slow}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.slots is not None
    assert look.slots_s is not None
    assert 0.3 <= look.slots_s < 0.6


async def test_a_server_asleep_is_not_woken() -> None:
    async with stand_in({"/props": said({**PROPS, "is_sleeping": True})}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert "/slots" not in [received.path for received in server.requests]
    assert "--sleep-idle-seconds" in look.refused["/slots"]
    assert look.metrics is not None


async def test_a_look_that_is_cancelled_ends_at_once() -> None:
    async with stand_in({"/slots": SILENCE}) as server:
        task = asyncio.create_task(look_at(server.url, None))
        async with asyncio.timeout(5):
            while not any(received.path == "/slots" for received in server.requests):  # noqa: ASYNC110 (the stand-in has no event)
                await asyncio.sleep(0.01)
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 0.5


# Odd answers


async def test_an_old_page_of_metrics_is_read_and_said_to_be_old() -> None:
    old = {"prompt_tokens_total": 10, "kv_cache_usage_ratio": 0.5, "requests_processing": 1, "requests_deferred": 0}
    async with stand_in({"/metrics": page(old, prefix="")}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is not None
    assert look.metrics.get("kv_cache_usage_ratio") == 0.5
    assert look.deferred == (0, 0)
    assert look.refused["/metrics"].startswith("an old or odd page: no number for n_decode_total, prompt_seconds_total")


async def test_values_that_are_no_numbers_are_left_out_and_said_so() -> None:
    odd = {**METRICS, "n_busy_slots_per_decode": "-nan", "n_decode_total": "nan", "prompt_seconds_total": "+Inf"}
    async with stand_in({"/metrics": page(odd, prefix="llamacpp_")}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is not None
    assert look.metrics.get("n_busy_slots_per_decode") is None
    want = "left out what can't be true: prompt_seconds_total +Inf, n_decode_total nan"
    assert look.refused == {"/metrics": want}


async def test_a_page_of_nothing_but_nan_is_llama_server_s_all_the_same() -> None:
    async with stand_in({"/metrics": page(dict.fromkeys(METRICS, "-nan"))}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is None
    assert look.deferred == ()
    assert look.refused["/metrics"].startswith("left out what can't be true: prompt_tokens_total -nan, ")


async def test_numbers_that_can_not_be_true_are_left_out_and_said_so() -> None:
    odd = {**METRICS, "requests_processing": 9, "requests_deferred": -7}
    async with stand_in({"/metrics": page(odd)}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is not None
    assert look.metrics_later is not None
    assert (look.metrics.processing, look.metrics.deferred, look.deferred) == (None, None, ())
    assert (look.metrics_later.processing, look.metrics_later.deferred) == (None, None)
    words = look.refused["/metrics"]
    assert words.startswith("left out what can't be true: ")
    assert "requests_deferred -7" in words
    assert "requests_processing 9 of 2 slots" in words


async def test_a_number_that_can_not_be_true_in_the_second_page_alone_is_said_too() -> None:
    waiting = iter((3, -7))

    def counted(_: Received) -> Script:
        return page({**METRICS, "requests_deferred": next(waiting)})

    async with stand_in({"/metrics": counted}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.deferred == (3,)
    assert look.refused == {"/metrics": "the second page: left out what can't be true: requests_deferred -7"}


async def test_a_page_of_other_metrics_is_none() -> None:
    async with stand_in({"/metrics": page({"go_goroutines": 7}, prefix="")}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.metrics is None
    assert look.refused == {"/metrics": "a page without any of llama-server's metrics"}


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(document('[{"id": 0, "n_c'), "its answer is no JSON", id="cut short"),
        pytest.param(document("[" * 100_000), "its answer is no JSON", id="nested without end"),
        pytest.param([(0.0, http_head(length=2) + b"\xff\xfe")], "its answer is no JSON", id="no text"),
        pytest.param(said({"slots": SECRET}), "its answer is not llama-server's", id="another shape"),
        pytest.param(
            said([{"id": 0, "n_ctx": SECRET, "is_processing": True}]),
            "its answer is not llama-server's",
            id="text for a number",
        ),
        pytest.param(said({}, "500 Internal Server Error"), "answers 500", id="an error"),
        pytest.param(
            said({}, "401 Unauthorized"), "wants an API key (401): --api-key-file FILE", id="a key for this one"
        ),
        pytest.param(
            [(0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[")],
            "it hung up without an HTTP answer: is it llama-server's port? If it speaks TLS, give https://",
            id="broken off",
        ),
    ],
)
async def test_what_can_not_be_read_is_left_out_with_a_reason(answer: Script, want: str) -> None:
    async with stand_in({"/slots": answer}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.slots is None
    assert look.refused == {"/slots": want}
    assert look.props is not None


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    piece = chunk(b"x" * (1 << 20))
    endless: Script = [
        (0.0, http_head(content_type="application/json")),
        *((0.0, piece) for _ in range(40)),
        (0.0, END),
    ]
    async with stand_in({"/slots": endless}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.refused == {"/slots": "its answer is longer than 8 MiB"}


async def test_what_a_proxy_packed_is_unpacked_within_bounds() -> None:
    def packed(text: str) -> Script:
        return answered("200 OK", "Content-Encoding: gzip\r\n", gzip.compress(text.encode()))

    answers = {"/props": packed(json.dumps(PROPS)), "/slots": packed(json.dumps(SLOTS))}
    async with stand_in({**answers, "/v1/models": packed(" " * (9 << 20))}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.props is not None
    assert look.slots is not None
    assert look.refused == {"/v1/models": "its answer is longer than 8 MiB"}
    mispacked = answered("200 OK", "Content-Encoding: gzip\r\n", json.dumps(SLOTS).encode())
    async with stand_in({"/slots": mispacked}) as server:
        assert (await look_at(server.url, None, **QUICK)).slots is not None


async def test_a_number_of_slots_that_can_not_be_true_bounds_nothing() -> None:
    async with stand_in({"/props": said({**PROPS, "total_slots": -3})}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert not look.refused


async def test_an_answer_that_drips_is_given_up_in_time() -> None:
    drip: Script = [(0.0, http_head(content_type="application/json")), *((0.1 * i, chunk(b" ")) for i in range(100))]
    began = time.monotonic()
    async with stand_in({"/slots": drip}) as server:
        look = await look_at(server.url, None, limit_s=1.0, between_s=0.01)
    assert time.monotonic() - began < 1.5
    assert "/slots" in look.silent_s


async def test_a_build_from_before_2025_is_understood() -> None:
    flat = {
        "n_ctx": 2048,
        "temperature": 0.8,
        "repeat_penalty": 1.1,
        "prompt": SECRET,
        "grammar": "",
        "model": "x.gguf",
    }
    props = {"system_prompt": SECRET, "default_generation_settings": flat, "total_slots": 1, "chat_template": ""}
    slots = [{"id": 0, "task_id": 5, "state": 1, "n_ctx": 2048, "prompt": SECRET, "next_token": {"n_decoded": 3}}]
    async with stand_in({"/props": said(props), "/slots": said(slots)}) as server:
        look = await look_at(server.url, None, **QUICK)
    assert look.slots is not None
    assert (look.slots[0].processing, look.slots[0].task, look.slots[0].decoded) == (True, 5, 3)
    assert look.sampling == {"temperature": 0.8, "repeat_penalty": 1.1, "grammar": 0}
    assert look.props is not None
    assert look.props.template is None
    assert SECRET not in repr(look)


# No llama-server that could be looked at


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


def answered(status: str, head: str = "", body: bytes = b"<html>no</html>") -> Script:
    """An answer as proxies give it, with more lines in its head."""
    lines = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    return [(0.0, lines.encode() + body)]


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


# A real one


@pytest.mark.engine
async def test_a_real_server_is_looked_at_idle_and_at_work_within_two_seconds(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    body = {
        "prompt": SECRET,
        "n_predict": 3000,
        "ignore_eos": True,
        "repeat_penalty": 1.2,
        "n_probs": 5,
        "stream": True,
    }
    async with engine(model, tmp_path, parallel_slots=2, kv_unified=True) as url:
        began = time.monotonic()
        idle = await look_at(url, None)
        assert time.monotonic() - began < 2.0
        assert not idle.refused
        assert not idle.request_params_seen
        assert idle.props is not None
        assert idle.props.total_slots == 2
        assert idle.props.template is not None
        assert idle.sampling["repeat_penalty"] == 1.0
        assert idle.metrics is not None
        assert idle.metrics.processing == 0
        async with aiohttp.ClientSession() as session, session.post(f"{url}/completion", json=body) as response:
            await response.content.readany()
            began = time.monotonic()
            busy = await look_at(url, None, between_s=0.2)
            assert time.monotonic() - began < 2.0
    assert not busy.refused
    assert busy.request_params_seen
    assert busy.sampling["repeat_penalty"] == pytest.approx(1.2)
    assert busy.sampling["n_probs"] == 5
    assert busy.metrics is not None
    assert busy.metrics_later is not None
    assert busy.metrics.processing == 1
    assert (busy.metrics_later.decodes or 0) > (busy.metrics.decodes or 0)
    assert SECRET not in repr(busy)


@pytest.mark.engine
async def test_a_real_server_without_its_endpoints_says_how_to_get_them(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf")
    async with engine(model, tmp_path, context_per_slot=1024, without=("--metrics", "--slots")) as url:
        look = await look_at(url, None, **QUICK)
    assert look.refused == {"/metrics": "off: start it with --metrics", "/slots": "off: start it with --slots"}
