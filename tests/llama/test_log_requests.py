"""Requests of a log are added up: their times, what came from the cache, how many were at work at one time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.log_story import Topic
from slotune.llama.quantiles import Quantiles
from tests.llama.logged import content, only, request


def test_requests_are_added_up() -> None:
    log = request(1, prompt=100) + request(2, prompt=400, cached=50) + request(3, prompt=20, cached=480, predicted=1)
    timings = only(log.encode()).requests

    assert timings is not None
    assert (timings.requests, timings.prompt_tokens, timings.predicted_tokens) == (3, 520, 23)
    assert (timings.prompt_ms, timings.predicted_ms) == (520.0, 200.0)
    assert timings.cached_tokens == 530
    assert timings.prefill_tokens_per_s == pytest.approx((1000, 1000, 1000), rel=0.01), (
        "the short prompt does not count"
    )
    assert timings.decode_tokens_per_s == pytest.approx((100, 100, 100), rel=0.01), "one token has no speed"
    assert timings.example is not None
    assert timings.example.number == 8
    assert "400 tokens" in timings.example.text


def test_the_most_busy_slots_are_those_at_one_time() -> None:
    start = "I slot launch_slot_: id  {} | task {} | processing task, is_child = 0\n"
    stop = "I slot      release: id  {} | task {} | stop processing: n_tokens = 9, truncated = 0\n"
    log = start.format(0, 1) + start.format(1, 2) + stop.format(1, 2) + start.format(2, 4)
    story = only((log + request(5, slot=3)).encode())

    assert story.requests is not None
    assert story.requests.most_busy_slots == 3


def test_an_older_build_says_the_same_on_lines_without_a_slot() -> None:
    story = only(content("cuda_old_build"))
    timings = story.requests

    assert (story.build, story.starts, story.facts.layers_offloaded) == (8586, 1, 33)
    assert timings is not None
    assert (timings.requests, timings.prompt_tokens, timings.cached_tokens, timings.most_busy_slots) == (1, 2048, 0, 1)
    assert timings.prefill_tokens_per_s == pytest.approx((5000, 5000, 5000), rel=0.01)


def test_drafts_are_added_up() -> None:
    head = "I slot print_timing: id  0 | task 1 | "
    line = f"{head}draft acceptance = 0.50000 (   20 accepted /    40 generated), mean len =  2.00\n"
    timings = only((request(1) + line * 2).encode()).requests

    assert timings is not None
    assert (timings.accepted_tokens, timings.drafted_tokens) == (40, 80)


@pytest.mark.parametrize("part", ["prompt eval time = ", "       eval time = "])
def test_a_request_whose_time_is_no_number_is_left_out_and_said_so(part: str) -> None:
    odd = re.sub(re.escape(part) + r" *[\d.]+ ms", part + "       nan ms", request(2))
    story = only((request(1) + odd + request(3)).encode())
    assert story.requests is not None
    assert (story.requests.requests, story.requests.prompt_tokens) == (2, 200)
    (note,) = story.notes
    assert note.startswith("1 line has a time that can't be read (nan, say)")
    assert not only(request(1).encode()).notes


def test_a_context_shift_says_nothing_about_the_cache() -> None:
    shifted = request(1, prompt=100, cached=0).replace("truncated = 0", "truncated = 1")
    story = only(shifted.encode())

    assert story.requests is not None
    assert story.requests.cached_tokens is None
    assert story.count(Topic.TRUNCATED) == 1


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=200))
def test_quantiles_are_within_a_percent_of_a_value_that_was_counted(values: list[float]) -> None:
    quantiles = Quantiles()
    quantiles.add(values[:7])
    quantiles.add([*values[7:], 0.0, -1.0, float("inf"), float("nan")])
    ordered = sorted(values)
    found = quantiles.at((0.1, 0.5, 0.9))

    assert found is not None
    for share, got in zip((0.1, 0.5, 0.9), found, strict=True):
        assert got == pytest.approx(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], rel=0.02)
