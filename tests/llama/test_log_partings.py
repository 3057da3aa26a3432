"""Whether prompts part within a time or an id, told from words of theirs that go no further."""

from __future__ import annotations

import pytest

from slotune.llama.log_story import Partings
from slotune.llama.log_stream import LogReader

SECRET = "the patient"


def parted(*pairs: tuple[str, str], slot: int = 0) -> Partings | None:
    """Of a log with these two lines, in turns."""
    reader = LogReader("server.log")
    for number, (old, new) in enumerate(pairs):
        head = f"0.04.{number:02d}.000.000 W slot update_slots: id {slot:2d} | task {number} | "
        reader.feed(f"{head}old: ... {old}\n{head}new: ... {new}\n{head}   4   5   6\n".encode())
    (story,) = reader.finish()
    assert SECRET not in repr(story)
    return story.partings


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(" at 12:0 | 3:45 UTC", " at 12:0 | 4:10 UTC", id="in a time"),
        pytest.param("now:  | 9:03", "now:  | 14:50", id="before a time"),
        pytest.param("T09:59: | 58Z, " + SECRET, "T09:59: | 59Z, " + SECRET, id="in its seconds"),
        pytest.param("ts=17645 | 00001 ", "ts=17645 | 13377 ", id="in seconds since 1970"),
        pytest.param("id  | 1b9d6bcd-bbfd-4b2d", "id  | 9f8e7d6c-aaaa-4b2d", id="in a UUID"),
    ],
)
def test_a_time_or_an_id_where_two_prompts_part_is_counted(old: str, new: str) -> None:
    said = parted((old, new), (old, new))
    assert said is not None
    assert (said.count, said.changing) == (2, 2)
    assert said.line is not None
    assert said.line.text.startswith("slot update_slots: id  0 | task 1 |")
    assert said.line.number == 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("helpful assistant | \t" + SECRET, "helpful assistant |  Paris", id="words"),
        pytest.param("at 12:03. Is | it warm", "at 12:03. Is | there tea", id="words behind the same time"),
        pytest.param("see you  | at 12:03", "see you  | at 12:09", id="a time further on"),
        pytest.param("room 1 | 2", "room 1 | 3", id="a number"),
        pytest.param("at 12:0 | 3", "at 12:0 | clock", id="a time in one of them"),
        pytest.param("a | 12:03", "a | 1764500001", id="two kinds"),
    ],
)
def test_other_words_there_are_none(old: str, new: str) -> None:
    said = parted((old, new))
    assert said is not None
    assert (said.count, said.changing, said.line) == (1, 0, None)


def test_the_lines_of_a_real_server_are_read() -> None:
    """Build 11549 with LLAMA_SERVER_SLOTS_N_DIFF=8; made-up prompts with the time of day behind their first words."""
    reader = LogReader("server.log")
    reader.feed(b"""\
0.01.534.048 W slot   operator(): id  0 | task 21 | old: ... t is 11: | 22:27 utc
0.01.534.111 W slot   operator(): id  0 | task 21 | new: ... t is 11: | 51:34 utc
0.01.534.128 W slot   operator(): id  0 | task 21 |      343     259     332     342     259     276     276     285
0.01.828.370 W slot   operator(): id  0 | task 30 | old: ...  it is 1 | 1:51:34 ut
0.01.828.370 W slot   operator(): id  0 | task 30 | new: ...  it is 1 | 2:20:41 ut
""")
    (story,) = reader.finish()
    assert story.partings is not None
    assert (story.partings.count, story.partings.changing) == (2, 2)


def test_half_a_pair_does_not_count() -> None:
    reader = LogReader("server.log")
    reader.feed(b"0.04.00.000.000 W slot update_slots: id  0 | task 1 | old: ... at 12:0 | 3\n")
    reader.feed(b"0.04.00.000.000 W slot update_slots: id  1 | task 2 | new: ... at 12:0 | 4\n")
    (story,) = reader.finish()
    assert story.partings is None
