"""What counts as a token, how an answer ends, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import pytest

from bench.mock_server import chat, chat_usage, event, last, timings, token
from slotune.load import sse
from slotune.load.answer import Answer, describe_error
from slotune.load.records import RequestRecord, RequestStatus

ROLE = chat({"role": "assistant", "content": None})


def read(*events: object, asked: int = 3, exact: bool = True) -> RequestRecord:
    """Feed one event per second from second 1 on."""
    record = RequestRecord(0, 0, 0.0)
    answer = Answer(record, asked_tokens=asked, exact=exact)
    for now, payload in enumerate(events, start=1):
        answer.feed(event(payload), float(now))
    answer.end()
    return record


def test_times_and_counts_of_a_completion() -> None:
    record = read(token(), token(), token(), last(3))
    assert record.status is RequestStatus.OK
    assert (record.first_token_s, record.last_token_s, record.token_events) == (1.0, 3.0, 3)
    assert (record.output_tokens, record.prompt_tokens, record.cached_tokens) == (3, 500, 0)
    assert record.tpot_s == 1.0


def test_a_role_chunk_is_not_a_token() -> None:
    record = read(ROLE, chat({"content": "a"}), chat({"content": "b"}), chat({}, "length"), chat_usage(2), asked=2)
    assert record.status is RequestStatus.OK
    assert record.first_token_s == 2.0


def test_a_progress_chunk_is_not_a_token() -> None:
    progress = chat({"role": "assistant", "content": None}, prompt_progress={"total": 9, "processed": 3})
    record = read(progress, progress, ROLE, chat({"content": "a"}), chat({}, "length"), chat_usage(1), asked=1)
    assert record.first_token_s == 4.0
    assert record.token_events == 1


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    ],
    ids=["reasoning of llama-server", "reasoning of other servers", "tool calls"],
)
def test_a_token_on_any_channel_is_the_first_token(delta: dict[str, object]) -> None:
    record = read(ROLE, chat(delta), chat({"content": "a"}), chat({}, "length"), chat_usage(2), asked=2)
    assert (record.first_token_s, record.first_content_s) == (2.0, 3.0)


def test_an_answer_of_reasoning_alone_has_a_ttft_and_no_content() -> None:
    record = read(ROLE, chat({"reasoning_content": "hm"}), chat({}, "length"), chat_usage(1), asked=1)
    assert record.status is RequestStatus.OK
    assert (record.first_token_s, record.first_content_s) == (2.0, None)


def test_tokens_are_counted_by_the_server_and_not_by_events() -> None:
    record = read(token("a b c", (1, 2, 3)), token("d e f", (4, 5, 6)), last(6), asked=6)
    assert (record.token_events, record.output_tokens) == (2, 6)
    assert record.tpot_s == pytest.approx(1 / 5)


def test_usage_counts_where_there_are_no_timings() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 7}}
    assert read(chat({"content": "a"}), chat({}, "stop"), usage, "[DONE]", asked=9, exact=False).output_tokens == 7


def test_timings_win_over_usage_so_that_reasoning_is_not_added_twice() -> None:
    both = {"choices": [], "usage": {"completion_tokens": 9}, "timings": timings(5)}
    assert read(chat({"content": "a"}), chat({}, "length"), both, asked=5).output_tokens == 5


def test_a_token_whose_text_is_still_empty_is_a_token() -> None:
    assert read(token("", (7,)), token(), last(2), asked=2).first_token_s == 1.0


def test_the_last_event_of_a_completion_is_not_a_token() -> None:
    record = read(token(), last(1), asked=1)
    assert (record.last_token_s, record.token_events) == (1.0, 1)


def test_text_of_the_completions_endpoint_is_a_token() -> None:
    assert read({"choices": [{"text": "a", "finish_reason": None}]}, "[DONE]", exact=False).first_token_s == 1.0


def test_the_longest_gap_is_between_tokens_and_not_before_the_first() -> None:
    record = read(ROLE, ROLE, ROLE, chat({"content": "a"}), ROLE, chat({"content": "b"}), "[DONE]", asked=2)
    assert record.longest_gap_s == 2.0


def test_no_token_means_no_ttft_instead_of_a_ttft_of_zero() -> None:
    record = read(ROLE, chat({}, "stop"), chat_usage(0), "[DONE]")
    assert record.status is RequestStatus.NO_TOKENS
    assert record.ttft_s is None
    assert record.tpot_s is None


@pytest.mark.parametrize(
    "payload",
    [
        b'data: {"error":{"code":500,"message":"secret prompt","type":"server_error"}}\n\n',
        b'event: error\ndata: {"code":500,"message":"secret prompt","type":"server_error"}\n\n',
        b'error: {"code":500,"message":"secret prompt","type":"server_error"}\n\n',
    ],
    ids=["an error object", "an event called error", "the error field of older servers"],
)
def test_an_error_under_http_200_is_an_error(payload: bytes) -> None:
    record = RequestRecord(0, 0, 0.0)
    answer = Answer(record, asked_tokens=3, exact=True)
    answer.feed(event(token()), 1.0)
    answer.feed(payload, 2.0)
    assert answer.done
    answer.end()
    assert record.status is RequestStatus.STREAM_ERROR
    assert record.error == "500 server_error"
    assert record.first_token_s == 1.0


def test_an_event_that_is_no_json_breaks_the_stream() -> None:
    assert read(token(), "{", asked=1).status is RequestStatus.STREAM_ERROR


def test_a_stream_that_ends_without_its_last_event_is_broken() -> None:
    assert read(token(), token(), token()).status is RequestStatus.STREAM_ERROR


@pytest.mark.parametrize(
    ("events", "exact", "want"),
    [
        ([token(), last(3, truncated=True)], True, RequestStatus.TRUNCATED),
        ([token(), last(2)], True, RequestStatus.TRUNCATED),
        ([token(), last(2, stop_type="eos")], False, RequestStatus.OK),
        ([token(), last(2, stop_type="limit")], False, RequestStatus.TRUNCATED),
        ([chat({"content": "a"}), chat({}, "length"), chat_usage(2)], False, RequestStatus.TRUNCATED),
        ([chat({"content": "a"}), chat({}, "length"), chat_usage(3)], False, RequestStatus.OK),
        ([chat({"content": "a"}), chat({}, "stop"), chat_usage(2)], False, RequestStatus.OK),
        ([chat({"content": "a"}), chat({}, "stop"), chat_usage(2)], True, RequestStatus.TRUNCATED),
    ],
    ids=[
        "the server says truncated",
        "fewer tokens than ignore_eos must give",
        "the model stopped by itself",
        "a limit before the asked one is the context",
        "length in a chat before the asked one is the context",
        "length as asked",
        "a chat that stopped by itself",
        "a chat that stopped although it must not",
    ],
)
def test_truncation_is_told_from_a_natural_end(events: Sequence[object], exact: bool, want: RequestStatus) -> None:
    assert read(*events, asked=3, exact=exact).status is want


def test_a_last_event_without_its_blank_line_still_counts() -> None:
    record = RequestRecord(0, 0, 0.0)
    answer = Answer(record, asked_tokens=1, exact=True)
    answer.feed(event(token()) + event(last(1), end=b""), 1.0)
    answer.end()
    assert (record.status, record.output_tokens) == (RequestStatus.OK, 1)


def test_an_endless_event_breaks_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    record = RequestRecord(0, 0, 0.0)
    answer = Answer(record, asked_tokens=1, exact=True)
    assert answer.feed(b"data: " + b"x" * 200, 1.0) == 0
    assert answer.done
    answer.end()
    assert record.status is RequestStatus.STREAM_ERROR


def test_json_that_is_no_object_is_no_token() -> None:
    assert read([1, 2], 7, token(), last(1), asked=1).first_token_s == 3.0


def test_nothing_after_the_end_is_read() -> None:
    record = read(token(), last(1), token(), token(), asked=1)
    assert record.token_events == 1


@pytest.mark.parametrize(
    ("payload", "want"),
    [
        (
            {
                "error": {
                    "code": 400,
                    "type": "exceed_context_size_error",
                    "message": "x",
                    "n_prompt_tokens": 9,
                    "n_ctx": 4,
                }
            },
            "400 exceed_context_size_error n_prompt_tokens=9 n_ctx=4",
        ),
        ({"error": "my prompt"}, "an error event"),
        ({"error": {"type": "my secret prompt"}}, "an error event"),
        ([], "an error event"),
    ],
)
def test_an_error_is_described_without_words_that_may_be_a_prompt(payload: object, want: str) -> None:
    assert describe_error(payload) == want


def test_every_read_cut_gives_the_same_record() -> None:
    stream = b"".join(
        map(event, [ROLE, chat({"content": "a"}), chat({"content": "b"}), chat({}, "length"), chat_usage(2)])
    )
    for cut in range(len(stream)):
        record = RequestRecord(0, 0, 0.0)
        answer = Answer(record, asked_tokens=2, exact=True)
        answer.feed(stream[:cut], 1.0)
        answer.feed(stream[cut:], 1.0)
        answer.end()
        assert (record.status, record.token_events, record.output_tokens) == (RequestStatus.OK, 2, 2)


def test_the_mocks_events_are_valid_json() -> None:
    assert orjson.loads(event(token())[6:]) == token()
