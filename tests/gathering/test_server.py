"""A look at a server: what it shows comes out, what it does not show has a reason, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.mock_server import END, Received, Script, chunk, document, http_head
from slotune.gathering.server import look_at
from tests.gathering.standing_in import (
    METRICS,
    PARAMS,
    PROPS,
    SECRET,
    SILENCE,
    SLOTS,
    answered,
    engine,
    page,
    said,
    stand_in,
)
from tests.tiny_models import write_tiny_model

QUICK: dict[str, Any] = {"between_s": 0.01, "limit_s": 4.0}


# What a server shows


@pytest.mark.alone
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


@pytest.mark.alone
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


@pytest.mark.alone
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


@pytest.mark.alone
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


@pytest.mark.alone
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


# A real one


@pytest.mark.alone
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
