"""Control calls: a busy server is not a dead one, a dead one not a slow one, and a foreign one none of ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.server_answers import MalformedAnswerError, Slot, parse_metrics, parse_model, parse_slots
from slotune.llama.server_http import (
    EndpointDisabledError,
    HealthState,
    LlamaServer,
    NotIdleError,
    RefusedRequestError,
    ServerBusyError,
    ServerExitedError,
    ServerLoadingError,
    ServerUnreachableError,
    StartupTimeoutError,
    UnexpectedAnswerError,
)

LOADING = httpx.Response(503, json={"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
OK = httpx.Response(200, json={"status": "ok"})


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def server(
    answer: Callable[[httpx.Request], httpx.Response], clock: Clock | None = None, **settings: Any
) -> LlamaServer:
    clock = clock or Clock()
    transport = httpx.MockTransport(answer)
    return LlamaServer("http://127.0.0.1:1", transport=transport, clock=clock, sleep=clock.sleep, **settings)


def always(response: httpx.Response) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(response.status_code, content=response.content)


def one_after_another(*answers: httpx.Response | Exception) -> Callable[[httpx.Request], httpx.Response]:
    """Each answer once, the last for ever."""
    rest: Iterator[httpx.Response | Exception] = iter(answers)
    last: list[httpx.Response | Exception] = []

    def answer(_: httpx.Request) -> httpx.Response:
        last[:] = [next(rest, last[0] if last else OK)]
        if isinstance(last[0], Exception):
            raise last[0]
        return httpx.Response(last[0].status_code, content=last[0].content)

    return answer


def metrics(processing: int, deferred: int) -> httpx.Response:
    text = f"llamacpp:requests_processing {processing}\nllamacpp:requests_deferred {deferred}\n"
    return httpx.Response(200, text=text)


async def test_health_tells_loading_from_ready() -> None:
    async with server(one_after_another(LOADING, OK)) as it:
        assert [await it.health(), await it.health()] == [HealthState.LOADING, HealthState.READY]


async def test_no_answer_in_time_means_busy_and_no_connection_means_gone() -> None:
    async with server(one_after_another(httpx.ReadTimeout("slow"))) as it:
        with pytest.raises(ServerBusyError, match="/metrics: no answer in time"):
            await it.metrics()
    async with server(one_after_another(httpx.ConnectError("refused"))) as it:
        with pytest.raises(ServerUnreachableError, match="/slots: refused"):
            await it.slots()


async def test_an_endpoint_that_is_off_names_the_flag_that_turns_it_on() -> None:
    async with server(always(httpx.Response(501, json={"error": {}}))) as it:
        with pytest.raises(EndpointDisabledError, match="--metrics"):
            await it.metrics()
        with pytest.raises(EndpointDisabledError, match="--slots"):
            await it.slots()


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(httpx.Response(200, text="<html>nginx</html>"), id="not JSON"),
        pytest.param(httpx.Response(200, json=["a"]), id="another shape"),
        pytest.param(httpx.Response(200, json={"hello": 1}), id="other keys"),
        pytest.param(httpx.Response(404, text="nothing here"), id="not found"),
        pytest.param(httpx.Response(401, json={}), id="a key is needed"),
    ],
)
async def test_a_foreign_server_is_refused(foreign: httpx.Response) -> None:
    async with server(always(foreign)) as it:
        with pytest.raises(UnexpectedAnswerError, match=r"127\.0\.0\.1:1/props"):
            await it.props()
        with pytest.raises(UnexpectedAnswerError):
            await it.slots()
        with pytest.raises(UnexpectedAnswerError):
            await it.model()


async def test_an_api_key_is_sent_as_a_bearer_token() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200, text="")

    async with server(answer, api_key="s3cret") as it:
        await it.metrics()

    assert seen == ["Bearer s3cret"]


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with LlamaServer("http://127.0.0.1:1") as it:
        assert not it._client._mounts


async def test_waiting_for_readiness_survives_refusals_and_loading() -> None:
    answers = one_after_another(httpx.ConnectError("refused"), LOADING, httpx.ReadTimeout("slow"), OK)
    async with server(answers) as it:
        await it.wait_ready(10)


async def test_waiting_for_readiness_ends_with_the_process() -> None:
    lives = iter([True, True, False])
    async with server(always(LOADING)) as it:
        with pytest.raises(ServerExitedError, match="loading the model"):
            await it.wait_ready(10, lambda: next(lives))


async def test_waiting_for_readiness_has_a_limit_and_tells_the_last_state() -> None:
    clock = Clock()
    async with server(always(LOADING), clock) as it:
        with pytest.raises(StartupTimeoutError, match="within 3 s: loading the model"):
            await it.wait_ready(3)

    assert clock.now == pytest.approx(3, abs=0.1)


async def test_idle_means_nothing_running_and_nothing_queued_twice_in_a_row() -> None:
    asked: list[str] = []
    answers = one_after_another(
        metrics(1, 3), metrics(0, 1), metrics(0, 0), metrics(1, 0), httpx.ReadTimeout("slow"), metrics(0, 0)
    )

    def counted(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return answers(request)

    async with server(counted) as it:
        await it.wait_idle(10)

    assert len(asked) == 7


async def test_a_server_that_stays_busy_is_reported_with_its_numbers() -> None:
    async with server(always(metrics(2, 5))) as it:
        with pytest.raises(NotIdleError, match="not idle after 2 s: 2 running, 5 queued"):
            await it.wait_idle(2)


async def test_without_metrics_the_slots_are_asked() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/metrics":
            return httpx.Response(501, json={})
        return httpx.Response(200, json=[{"id": 0, "n_ctx": 8, "is_processing": True}])

    async with server(answer) as it:
        with pytest.raises(NotIdleError, match="1 running"):
            await it.wait_idle(1)


def test_metrics_keep_what_is_known_and_drop_what_is_no_number() -> None:
    got = parse_metrics(
        """\
