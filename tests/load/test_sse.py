"""Wherever the network cuts a stream, the same events come out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.load import sse
from slotune.load.sse import EventSplitter, EventTooLongError

payloads = st.lists(
    st.text(alphabet=st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",))).map(str.encode),
    max_size=6,
)


def split(*reads: bytes) -> list[tuple[bytes, bytes]]:
    splitter = EventSplitter()
    return [event for read in reads for event in splitter.feed(read)]


@given(payloads, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.sampled_from([b"data: ", b"data:"]), st.data())
def test_every_cut_gives_the_same_events(datas: list[bytes], newline: bytes, field: bytes, data: st.DataObject) -> None:
    stream = b"".join(field + payload + newline + newline for payload in datas)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reads = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    want = [(b"", payload.removeprefix(b" ") if field == b"data:" else payload) for payload in datas]
    assert split(*reads) == want


@given(payloads.filter(bool))
def test_a_stream_byte_by_byte_gives_the_same_events(datas: list[bytes]) -> None:
    stream = b"".join(b"data: " + payload + b"\r\n\r\n" for payload in datas)
    assert split(*(bytes([byte]) for byte in stream)) == [(b"", payload) for payload in datas]


def test_pings_and_unknown_fields_are_no_events() -> None:
    assert split(b": ping\n\n", b":\n\n", b"id: 7\nretry: 10\n\n", b"data: x\n\n") == [(b"", b"x")]


def test_several_data_lines_are_one_event() -> None:
    assert split(b"data: {\ndata: }\n\n") == [(b"", b"{\n}")]


def test_several_events_in_one_read_come_in_order() -> None:
    assert split(b"data: 1\n\ndata: 2\n\n: ping\n\ndata: 3\n\n") == [(b"", b"1"), (b"", b"2"), (b"", b"3")]


def test_an_event_keeps_its_name_and_the_next_has_none() -> None:
    assert split(b"event: error\ndata: {}\n\ndata: x\n\n") == [(b"error", b"{}"), (b"", b"x")]


def test_the_error_field_of_older_servers_is_an_error_event() -> None:
    assert split(b'error: {"code":500}\n\n') == [(b"error", b'{"code":500}')]


def test_a_carriage_return_ends_its_line_before_the_line_feed_arrives() -> None:
    assert split(b"data: x\r\n\r") == [(b"", b"x")]
    assert split(b"data: x\r\n\r", b"\ndata: y\r\n\r\n") == [(b"", b"x"), (b"", b"y")]


def test_a_line_feed_that_arrives_late_does_not_end_the_event() -> None:
    assert split(b"data: {\r", b"\ndata: }\r", b"\n\r\n") == [(b"", b"{\n}")]


def test_a_name_that_arrived_before_its_data_is_kept() -> None:
    assert split(b"event: error\n", b"data: {}\n\n", b"data: x\n\n") == [(b"error", b"{}"), (b"", b"x")]


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    assert split(b"\xef\xbb\xbfdata: x\n\n") == [(b"", b"x")]


def test_an_event_without_its_blank_line_comes_at_the_end() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: x") == []
    assert splitter.end() == [(b"", b"x")]
    assert splitter.end() == []


def test_an_endless_event_is_refused_instead_of_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    splitter = EventSplitter()
    splitter.feed(b"data: xxxxxxxx\n" * 5)
    with pytest.raises(EventTooLongError, match="longer than 100 bytes"):
        splitter.feed(b"data: xxxxxxxx\n" * 8)
    with pytest.raises(EventTooLongError, match="longer than 100 bytes"):
        EventSplitter().feed(b"x" * 101)
