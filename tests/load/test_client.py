"""The client against a server that does everything wrong that a server can do."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import time
from types import SimpleNamespace

import numpy as np
import orjson
import pytest
from scipy import stats

from bench.mock_server import (
    ABORT,
    END,
    STALL,
    MockServer,
    Received,
    Script,
    chat,
    chat_usage,
    chunk,
    document,
    event,
    http_head,
    last,
    steady,
    token,
)
from slotune.load import answer as answer_module
from slotune.load import client, open_loop
from slotune.load.client import LoadObserver, Target, run_load
from slotune.load.demand import Demand, Prompt
from slotune.load.records import RequestRecord, RequestStatus
from slotune.load.trace import build_trace
from tests.load.serving import DEMAND, VOCABULARY, answer, asking, generations, load, serve, until

CLOSE_TO = 0.15
"""Seconds that a busy test machine may add to a time; every trap would subtract from it, or add much more."""

CHAT = Demand(peak_rate=1.0, output_tokens=2, prompts=(Prompt(messages=({"role": "user", "content": "hi"},)),))
ROLE = event(chat({"role": "assistant", "content": None}))
CHAT_END = event(chat({}, "length")) + event(chat_usage(2)) + event("[DONE]")


async def one(script: Script, *, demand: Demand = DEMAND, timeout_s: float = 5.0) -> RequestRecord:
    """Return the record of a single request."""
    async with serve(script) as server:
        result = await load(server, demand=demand, requests=1, timeout_s=timeout_s)
    return result.records[0]


def near(seconds: float | None, want: float) -> bool:
    return seconds is not None and want - 0.002 <= seconds <= want + CLOSE_TO


@pytest.mark.alone
async def test_times_are_what_the_server_did() -> None:
    record = await one(answer(first_s=0.1, gap_s=0.03))
    assert record.status is RequestStatus.OK
    assert near(record.ttft_s, 0.1)
    assert near(record.tpot_s, 0.03)
    assert record.headers_s is not None
    assert record.sent_s is not None
    assert near(record.headers_s - record.sent_s, 0.0)


@pytest.mark.alone
async def test_a_role_chunk_that_comes_early_leaves_ttft_alone() -> None:
    script = [
        (0.0, http_head() + chunk(ROLE)),
        (0.2, chunk(event(chat({"content": "a"})))),
        (0.22, chunk(event(chat({"content": "b"}))) + chunk(CHAT_END) + END),
    ]
    record = await one(script, demand=CHAT)
    assert record.status is RequestStatus.OK
    assert near(record.ttft_s, 0.2)


@pytest.mark.alone
async def test_progress_chunks_leave_ttft_alone() -> None:
    progress = event(chat({"role": "assistant", "content": None}, prompt_progress={"total": 2, "processed": 1}))
    script = [
        (0.0, http_head() + chunk(progress)),
        (0.05, chunk(progress)),
        (0.15, chunk(event(chat({"content": "a"})) + event(chat({"content": "b"})) + CHAT_END) + END),
    ]
    assert near((await one(script, demand=CHAT)).ttft_s, 0.15)


@pytest.mark.alone
async def test_reasoning_alone_is_an_answer_with_a_ttft() -> None:
    script = [
        (0.0, http_head() + chunk(ROLE)),
        (0.1, chunk(event(chat({"reasoning_content": "hm"})))),
        (0.12, chunk(CHAT_END) + END),
    ]
    record = await one(script, demand=CHAT)
    assert record.status is RequestStatus.OK
    assert near(record.ttft_s, 0.1)
    assert record.first_content_s is None


@pytest.mark.alone
async def test_several_tokens_in_a_chunk_do_not_slow_the_answer_down() -> None:
    triple = chunk(event(token("a b c", (1, 2, 3))))
    script = [(0.0, http_head()), (0.05, triple), (0.11, triple), (0.17, triple + chunk(event(last(9))) + END)]
    record = await one(script, demand=asking(9))
    assert record.output_tokens == 9
    assert record.token_events == 3
    assert near(record.tpot_s, 0.12 / 8)


@pytest.mark.alone
async def test_pings_and_crlf_change_nothing() -> None:
    script = [
        (0.0, http_head() + chunk(b": ping\r\n\r\n")),
        (0.05, chunk(b":\r\n\r\n")),
        (0.10, chunk(event(token(), end=b"\r\n\r\n"))),
        (0.11, chunk(b": ping\r\n\r\n" + event(token(), end=b"\r\n\r\n") + event(token(), end=b"\r\n\r\n"))),
        (0.12, chunk(event(last(3), end=b"\r\n\r\n")) + END),
    ]
    record = await one(script)
    assert record.status is RequestStatus.OK
    assert near(record.ttft_s, 0.10)
    assert record.token_events == 3


async def test_events_cut_anywhere_change_nothing() -> None:
    stream = b"".join(map(event, [token(), token(), token(), last(3)]))
    pieces = [stream[start : start + 17] for start in range(0, len(stream), 17)]
    script = [(0.0, http_head()), *((0.05 + i * 1e-4, chunk(piece)) for i, piece in enumerate(pieces)), (0.1, END)]
    record = await one(script)
    assert record.status is RequestStatus.OK
    assert record.token_events == 3


async def test_an_error_in_the_middle_under_http_200_is_an_error() -> None:
    error = event({"error": {"code": 500, "type": "server_error", "message": "Context size has been exceeded."}})
    record = await one([(0.0, http_head()), (0.02, chunk(event(token()))), (0.04, chunk(error) + END)])
    assert record.status is RequestStatus.STREAM_ERROR
    assert record.error == "500 server_error"
    assert record.ttft_s is not None


async def test_no_token_is_a_violation_without_a_ttft() -> None:
    record = await one([(0.0, http_head() + chunk(event(last(0))) + END)])
    assert record.status is RequestStatus.NO_TOKENS
    assert record.ttft_s is None


async def test_an_empty_answer_is_a_violation() -> None:
    record = await one([(0.0, http_head() + END)])
    assert record.status is RequestStatus.NO_TOKENS


async def test_an_http_error_is_told_by_its_type_and_not_by_its_words() -> None:
    body = {"error": {"code": 400, "type": "exceed_context_size_error", "message": "hush", "n_prompt_tokens": 9}}
    record = await one(document(json.dumps(body), status="400 Bad Request"))
    assert record.status is RequestStatus.HTTP_ERROR
    assert record.error == "HTTP 400: 400 exceed_context_size_error n_prompt_tokens=9"


async def test_a_redirect_is_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with serve(lambda received: [(0.0, moved)] if received.path == "/completion" else answer()) as server:
        result = await load(server, requests=1)
    assert result.records[0].error == "HTTP 302: without a readable reason"
    assert {received.path for received in generations(server)} == {"/completion"}


async def test_an_error_page_under_http_200_is_no_answer() -> None:
    record = await one(document("<html>gateway</html>", content_type="text/html"))
    assert record.status is RequestStatus.NO_TOKENS


@pytest.mark.alone
async def test_a_stalled_answer_is_unfinished_at_the_time_limit() -> None:
    record = await one([(0.0, http_head()), (0.02, chunk(event(token()))), (0.03, STALL)], timeout_s=0.3)
    assert record.status is RequestStatus.UNFINISHED
    assert record.finished_s is None
    assert near(record.ttft_s, 0.02)
    assert record.error == "no end after 0.3 s"


async def test_a_server_that_never_answers_is_unfinished_at_the_time_limit() -> None:
    record = await one([(0.0, STALL)], timeout_s=0.2)
    assert record.status is RequestStatus.UNFINISHED
    assert (record.headers_s, record.ttft_s) == (None, None)


async def test_a_broken_connection_in_the_middle_is_a_stream_error() -> None:
    record = await one([(0.0, http_head()), (0.02, chunk(event(token()))), (0.04, ABORT)])
    assert record.status is RequestStatus.STREAM_ERROR
    assert "in the middle" in (record.error or "")


async def test_a_connection_closed_before_an_answer_is_a_stream_error() -> None:
    record = await one([(0.01, ABORT)])
    assert record.status is RequestStatus.STREAM_ERROR
    assert "before an answer" in (record.error or "")


@pytest.mark.alone
async def test_slow_headers_are_the_queue_and_the_rest_is_prefill() -> None:
    record = await one(answer(headers_s=0.15, first_s=0.2))
    assert record.headers_s is not None
    assert record.sent_s is not None
    assert near(record.headers_s - record.sent_s, 0.15)
    assert near(record.ttft_s, 0.2)


async def test_nothing_that_listens_is_refused_for_every_request() -> None:
    async with serve(answer()) as server:
        await server.refuse()
        result = await load(server, requests=4)
    assert [record.status for record in result.records] == [RequestStatus.REFUSED] * 4
    assert result.records[0].error == "no connection: Connection refused"


@pytest.mark.alone
async def test_a_server_that_dies_in_the_run_refuses_the_rest_of_it() -> None:
    async with serve(answer()) as server:

        class DieAfterFive(LoadObserver):
            def sent(self, index: int) -> None:
                if index == 5:
                    dying.append(asyncio.ensure_future(server.refuse()))

        dying: list[asyncio.Future[None]] = []
        result = await load(server, requests=20, observer=DieAfterFive())
    statuses = [record.status for record in result.records]
    assert len(statuses) == 20
    assert statuses[:4] == [RequestStatus.OK] * 4
    assert statuses[-10:] == [RequestStatus.REFUSED] * 10


@pytest.mark.alone
async def test_requests_are_sent_when_the_trace_says() -> None:
    async with serve(answer()) as server:
        result = await load(server, requests=60, rate=60.0, seed=3)
    lags = [record.sent_s - record.scheduled_s for record in result.records if record.sent_s is not None]
    assert len(lags) == 60
    assert min(lags) >= 0
    assert np.median(lags) < 0.01


@pytest.mark.alone
async def test_the_server_sees_a_poisson_process() -> None:
    async with serve(answer(1, first_s=0.0)) as server:
        await load(server, requests=70, rate=50.0, seed=3, demand=asking(1))
        arrived = [received.arrived_s for received in generations(server)]
    gaps = np.diff(arrived[:70]) * 50.0
    assert stats.kstest(gaps, "expon").pvalue > 0.001
    assert 0.7 < np.std(gaps) / np.mean(gaps) < 1.4


@pytest.mark.alone
async def test_nothing_limits_how_many_requests_are_in_flight() -> None:
    """A cap of 200 in flight sent requests 4.5 s late in another tool; its own TTFT looked right."""
    async with serve([(0.0, http_head()), (1.0, chunk(event(token())) + chunk(event(last(1))) + END)]) as server:
        peak = 0

        class Watch(LoadObserver):
            def sent(self, index: int) -> None:
                nonlocal peak
                peak = max(peak, server.in_flight)

        result = await load(server, requests=400, rate=800.0, demand=asking(1), observer=Watch())
    assert peak > 250
    assert all(record.status is RequestStatus.OK for record in result.records)


@pytest.mark.alone
async def test_a_client_that_was_held_up_shows_it_in_ttft_and_is_invalid() -> None:
    """Timing from the actual send would hide this (coordinated omission)."""

    class HoldUp(LoadObserver):
        def sent(self, index: int) -> None:
            if index == 2:
                busy_until = asyncio.get_running_loop().time() + 0.4
                while asyncio.get_running_loop().time() < busy_until:
                    pass

    async with serve(answer(first_s=0.02)) as server:
        result = await load(server, requests=30, rate=50.0, observer=HoldUp(), deadline_s=0.15)
    late = [record for record in result.records if (record.ttft_s or 0) > 0.15]
    assert len(late) > 3
    codes = [code for code, _ in result.invalid_reasons]
    assert codes[:2] == ["ClientLate", "LagMadeViolations"]


@pytest.mark.alone
async def test_the_warm_up_obeys_the_trace_and_is_not_measured() -> None:
    async with serve(answer()) as server:
        result = await load(server, requests=5, warmup=20, rate=100.0)
        arrived = [received.arrived_s for received in generations(server)]
    assert [record.index for record in result.records] == [20, 21, 22, 23, 24]
    assert result.warmup_requests == 20
    trace = build_trace(DEMAND, rate=100.0, seed=1, requests=5, warmup_requests=20)
    planned = [entry.at_s - trace.entries[0].at_s for entry in trace.entries]
    shifts = np.array(arrived[:25]) - arrived[0] - planned
    assert np.abs(shifts).max() < CLOSE_TO


@pytest.mark.alone
async def test_load_goes_on_until_the_last_straggler_has_ended() -> None:
    def respond(received: Received) -> Script:
        return answer(first_s=0.5) if received.number == server_started + 4 else answer(first_s=0.01)

    async with serve(respond) as server:
        server_started = 1  # the look at /metrics comes first
        result = await load(server, requests=5, rate=50.0)
        sent = len(generations(server))
    assert max(record.ttft_s or 0 for record in result.records) > 0.49
    assert len(result.records) == 5
    assert sent > 15


@pytest.mark.alone
async def test_load_behind_the_window_does_not_pile_up_in_a_queue() -> None:
    """A server with two slots: two requests wait behind the window for them, and no more."""

    def respond(received: Received) -> Script:
        waits = len(generations(server)) // 2 * 0.1
        return answer(headers_s=waits, first_s=waits + 0.02, gap_s=0.03)

    async with serve(respond) as server:
        result = await load(server, requests=20, rate=100.0)
        sent = len(generations(server))
    assert len(result.records) == 20
    assert all(record.status is RequestStatus.OK for record in result.records)
    assert 20 < sent < 35


@pytest.mark.alone
async def test_requests_count_by_their_scheduled_time_whenever_they_end() -> None:
    """Five seconds each in a window of ten: all that were scheduled in the window are in, no others."""
    async with serve(answer(first_s=0.3)) as server:
        result = await load(server, requests=10, warmup=10, rate=100.0)
    assert [record.index for record in result.records] == list(range(10, 20))
    assert all(record.status is RequestStatus.OK for record in result.records)
    assert result.window_s < 0.3


class Recorder(LoadObserver):
    """Writes down what it hears, and stops at the given number of late requests."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.heard: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def window_opened(self) -> None:
        self.heard.append(("window", -1))

    def sent(self, index: int) -> None:
        self.heard.append(("sent", index))

    def overdue(self, record: RequestRecord) -> bool:
        self.heard.append(("overdue", record.index))
        return len([1 for what, _ in self.heard if what == "overdue"]) == self.stop_at

    def finished(self, record: RequestRecord) -> bool:
        self.heard.append(("finished", record.index))
        return False