# HELP llamacpp:n_decode_total Total number of llama_decode() calls
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 17
llamacpp:requests_processing 2
llamacpp:requests_deferred 1 1795971337
llamacpp:n_busy_slots_per_decode -nan
llamacpp:prompt_tokens_seconds +Inf
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 4
some_future_metric 1.5e3
this is no sample at all
"""
    )

    assert (got.decodes, got.processing, got.deferred) == (17, 2, 1)
    assert got.get("n_busy_slots_per_decode") is None
    assert got.get("prompt_tokens_seconds") is None
    assert got.get('spec_decode_num_accepted_tokens_per_pos_total{position="1"}') == 4
    assert got.get("some_future_metric") == 1500
    assert got.get("never_heard_of") is None


@given(st.text())
def test_no_text_upsets_the_metrics_parser(text: str) -> None:
    parse_metrics(text)


@pytest.mark.parametrize("next_token", [[{"n_decoded": 9}], {"n_decoded": 9}])
def test_next_token_is_read_as_a_list_and_as_an_object(next_token: object) -> None:
    entry = {
        "id": 1,
        "n_ctx": 512,
        "is_processing": True,
        "speculative": False,
        "id_task": 7,
        "n_prompt_tokens_processed": 40,
        "next_token": next_token,
    }
    assert parse_slots([entry]) == (Slot(1, 512, True, False, 7, 40, 9),)


def test_a_slot_that_never_had_a_task_has_no_progress() -> None:
    assert parse_slots([{"id": 0, "n_ctx": 8, "is_processing": False, "next_token": []}]) == (Slot(0, 8, False),)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_json_is_either_understood_or_refused(body: object) -> None:
    body = json.loads(json.dumps(body))
    for parse in (parse_slots, parse_model):
        with contextlib.suppress(MalformedAnswerError):
            parse(body)


async def test_a_call_with_a_body_sends_json_and_returns_json() -> None:
    def echo(request: httpx.Request) -> httpx.Response:
        assert request.headers["Content-Type"] == "application/json"
        return httpx.Response(200, json={"path": request.url.path, "body": json.loads(request.content)})

    async with server(echo) as it:
        assert await it.post("/tokenize", b'{"content":"a"}') == {"path": "/tokenize", "body": {"content": "a"}}


@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        pytest.param({"error": {"type": "invalid_request_error", "message": "the body"}}, 400, "invalid_request_error"),
        pytest.param({"error": {"type": "the body, quoted"}}, 500, ""),
        pytest.param({"error": "the body"}, 500, ""),
        pytest.param(["the body"], 404, ""),
    ],
)
async def test_a_refused_body_is_not_in_the_error(answer: object, status: int, kind: str) -> None:
    async with server(always(httpx.Response(status, json=answer))) as it:
        with pytest.raises(RefusedRequestError, match=str(status)) as failure:
            await it.post("/completion", b"{}")
    assert (failure.value.status, failure.value.kind) == (status, kind)
    assert "the body" not in str(failure.value)


async def test_a_body_that_comes_while_the_model_is_loaded_or_gets_no_json_is_told_apart() -> None:
    async with server(always(LOADING)) as it:
        with pytest.raises(ServerLoadingError):
            await it.post("/completion", b"{}")
    async with server(always(httpx.Response(200, text="<html>"))) as it:
        with pytest.raises(UnexpectedAnswerError, match="is this a llama-server"):
            await it.post("/completion", b"{}")
