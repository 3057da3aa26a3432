"""Lines that are taken apart all at once are taken apart as each would be on its own."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.log_json import messages
from slotune.llama.log_json_forms import Form
from slotune.llama.log_prefixes import Prefixes
from slotune.llama.log_seams import Seams

HEADS = [b"", rb"(\d+) ", rb'\{"t":(\d+),"l":"(\w+)","m":"', rb"\[(\w+)\](?:[ \t]|$)"]
TAILS = [b"", rb'"\}', rb'\\n","t":"([^"\\\n]*)"\}']

TEXTS = st.text(st.sampled_from('a1 =\t"\\\x1bé{}'), max_size=8)
ALIKE = st.builds('{{"t":{},"l":"info","m":"{}\\n","t":"{}"}}'.format, st.integers(0, 99), TEXTS, TEXTS)
LINES = st.lists(
    st.one_of(
        ALIKE,
        TEXTS,
        st.builds("{} {}".format, st.integers(0, 99), TEXTS),
        st.builds('[a] {}"}}'.format, TEXTS),
        st.sampled_from(["", "[a]", '"}', '{"t":1,"l":"info","m":"x"}']),
    ),
    max_size=12,
)

SAID = st.text(st.sampled_from('ab "\\\x1b\té'), max_size=6)
"""What a message may say, with all that JSON escapes."""


@given(st.sampled_from(HEADS), st.sampled_from(TAILS), LINES)
def test_many_lines_are_taken_apart_as_each_on_its_own(head: bytes, tail: bytes, texts: list[str]) -> None:
    unlike = b'"\\\x1b' if tail else b""
    lines = [text.encode() for text in texts]
    alone = re.compile(head + rb"([^\n" + re.escape(unlike) + rb"]*)" + tail)
    matches = [alone.fullmatch(line) for line in lines]
    text_group = re.compile(head).groups

    found = Seams(head, tail, unlike=unlike).take_apart(lines)

    assert list(found.places) == [place for place, match in enumerate(matches) if match]
    assert list(found.rest) == [place for place, match in enumerate(matches) if not match]
    columns = [*found.groups[:text_group], found.texts, *found.groups[text_group:]]
    assert list(zip(*columns, strict=True)) == [match.groups() for match in matches if match]


@given(st.sampled_from(HEADS), st.sampled_from(TAILS), LINES)
def test_all_are_taken_at_once_where_all_are_alike_and_only_there(head: bytes, tail: bytes, texts: list[str]) -> None:
    seams = Seams(head, tail, unlike=b'"\\\x1b' if tail else b"")
    lines = [text.encode() for text in texts]
    some = seams.take_apart(lines)
    assert seams.take_all(lines) == (None if some.rest else some)


@pytest.mark.parametrize("keeper", ["llama-server", "Docker", "Fluent Bit"])
@given(said=st.lists(SAID, max_size=40))
def test_objects_tell_what_a_decoder_finds_in_them(keeper: str, said: list[str]) -> None:
    def document(number: int, text: str) -> dict[str, object]:
        if keeper == "Docker":
            return {"log": f"{text}\n", "stream": "stderr", "time": f"2026-11-30T04:00:{number:02}.5Z"}
        if keeper == "Fluent Bit":
            return {"date": 1790000000.5 + number, "log": text, "kubernetes": {"pod_name": "a"}}
        return {"type": "log", "time": 1000 * number, "level": ("info", "debug", "odd")[number % 3], "msg": f"{text}\n"}

    documents = [document(number, text) for number, text in enumerate(said)]
    lines = [json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode() for one in documents]
    letters = ("I ", "D ", "") if keeper == "llama-server" else ("",)
    forms: list[Form] = []
    for _ in range(2):  # the second time with what was learned the first time
        told = messages(lines, [None] * len(lines), forms)
        if told is None:
            assert not lines
            return
        assert told.texts == [f"{letters[place % len(letters)]}{text}".encode() for place, text in enumerate(said)]
        assert told.times == [
            number / 1000
            if keeper == "llama-server"
            else 1790000000.5 + number
            if keeper == "Fluent Bit"
            else f"2026-11-30T04:00:{number:02}.5Z".encode()
            for number in range(len(said))
        ]
        assert told.names == (dict.fromkeys(range(len(said)), "a") if keeper == "Fluent Bit" else {})


OURS = "0.01.{:03}.000 I slot      release: id  0 | task {} | stop processing: n_tokens = 9, truncated = 0"


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-30T04:00:{:02}.123456789Z stderr F ",
        "2026-11-30T04:00:{:02}.123456789Z ",
        "Nov 30 04:00:{:02} gpu-1 llama-server[12]: ",
        "llama-1  | ",
        "│ ",
        'time="2026-11-30T04:00:{:02}Z" level=info msg="',
    ],
)
@given(rest=st.lists(st.text(st.sampled_from('ab "\\|:é'), max_size=8), min_size=1, max_size=20))
def test_a_prefix_is_taken_off_many_lines_as_off_each_beside_one_that_has_none(prefix: str, rest: list[str]) -> None:
    prefixes = Prefixes()
    learned = [f"{prefix.format(number)}{OURS.format(number, number)}".encode() for number in range(40)]
    prefixes.look(learned)
    assert prefixes.any
    lines = [*learned, *(f"{prefix.format(place)}{text}".encode() for place, text in enumerate(rest))]

    at_once, one_by_one = lines.copy(), [*lines, b"none"]
    names, other_names = [""] * len(at_once), [""] * len(one_by_one)
    times: list[float | bytes | None] = [None] * len(at_once)
    other_times: list[float | bytes | None] = [None] * len(one_by_one)
    prefixes.take_off(at_once, names, times)
    prefixes.take_off(one_by_one, other_names, other_times)

    assert at_once == one_by_one[:-1]
    assert names == other_names[:-1]
    assert times == other_times[:-1]
    assert at_once[:40] != learned