async def test_an_observer_hears_of_measured_requests_only_and_in_order() -> None:
    recorder = Recorder()
    async with serve(answer()) as server:
        await load(server, requests=2, warmup=3, observer=recorder)
    assert recorder.heard[0] == ("window", -1)
    assert {index for _, index in recorder.heard[1:]} == {3, 4}
    assert recorder.heard.index(("sent", 3)) < recorder.heard.index(("finished", 3))


@pytest.mark.alone
async def test_a_request_without_a_token_is_overdue_before_it_ends() -> None:
    recorder = Recorder()
    async with serve(answer(first_s=0.3)) as server:
        result = await load(server, requests=1, observer=recorder, deadline_s=0.1)
    assert [what for what, _ in recorder.heard] == ["window", "sent", "overdue", "finished"]
    assert result.records[0].status is RequestStatus.OK


@pytest.mark.alone
async def test_a_request_in_time_is_never_overdue() -> None:
    recorder = Recorder()
    async with serve(answer(first_s=0.02, gap_s=0.1)) as server:
        await load(server, requests=2, observer=recorder, deadline_s=0.15)
    assert not [1 for what, _ in recorder.heard if what == "overdue"]


@pytest.mark.alone
async def test_a_stop_ends_the_run_at_once_with_decided_requests_only() -> None:
    def respond(received: Received) -> Script:
        return answer(first_s=0.01) if received.number % 2 else [(0.0, STALL)]

    async with serve(respond) as server:
        started = asyncio.get_running_loop().time()
        result = await load(server, requests=200, rate=50.0, deadline_s=0.2, observer=Recorder(stop_at=3))
        took = asyncio.get_running_loop().time() - started
        await until(lambda: not server.in_flight)
    assert result.stopped_early
    assert took < 3
    late = [record for record in result.records if record.status is RequestStatus.UNFINISHED]
    assert len(late) == 3
    assert all(record.status is RequestStatus.OK for record in result.records if record not in late)
    assert len(result.records) < 60
    assert not {"LittlesLaw", "CountersDisagree"} & {code for code, _ in result.invalid_reasons}


