"""Two servers' lines between each other are nobody's log; a restart, a sleep, a crash loop or a hole is one's."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.llama.log_lines import LogFacts
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

LOGS = {
    path.stem: path.read_bytes().splitlines(keepends=True) for path in (Path(__file__).parent / "logs").glob("*.log")
}
WORKING = ["served_three", "served_four", "served_five", "old_b3561", "old_b4450"]
"""Captured at the three verbosities, and as builds of 2024 write: each comes up and answers."""
LATER = 3_600_000
"""Milliseconds."""


def only(lines: Sequence[bytes]) -> LogStory:
    reader = LogReader("server.log")
    reader.feed(b"".join(lines))
    (story,) = reader.finish()
    return story


def mixed(logs: Sequence[Sequence[bytes]], chance: random.Random) -> list[bytes]:
    """Their lines between each other, each log's own in order."""
    waiting = [list(log)[::-1] for log in logs]
    out = []
    while left := [log for log in waiting if log]:
        out.append(chance.choices(left, weights=[len(log) for log in left])[0].pop())
    return out


def request(task: int, slot: int, at_ms: int) -> list[bytes]:
    stamp = f"{at_ms // 60_000}.{at_ms // 1000 % 60:02d}.{at_ms % 1000:03d}.000"
    head = f"id  {slot} | task {task} | "
    speed = "1.00 ms per token,  1000.00 tokens per second"
    lines = [
        f"{stamp} I slot launch_slot_: {head}processing task, is_child = 0\n",
        f"{stamp} I slot print_timing: {head}prompt eval time =     100.00 ms /   100 tokens (    {speed})\n",
        f"{stamp} I slot print_timing: {head}       eval time =     100.00 ms /    11 tokens (    {speed})\n",
        f"{stamp} I slot      release: {head}stop processing: n_tokens = 110, truncated = 0\n",
    ]
    return [line.encode() for line in lines]


@pytest.mark.parametrize("first", WORKING)
@pytest.mark.parametrize("second", WORKING)
def test_two_logs_that_are_mixed_from_their_start_on_are_told(first: str, second: str) -> None:
    told = [only(mixed([LOGS[first], LOGS[second]], random.Random(seed))).mixed for seed in range(10)]

    assert sum(told) >= 9


@given(st.integers(0, 2**32), st.integers(2, 4))
@settings(max_examples=25, deadline=None)
def test_servers_that_are_mixed_while_they_work_are_told(seed: int, servers: int) -> None:
    chance = random.Random(seed)
    logs = []
    for _ in range(servers):
        log: list[bytes] = []
        for task in range(60):
            log += request(task, chance.choice((0, 0, 1)), 1000 * task)
        logs.append(log)

    assert only(mixed(logs, chance)).mixed


def test_servers_that_work_in_turn_are_told_by_their_clocks() -> None:
    lines = [
        line for task in range(30) for line in (*request(task, 0, 1000 * task), *request(task, 0, LATER + 1000 * task))
    ]

    assert only(lines).mixed


def test_of_mixed_lines_nothing_is_told_but_the_cure() -> None:
    lines = mixed([LOGS["served_four"], LOGS["served_three"]], random.Random(3))
    story = only(lines)

    assert story.mixed
    assert (story.facts, story.requests, dict(story.seen), story.failure, story.starts) == (
        LogFacts(),
        None,
        {},
        None,
        0,
    )
    assert (story.lines, story.verbosity) == (len(lines), None)
    assert "`kubectl logs --prefix -l …`" in story.notes[0]


def test_a_line_that_is_there_twice_each_time_counts_for_nothing() -> None:
    story = only([line for line in LOGS["served_four"] for _ in range(2)])

    assert story.mixed
    assert "each line is there twice" in story.notes[0]


def test_a_log_that_is_mixed_stays_so_after_a_restart() -> None:
    work = mixed([[line for task in range(40) for line in request(task, 0, task)] for _ in range(2)], random.Random(1))

    assert only([*LOGS["served_three"], *work, *LOGS["served_three"]]).mixed


# One server


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_restarts_wherever_the_process_died_are_one_server_and_so_are_updates(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(LOGS)), min_size=1, max_size=4))
    lines: list[bytes] = []
    for name in names:
        log = LOGS[name]
        for died_at in data.draw(st.lists(st.integers(1, len(log)), max_size=4)):
            lines += log[:died_at]
        lines += log

    assert not only(lines).mixed


@pytest.mark.parametrize("name", sorted(LOGS))
def test_a_crash_loop_is_one_server(name: str) -> None:
    story = only(LOGS[name] * 9)

    assert not story.mixed
    assert story.starts == 9


@pytest.mark.parametrize("words", [b"model loaded", b"n_slots"])
def test_a_build_that_says_one_thing_twice_is_one_server(words: bytes) -> None:
    lines = [line for line in LOGS["served_four"] for _ in range(2 if words in line else 1)]
    story = only(lines * 4)

    assert not story.mixed
    assert story.starts == 4


@pytest.mark.parametrize("name", WORKING[:3])
@pytest.mark.parametrize("says", [True, False])
def test_a_server_that_sleeps_loads_its_model_again(name: str, *, says: bool) -> None:
    log = [re.sub(rb"^\d+\.[\d.]+ ", b"", line) for line in LOGS[name]]
    first = next(place for place, line in enumerate(log) if b"loading model" in line)
    up = next(place for place, line in enumerate(log) if b"model loaded" in line)
    sleeps = [b"I srv  handle_sleep: server is entering sleeping state\n"] if says else []
    again = [line for _ in range(5) for line in (*sleeps, *log[first : up + 1])]
    story = only([*log[: up + 1], *again, *request(900, 0, 60_000)])

    assert not story.mixed
    assert story.starts == 1
    assert story.requests is not None


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_rotated_pieces_in_order_with_a_hole_now_and_then_are_one_server(seed: int) -> None:
    chance = random.Random(seed)
    lines = list(LOGS["served_three"][:12])
    running: dict[int, int] = {}
    for task in range(2000):
        slot = task % 4
        running[slot] = task
        lines += request(task, slot, 1000 + 40 * task)
    for _ in range(3):
        place = chance.randrange(20, len(lines) - 200)
        del lines[place : place + chance.randrange(1, 150)]

    assert not only(lines).mixed


def test_a_server_whose_threads_write_late_is_one_server() -> None:
    chance = random.Random(2)
    times = [40 * task + chance.randrange(900) for task in range(500)]

    assert not only([line for task, at in enumerate(times) for line in request(task, task % 4, at)]).mixed
