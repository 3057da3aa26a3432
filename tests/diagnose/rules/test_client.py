"""Waits before the server: one connection, a proxy that buffers, connections that are made anew."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Severity
from slotune.diagnose.rules.client import RULES
from slotune.diagnose.rules.reuse import RULES as REUSE_RULES
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import (
    NOTHING,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    probe,
    server,
    timings,
)

ALONE = timings(40, most_busy_slots=1)
"""Three seconds of work each, 120 in all."""


def test_requests_back_to_back_and_never_two_at_once_are_worth_a_word() -> None:
    said = found(RULES, "SLT095", of(log=log(requests=ALONE, seconds=130.0)), Severity.INFO)
    assert "40 requests came one after the other" in said.sentence
    assert "4 slots" in said.sentence


def back_to_back(*, pinned: bool) -> LogStory:
    """Twelve requests without a pause, never two at once."""
    lines = [
        "0.00.000.100 I build: 11434 (1af25fa1) with cc for x86_64-linux-gnu",
        "0.00.001.000 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 512, kv_unified = 'true'",
        "0.00.002.000 I srv          init: model loaded",
    ]
    for number in range(12):
        slot = f"id  0 | task {10 * number} |"
        if not pinned:
            lines.append(
                f"0.{number:02}.003.000 I slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = 1"
            )
        lines += [
            f"0.{number:02}.004.000 I slot launch_slot_: {slot} processing task, is_child = 0",
            f"0.{number:02}.990.000 I slot print_timing: {slot} prompt eval time =     700.00 ms /   100 tokens",
            f"0.{number:02}.990.001 I slot print_timing: {slot}        eval time =     290.00 ms /    20 tokens",
            f"0.{number:02}.990.002 I slot      release: {slot} stop processing: n_tokens = 119, truncated = 0",
        ]
    reader = LogReader("server.log")
    reader.feed("\n".join([*lines, ""]).encode())
    (story,) = reader.finish()
    return story


def test_requests_that_all_name_one_slot_are_not_put_down_to_one_connection() -> None:
    found(RULES, "SLT095", of(log=back_to_back(pinned=False)), Severity.INFO)
    pinned = of(log=back_to_back(pinned=True))
    found(REUSE_RULES, "SLT044", pinned, Severity.INFO)
    assert is_clear(RULES, "SLT095", pinned)


def test_people_who_come_now_and_then_are_clear() -> None:
    assert is_clear(RULES, "SLT095", of(log=log(requests=ALONE, seconds=600.0)))


def test_requests_beside_each_other_and_a_single_slot_are_clear() -> None:
    assert is_clear(RULES, "SLT095", of(log=log(requests=timings(most_busy_slots=2), seconds=90.0)))
    assert is_clear(RULES, "SLT095", of(log=log(requests=ALONE, seconds=130.0, facts={"slots": 1})))
    busy = server(metrics=metrics(n_busy_slots_per_decode=2.5, n_decode_total=500))
    assert is_clear(RULES, "SLT095", of(server=busy))


def test_connections_are_undecided_without_many_requests_and_their_time() -> None:
    assert is_undecided(RULES, "SLT095", NOTHING)
    assert is_undecided(RULES, "SLT095", of(log=log(requests=ALONE, seconds=None)))
    assert is_undecided(RULES, "SLT095", of(log=log(requests=timings(3, most_busy_slots=1), seconds=10.0)))
    one_by_one = server(metrics=metrics(n_busy_slots_per_decode=1.0, n_decode_total=500))
    assert is_undecided(RULES, "SLT095", of(server=one_by_one))


def test_an_answer_that_comes_in_one_piece_was_held_back() -> None:
    said = found(RULES, "SLT096", of(probe=probe(stream_s=0.01, stream_made_s=1.2, overhead_s=1.2)))
    assert "took the server 1.20 s came in within 0.01 s" in said.sentence
    assert said.cost.ttft_s == pytest.approx(1.19)
    assert said.cost.ttft_share == pytest.approx(1.19 / 3.2)  # 1.2 s before the prompt is read, 2 s to read it


def test_tokens_are_not_held_back_for_longer_than_the_first_of_them_took() -> None:
    said = found(RULES, "SLT096", of(probe=probe(stream_s=0.01, stream_made_s=1.2, overhead_s=0.5)))
    assert said.cost.ttft_s == pytest.approx(0.5)


def test_an_answer_that_streams_is_clear() -> None:
    assert is_clear(RULES, "SLT096", of(probe=probe(stream_s=1.15, stream_made_s=1.2)))


@pytest.mark.parametrize("given", [{}, {"stream_s": 0.001, "stream_made_s": 0.05}], ids=["not seen", "too short"])
def test_buffering_is_undecided_without_an_answer_of_some_length(given: dict[str, float]) -> None:
    assert is_undecided(RULES, "SLT096", of(probe=probe(**given)))
    assert is_undecided(RULES, "SLT096", NOTHING)


def test_connecting_that_takes_a_part_of_the_wait_is_found() -> None:
    """A probe's requests connect anew, so that is in the 0.42 s before the prompt is read, which takes 0.4 s."""
    said = found(RULES, "SLT097", of(probe=probe(connect_s=0.4, overhead_s=0.42, prefill_tokens_per_s=1000.0)))
    assert said.cost.ttft_share == pytest.approx(0.4 / 0.82)
    assert "takes 0.40 s of the 0.82 s" in said.sentence


@pytest.mark.parametrize("connect_s", [0.0003, 0.05, 0.12], ids=["here", "in the country", "before a long prompt"])
def test_connecting_that_is_quick_or_hardly_counts_is_clear(connect_s: float) -> None:
    assert is_clear(RULES, "SLT097", of(probe=probe(connect_s=connect_s)))


def test_connecting_is_undecided_without_a_probe() -> None:
    assert is_undecided(RULES, "SLT097", NOTHING)
    assert is_undecided(RULES, "SLT097", of(probe=probe(connect_s=None)))