@pytest.mark.alone
async def test_a_late_first_token_is_decided_at_a_stop_and_one_in_time_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop, "HEARTBEAT_S", 0.5)

    def respond(received: Received) -> Script:
        first_s = 0.15 if received.number % 2 else 0.0
        return [(0.0, http_head()), (first_s, chunk(event(token()))), (0.2, STALL)]

    class StopSoon(LoadObserver):
        def heartbeat(self, token_events: int, in_flight: int) -> bool:
            return True

    async with serve(respond) as server:
        result = await load(server, requests=300, rate=40.0, deadline_s=0.1, observer=StopSoon())
    assert result.stopped_early
    assert result.records
    assert all(record.ttft_s is None or record.ttft_s > 0.1 for record in result.records)


@pytest.mark.alone
async def test_the_heartbeat_tells_a_wedge_from_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_loop, "HEARTBEAT_S", 0.3)
    beats: list[tuple[int, int]] = []

    class Watchdog(LoadObserver):
        def heartbeat(self, token_events: int, in_flight: int) -> bool:
            beats.append((token_events, in_flight))
            return len(beats) == 2

    async with serve([(0.0, http_head()), (0.01, STALL)]) as server:
        result = await load(server, requests=1000, rate=20.0, observer=Watchdog())
    assert result.stopped_early
    assert [events for events, _ in beats] == [0, 0]
    assert beats[1][1] > beats[0][1] > 0


