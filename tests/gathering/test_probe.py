"""A probe is announced, gentle and bounded, and takes a request that had the server to itself apart."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.mock_server import END, STALL, MockServer, Received, Script, chat, chunk, event, http_head, last, token
from slotune.diagnose.symptoms import ServerLook
from slotune.gathering import probe, probe_plan
from slotune.gathering.probe import LIMIT_S, ProbeError, probe_server
from slotune.gathering.probe_plan import announcement
from slotune.gathering.server import look_at
from slotune.llama.server_answers import ModelMeta, Props
from slotune.tuning.errors import InvalidInputError
from tests.gathering.standing_in import METRICS, engine, page, said, stand_in
from tests.tiny_models import write_tiny_model

CHAT = "/v1/chat/completions"
IDLE = page({**METRICS, "requests_processing": 0, "requests_deferred": 0})


def look(context: int = 4096) -> ServerLook:
    props = Props(1, context, "small.gguf", "small", "b11549", metrics_enabled=True, slots_enabled=True)
    return ServerLook("http://127.0.0.1:1", props=props, model=ModelMeta("small"))


def prompt_of(received: Received) -> str:
    text: str = json.loads(received.body)["messages"][0]["content"]
    return text


def answer(
    received: Received,
    *,
    tokens_per_s: float = 4000.0,
    overhead_s: float = 0.01,
    step_s: float = 0.002,
    cached: int = 0,
    held_back: bool = False,
) -> Script:
    """A chat's answer of a server whose word is a token: what it computes takes as long as it says."""
    words = len(prompt_of(received).split()) + 10 - cached
    asked = received.asked_tokens
    prompt_s = words / tokens_per_s
    first = overhead_s + prompt_s
    made_s = step_s * (asked - 1)
    timings = {
        "prompt_n": words,
        "cache_n": cached,
        "prompt_ms": prompt_s * 1e3,
        "predicted_n": asked,
        "predicted_ms": made_s * 1e3,
    }
    usage = {"choices": [], "usage": {"completion_tokens": asked}, "timings": timings}
    at = [first + made_s * held_back + number * step_s * (not held_back) for number in range(asked)]
    script: list[tuple[float, bytes]] = [(0.0, http_head())]
    script += [(when, chunk(event(chat({"content": " tok"})))) for when in at]
    script.append((at[-1], chunk(event(chat({}, "length")) + event(usage) + event("[DONE]")) + END))
    return script


def tokenizing(received: Received) -> Script:
    return said({"tokens": list(range(len(json.loads(received.body)["content"].split())))})


def serving(**more: Any) -> MockServer:
    """An idle server that chats."""
    return stand_in({"/metrics": IDLE, "/tokenize": tokenizing, CHAT: answer, **more})