async def test_cancelling_leaves_no_request_and_no_task_behind() -> None:
    async with serve([(0.0, STALL)]) as server:
        run = asyncio.create_task(load(server, requests=50, rate=50.0))
        await until(lambda: server.in_flight >= 5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(lambda: not server.in_flight)
        assert asyncio.all_tasks() == {asyncio.current_task()}
    assert gc.isenabled()


@pytest.mark.alone
@pytest.mark.parametrize("method", ["window_opened", "sent", "overdue", "finished", "heartbeat"])
async def test_a_bug_in_an_observer_is_raised_and_not_lost(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def broken(self: LoadObserver, *_: object) -> bool:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(open_loop, "HEARTBEAT_S", 0.1)
    observer = type("Broken", (LoadObserver,), {method: broken})()
    async with serve(answer(first_s=0.3)) as server:
        with pytest.raises(RuntimeError, match="broken on purpose"):
            await load(server, observer=observer, deadline_s=0.05)


async def test_prompts_are_of_the_asked_length_and_unlike_each_other() -> None:
    async with serve(answer()) as server:
        await load(server, requests=5, warmup=5)
        bodies = [json.loads(received.body) for received in generations(server)[:10]]
    assert {len(body["prompt"]) for body in bodies} == {20}
    assert len({tuple(body["prompt"][:2]) for body in bodies}) == 10
    assert {body["n_predict"] for body in bodies} == {3}
    assert all(body["stream"] and body["ignore_eos"] and body["temperature"] == 0 for body in bodies)


async def test_a_prompt_of_megabytes_is_sent_whole() -> None:
    demand = Demand(peak_rate=1.0, output_tokens=3, prompts=(Prompt(text="word " * 400_000),))
    async with serve(answer()) as server:
        result = await load(server, demand=demand, requests=1)
        assert len(generations(server)[0].body) > 2_000_000
    assert result.records[0].status is RequestStatus.OK


async def test_a_chat_is_sent_as_messages_and_asks_for_usage() -> None:
    async with serve(steady("/v1/chat/completions", 2, 0.01, 0.01)) as server:
        await load(server, demand=CHAT, requests=1)
        received = generations(server)[0]
    body = json.loads(received.body)
    assert received.path == "/v1/chat/completions"
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_tokens"] == 2
    assert body["messages"][0]["role"] == "user"


async def test_no_prompt_text_reaches_records_or_logs(caplog: pytest.LogCaptureFixture) -> None:
    secret = "xyzzy-plugh"
    demand = Demand(peak_rate=1.0, output_tokens=2, prompts=(Prompt(text=secret),))
    echo = document(json.dumps({"error": {"message": secret, "type": secret, "code": secret}}), status="500 Oops")
    with caplog.at_level(logging.DEBUG):
        async with serve(echo) as server:
            result = await load(server, demand=demand)
    assert secret.encode() in generations(server)[0].body.replace(b"\\", b"")
    assert secret not in repr(result)
    assert secret not in caplog.text


async def test_the_api_key_is_sent_and_never_shown() -> None:
    async with serve(answer()) as server:
        trace = build_trace(DEMAND, rate=50.0, seed=1, requests=1)
        target = Target(server.url + "/v1/", api_key="k3y")
        result = await run_load(target, trace, DEMAND, vocabulary=VOCABULARY)
        assert b"Authorization: Bearer k3y" in generations(server)[0].head
        assert generations(server)[0].path == "/completion"
    assert result.records[0].status is RequestStatus.OK
    assert "k3y" not in repr(target)


def metered(tokens_told: int, respond: Script, *, busy_looks: int = 0) -> MockServer:
    """Return a server whose counter moves by ``tokens_told`` for each answer.

    It has somebody else's request at its first ``busy_looks`` scrapes.
    """

    def route(received: Received) -> Script:
        if received.method == "POST":
            return respond
        made = sum(request.method == "POST" for request in server.requests) * tokens_told
        lines = [
            f"llamacpp:requests_processing {server.in_flight + (received.number < busy_looks)}",
            "llamacpp:requests_deferred 0",
            f"llamacpp:tokens_predicted_total {made}",
        ]
        return document("\n".join(lines), content_type="text/plain")

    server = MockServer(route)
    return server


@pytest.mark.alone
async def test_the_servers_counter_agrees_with_what_was_received() -> None:
    async with metered(3, answer()) as server:
        result = await load(server, requests=10, warmup=5)
        sent = len(generations(server))
    assert result.server_output_tokens == 3 * sent
    assert result.invalid_reasons == []
    assert result.busy_samples


@pytest.mark.alone
async def test_a_server_that_made_more_tokens_than_we_got_has_another_user() -> None:
    async with metered(9, answer()) as server:
        result = await load(server, requests=30, warmup=5, rate=100.0)
    assert [code for code, _ in result.invalid_reasons] == ["CountersDisagree"]
    assert "somebody else uses the server" in result.invalid_reasons[0][1]


@pytest.mark.alone
async def test_a_run_waits_until_the_server_is_idle() -> None:
    async with metered(3, answer(), busy_looks=3) as server:
        result = await load(server, requests=3)
        first = [received.method for received in server.requests].index("POST")
    assert first >= 3
    assert result.busy_before == 0
    assert result.invalid_reasons == []


@pytest.mark.alone
async def test_a_server_that_is_never_idle_makes_the_run_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "IDLE_BEFORE_S", 0.2)
    monkeypatch.setattr(client, "IDLE_AFTER_S", 0.2)
    async with metered(3, answer(), busy_looks=10**6) as server:
        result = await load(server, requests=3)
    assert result.server_output_tokens is None
    assert [code for code, _ in result.invalid_reasons] == ["ServerBusyBefore"]


async def test_a_server_that_was_restarted_has_no_counter_to_compare() -> None:
    told = iter([document("llamacpp:requests_processing 0\nllamacpp:tokens_predicted_total 1000\n")])
    now = document("llamacpp:requests_processing 0\nllamacpp:tokens_predicted_total 5\n")
    async with MockServer(lambda received: answer() if received.method == "POST" else next(told, now)) as server:
        result = await load(server, requests=3)
    assert result.server_output_tokens is None


@pytest.mark.alone
async def test_a_read_is_stamped_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> object:
        time.sleep(0.1)
        return orjson.loads(data)

    monkeypatch.setattr(answer_module, "orjson", SimpleNamespace(loads=slow, JSONDecodeError=orjson.JSONDecodeError))
    record = await one([(0.0, http_head() + chunk(event(token()) * 3 + event(last(3))) + END)])
    assert record.token_events == 3
    assert record.first_token_s == record.last_token_s
    assert (record.finished_s or 0) - (record.last_token_s or 0) > 0.35


@pytest.mark.alone
async def test_the_server_may_finish_its_response_before_the_client_hangs_up() -> None:
    script = [(0.0, http_head()), (0.01, chunk(event(token()))), (0.02, chunk(event(last(1)))), (0.1, END)]
    async with serve(script) as server:
        result = await load(server, requests=1, demand=asking(1))
        assert len(server.late_s) >= 5  # /metrics, then all four pieces
    record = result.records[0]
    assert record.status is RequestStatus.OK
    assert (record.finished_s or 9) - (record.last_token_s or 0) < 0.08


async def test_a_connection_that_stays_open_behind_the_last_event_is_not_waited_for() -> None:
    script = [(0.0, http_head() + chunk(event(token()) + event(last(1)))), (0.1, STALL)]
    record = await one(script, demand=asking(1))
    assert record.status is RequestStatus.OK


@pytest.mark.alone
async def test_failed_requests_do_not_make_the_counters_disagree() -> None:
    broken = [(0.0, http_head()), (0.01, chunk(event(token()))), (0.02, ABORT)]
    async with metered(2, broken) as server:
        result = await load(server, requests=10)
    assert not [code for code, _ in result.invalid_reasons if code == "CountersDisagree"]


@pytest.mark.alone
async def test_the_whole_run_adds_up_to_littles_law() -> None:
    async with serve(answer(first_s=0.2)) as server:
        result = await load(server, requests=40, rate=100.0)
    stated = sum((record.finished_s or 0) - (record.sent_s or 0) for record in result.records)
    assert result.in_flight_area_s == pytest.approx(stated, rel=0.02)


@pytest.mark.alone
async def test_requests_that_were_given_up_take_no_part_in_littles_law() -> None:
    def respond(received: Received) -> Script:
        return [(0.0, STALL)] if received.number % 2 else answer()

    async with serve(respond) as server:
        result = await load(server, requests=10, rate=100.0, timeout_s=1.0)
    assert sum(record.status is RequestStatus.UNFINISHED for record in result.records) == 5
    assert not [code for code, _ in result.invalid_reasons if code == "LittlesLaw"]


@pytest.mark.alone
async def test_tokens_in_the_window_count_whoever_asked_for_them() -> None:
    async with serve(answer(10, first_s=0.01, gap_s=0.02)) as server:
        result = await load(server, demand=asking(10), requests=100, warmup=50, rate=200.0)
    expected = 10 * 200.0 * result.window_s
    assert result.window_token_events == pytest.approx(expected, rel=0.25)


async def test_the_collector_rests_during_a_run_and_comes_back() -> None:
    enabled: list[bool] = []

    class Look(LoadObserver):
        def sent(self, index: int) -> None:
            enabled.append(gc.isenabled())

    async with serve(answer()) as server:
        await load(server, observer=Look())
    assert set(enabled) == {False}
    assert gc.isenabled()


async def test_the_same_seed_sends_the_same_bytes_and_another_seed_others() -> None:
    async def bodies(seed: int) -> list[bytes]:
        async with serve(answer()) as server:
            await load(server, requests=4, seed=seed)
            return [received.body for received in itertools.islice(generations(server), 4)]

    first, again, other = await bodies(1), await bodies(1), await bodies(2)
    assert first == again
    assert not set(first) & set(other)