def chats(server: MockServer) -> list[Received]:
    return [received for received in server.requests if received.method == "POST" and received.path == CHAT]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it takes is a courtesy to a server in use; here nobody else waits."""
    monkeypatch.setattr(probe, "_PAUSE_S", (0.02, 0.05))


def nothing(_: str) -> None:
    """Nobody listens."""


@pytest.mark.alone
async def test_a_request_alone_is_taken_apart() -> None:
    async with serving() as server:
        facts = await probe_server(server.url, None, look(), announce=nothing, note=nothing)
    assert facts.requests == 4
    assert facts.prompt_tokens == pytest.approx(458, abs=10)
    assert facts.prefill_tokens_per_s == pytest.approx(4000)
    assert facts.decode_step_s == pytest.approx(0.002)
    assert 0.01 <= facts.overhead_s < 0.1
    assert facts.short_prompt_overhead_s is not None
    assert 0.01 <= facts.short_prompt_overhead_s < 0.1
    assert facts.connect_s is not None
    assert 0 < facts.connect_s < 0.1
    assert facts.tokenize_s is not None
    assert 0 < facts.tokenize_s < 0.5
    assert facts.stream_s == pytest.approx(facts.stream_made_s, abs=0.03)
    assert facts.was_idle


async def test_it_says_what_it_will_send_before_it_sends_and_keeps_to_it() -> None:
    heard: list[tuple[str, int]] = []
    async with serving() as server:
        await probe_server(
            server.url,
            None,
            look(),
            requests=2,
            announce=lambda line: heard.append((line, len(server.requests))),
            note=nothing,
        )
    ((line, sent_before),) = heard
    assert sent_before == 0
    assert line == announcement(2, 512, LIMIT_S)
    numbers = [int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*", line)]
    sent = chats(server)
    assert len(sent) == numbers[0] == 5
    assert numbers[1:3] == [2, 2]  # short ones and long ones, of which one is sent again
    assert sum(len(prompt_of(one).split()) + 10 for one in sent) <= numbers[3]
    assert sum(one.asked_tokens for one in sent) <= numbers[4]
    assert numbers[5] == LIMIT_S


async def test_never_two_at_a_time_and_a_pause_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PAUSE_S", (0.5, 1.0))
    took: list[float] = []

    def timed(received: Received) -> Script:
        script = answer(received)
        took.append(script[-1][0])
        return script

    async with serving(**{CHAT: timed}) as server:
        await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    arrived = [one.arrived_s for one in chats(server)]
    assert len(arrived) == 4
    ended = [at + took_s for at, took_s in zip(arrived, took, strict=True)]
    assert all(begin >= end + 0.49 for end, begin in zip(ended[:-1], arrived[1:], strict=True))


async def test_prompts_share_nothing_but_one_that_is_sent_twice() -> None:
    async with serving() as server:
        await probe_server(server.url, None, look(), announce=nothing, note=nothing)
    prompts = [prompt_of(one) for one in chats(server)]
    assert prompts[2] == prompts[3]
    assert len({prompt[:10] for prompt in prompts}) == len(prompts) - 1
    assert len({prompt[40:90] for prompt in prompts[2:]}) == 4


async def test_a_prompt_sent_again_tells_what_the_cache_kept() -> None:
    seen: set[str] = set()

    def caching(received: Received) -> Script:
        known = prompt_of(received) in seen
        seen.add(prompt_of(received))
        return answer(received, cached=400 if known else 0)

    async with serving(**{CHAT: caching}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.cached_tokens_again == 400


async def test_prompts_are_short_for_a_small_context_and_for_a_slow_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_plan, "_PROMPT_LIMIT_S", 0.1)
    monkeypatch.setattr(probe_plan, "_ANSWER_LIMIT_S", 0.11)

    def slow(received: Received) -> Script:
        return answer(received, tokens_per_s=1600.0, step_s=0.02)

    async with serving() as server:
        small = await probe_server(server.url, None, look(256), requests=1, announce=nothing, note=nothing)
    assert small.prompt_tokens < 128
    async with serving(**{CHAT: slow}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.prompt_tokens < 200
    assert facts.prefill_tokens_per_s == pytest.approx(1600.0)
    assert [one.asked_tokens for one in chats(server)] == [4, 4, 5, 4]


@pytest.mark.alone
async def test_a_server_that_others_use_all_the_time_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_IDLE_WAIT_S", (0.5, 0.3))
    busy = page({**METRICS, "requests_processing": 1, "requests_deferred": 2})
    async with serving(**{"/metrics": busy}) as server:
        began = time.monotonic()
        with pytest.raises(ProbeError, match=r"others use it \(1 at work, 2 waiting\).* 0\.5 s; nothing was sent"):
            await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert {received.method for received in server.requests} == {"GET"}
    assert 0.5 <= time.monotonic() - began < 2.0


async def test_a_busy_server_gets_its_requests_as_soon_as_it_is_idle() -> None:
    looks = itertools.count()

    def soon_idle(_: Received) -> Script:
        return page({**METRICS, "requests_processing": int(next(looks) < 4), "requests_deferred": 0})

    async with serving(**{"/metrics": soon_idle}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.was_idle
    assert facts.requests == 1


@pytest.mark.parametrize(("answered", "measured"), [(2, False), (4, True)])
async def test_once_others_come_nothing_more_is_sent_and_what_was_measured_counts(
    answered: int, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two short prompts, a long one, and that once more."""
    monkeypatch.setattr(probe, "_IDLE_WAIT_S", (0.5, 0.3))
    notes: list[str] = []

    def until(_: Received) -> Script:
        busy = len(chats(server)) >= answered
        return page({**METRICS, "requests_processing": int(busy), "requests_deferred": 0})

    async with serving(**{"/metrics": until}) as server:
        ask = probe_server(server.url, None, look(), announce=nothing, note=notes.append)
        if measured:
            facts = await ask
            assert (facts.requests, facts.was_idle) == (1, False)
            (note,) = notes
            assert note.startswith("--probe was stopped after 4 of its requests: others use it (1 at work, 0 waiting)")
        else:
            with pytest.raises(ProbeError, match=r"others use it .*; only 2 short ones were sent"):
                await ask
    assert len(chats(server)) == answered


async def test_work_of_others_between_two_looks_shows_in_the_counters() -> None:
    counted = [1000]

    def growing(_: Received) -> Script:
        counted[0] += 5000
        return page({**METRICS, "requests_processing": 0, "requests_deferred": 0, "prompt_tokens_total": counted[0]})

    async with serving(**{"/metrics": growing}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert not facts.was_idle


OFF = said({}, "501 Not Implemented")


@pytest.mark.parametrize(
    "metrics",
    [
        pytest.param(OFF, id="switched off"),
        pytest.param(page(dict.fromkeys(METRICS, "-nan")), id="no numbers"),
        pytest.param(page({**METRICS, "requests_processing": -7}), id="an impossible number"),
    ],
)
async def test_where_nobody_can_tell_who_uses_it_nothing_is_sent(metrics: Script) -> None:
    async with serving(**{"/metrics": metrics, "/slots": OFF}) as server:
        with pytest.raises(ProbeError, match=r"nobody can tell whether others use it.*--metrics"):
            await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert not chats(server)


async def test_without_metrics_the_slots_say_whether_it_is_idle() -> None:
    async with serving(**{"/metrics": OFF}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.was_idle


@pytest.mark.alone
async def test_tokens_that_somebody_holds_back_show_in_how_they_come() -> None:
    def held(received: Received) -> Script:
        return answer(received, step_s=0.01, held_back=True)

    async with serving(**{CHAT: held}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.stream_made_s == pytest.approx(0.15)
    assert facts.stream_s is not None
    assert facts.stream_s < 0.05


async def test_where_chats_are_refused_plain_text_is_sent() -> None:
    def plain(received: Received) -> Script:
        tokens = received.asked_tokens
        return [(0.0, http_head()), (0.01, chunk(event(token()))), (0.02, chunk(event(last(tokens))) + END)]

    refused = said({"error": {"code": 500, "type": "server_error"}}, "500 Internal Server Error")
    async with serving(**{CHAT: refused, "/completion": plain}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.requests == 1
    assert len(chats(server)) == 1
    assert len([one for one in server.requests if one.path == "/completion"]) == 3


async def test_without_the_server_s_tokenizer_prompts_are_kept_on_the_short_side() -> None:
    async with stand_in({"/metrics": IDLE, CHAT: answer}) as server:
        facts = await probe_server(server.url, None, look(), requests=1, announce=nothing, note=nothing)
    assert facts.tokenize_s is None
    assert 100 < facts.prompt_tokens < 200


async def test_a_server_that_answers_no_prompt_is_told_with_its_reason() -> None:
    refused = said({"error": {"code": 401, "type": "authentication_error"}}, "401 Unauthorized")
    async with serving(**{CHAT: refused, "/completion": refused}) as server:
        with pytest.raises(ProbeError, match="HTTP 401: 401 authentication_error") as caught:
            await probe_server(server.url, "0ther", look(), announce=nothing, note=nothing)
    assert isinstance(caught.value, InvalidInputError)
    assert str(caught.value).startswith(f"--probe: {server.url} could not be measured")


@pytest.mark.alone
async def test_a_probe_ends_in_time_with_what_it_has() -> None:
    count = iter(range(100))

    def stuck(received: Received) -> Script:
        return answer(received) if next(count) < 5 else [(0.0, http_head()), (0.0, STALL)]

    async with serving(**{CHAT: stuck}) as server:
        began = time.monotonic()
        facts = await probe_server(server.url, None, look(), announce=nothing, note=nothing, limit_s=3.0)
    assert time.monotonic() - began < 4.5
    assert facts.requests == 2
    assert facts.cached_tokens_again == 0


@pytest.mark.alone
async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    began = time.monotonic()
    async with serving(**{CHAT: [(0.0, STALL)]}) as server:
        with pytest.raises(ProbeError, match="no end after"):
            await probe_server(server.url, None, look(), announce=nothing, note=nothing, limit_s=1.0)
    assert time.monotonic() - began < 2.0


@pytest.mark.alone
async def test_a_probe_that_is_cancelled_hangs_up_at_once_and_sends_nothing_more() -> None:
    async with serving(**{CHAT: [(0.0, http_head()), (0.0, STALL)]}) as server:
        task = asyncio.create_task(probe_server(server.url, None, look(), announce=nothing, note=nothing))
        async with asyncio.timeout(5):
            while not chats(server):  # noqa: ASYNC110 (the stand-in has no event)
                await asyncio.sleep(0.01)
            began = time.monotonic()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - began < 0.5
            while server.in_flight:  # noqa: ASYNC110 (the stand-in has no event)
                await asyncio.sleep(0.01)
    assert len(chats(server)) == 1


async def test_an_address_that_is_none_is_refused_before_anything_is_announced() -> None:
    heard: list[str] = []
    with pytest.raises(InvalidInputError, match="must begin with http://"):
        await probe_server("127.0.0.1:8080", None, look(), announce=heard.append, note=heard.append)
    assert not heard


@pytest.mark.engine
async def test_a_real_server_is_measured_and_its_cache_found(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    async with engine(model, tmp_path) as url:
        shown = await look_at(url, None, between_s=0.01)
        facts = await probe_server(url, None, shown, requests=2, announce=nothing, note=nothing)
    assert facts.was_idle
    assert facts.requests == 2
    assert 250 < facts.prompt_tokens <= 512
    assert facts.prefill_tokens_per_s > 100
    assert 0 < facts.decode_step_s < 0.5
    assert 0 <= facts.overhead_s < 0.5
    assert facts.cached_tokens_again is not None
    assert facts.cached_tokens_again > 0.9 * facts.prompt_tokens


@pytest.mark.engine
async def test_a_real_server_that_caches_nothing_is_found_out(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    async with engine(model, tmp_path, cache_prompt=False) as url:
        shown = await look_at(url, None, between_s=0.01)
        facts = await probe_server(url, None, replace(shown, model=None), requests=1, announce=nothing, note=nothing)
    assert facts.cached_tokens_again == 0


@pytest.mark.engine
async def test_a_real_server_that_works_for_others_is_sent_nothing_by_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_IDLE_WAIT_S", (1.0, 1.0))
    model = write_tiny_model(tmp_path / "tiny.gguf", context=4096)
    body = {"prompt": "once upon a time", "n_predict": 3000, "ignore_eos": True, "stream": True}
    async with engine(model, tmp_path) as url:
        shown = await look_at(url, None, between_s=0.01)
        async with aiohttp.ClientSession() as session, session.post(f"{url}/completion", json=body) as others:
            await others.content.readany()
            with pytest.raises(ProbeError, match=r"others use it \(1 at work, 0 waiting\).*; nothing was sent"):
                await probe_server(url, None, shown, announce=nothing, note=nothing)
    log = "".join(file.read_text() for file in tmp_path.rglob("*.log"))  # noqa: ASYNC240 (nothing else runs)
    assert log.count("processing task") == 1
