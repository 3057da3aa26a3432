"""Logging at debug level, told from the log or from the arguments, without a word of what was logged."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Severity
from slotune.diagnose.rules.logs import RULES
from slotune.llama.log_story import Line, LogStory, Seen, Topic
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import (
    NOTHING,
    found,
    is_clear,
    is_undecided,
    log,
    metrics,
    of,
    pod,
    server,
    timings,
)

PROMPT = "tell me about my private matters"


def test_a_debug_log_is_found_and_none_of_its_lines_is_quoted() -> None:
    lines = Seen(60_000, Line(12, PROMPT), Line(69_000, PROMPT))
    requests = timings(most_busy_slots=1)
    said = found(RULES, "SLT080", of(log=log({Topic.DEBUG_LINE: lines}, requests, verbosity=5, lines=70_000)))
    assert "60,000 of 70,000 lines" in said.sentence
    assert "15.0 for each token" in said.sentence
    assert said.evidence[0].line == 12
    assert said.cost.speed_share == pytest.approx(60_000 * 20e-6 / 120)
    assert PROMPT not in str(said)


def debugged(at_once: int, *, rounds: int = 10, lines: int = 22, loading: int = 0) -> LogStory:
    """Requests of 0.1 s for the prompt and 3.9 s for 100 tokens, all in pairs of steps that ``at_once`` share."""
    text = ["build: 11434 (1af25fa1) with cc for x86_64-linux-gnu", *["0.00.000.500 D load: token"] * loading]
    text.append("srv  llama_server: model loaded")
    for turn in range(rounds):
        of_each = [f"id {slot:2d} | task {100 * turn + slot} |" for slot in range(at_once)]
        text += [f"slot launch_slot_: {of_it} processing task, is_child = 0" for of_it in of_each]
        text += ["0.01.000.000 D srv  update_slots: decoding batch"] * (lines * 100 * at_once)
        for of_it in of_each:
            text += [
                f"slot print_timing: {of_it} prompt eval time = 100.00 ms / 200 tokens",
                f"slot print_timing: {of_it}        eval time = 3900.00 ms / 100 tokens",
                f"slot      release: {of_it} stop processing: n_tokens = 299, truncated = 0",
            ]
    reader = LogReader("server.log")
    reader.feed("\n".join([*text, ""]).encode())
    (story,) = reader.finish()
    return story


def test_lines_of_four_at_a_time_are_held_against_the_time_that_the_four_share() -> None:
    """10 times 4 s of work, and 88,000 lines of 20 us in them: not 10 times 16 s, as the four took together."""
    four = server(metrics=metrics(n_busy_slots_per_decode=4.0, n_decode_total=1000))
    share = found(RULES, "SLT080", of(log=debugged(4), server=four)).cost.speed_share
    assert share == pytest.approx(88_000 * 20e-6 / 40)
    assert found(RULES, "SLT080", of(log=debugged(1))).cost.speed_share == pytest.approx(22_000 * 20e-6 / 40)


def test_what_lines_cost_is_not_counted_where_nobody_says_how_many_shared_a_step() -> None:
    assert found(RULES, "SLT080", of(log=debugged(4))).cost.speed_share is None


def test_lines_that_no_answer_is_known_for_do_not_count_as_its_cost() -> None:
    share = found(RULES, "SLT080", of(log=debugged(1, rounds=1, loading=50_000))).cost.speed_share
    assert share == pytest.approx(30 * 100 * 20e-6 / 4)


def test_a_few_such_lines_in_a_log_of_another_level_are_no_alarm() -> None:
    lines = Seen(13, Line(12, PROMPT), Line(90, PROMPT))
    found(RULES, "SLT080", of(log=log({Topic.DEBUG_LINE: lines}, timings(), verbosity=5)), Severity.INFO)
    found(RULES, "SLT080", of(log=log({Topic.DEBUG_LINE: lines}, verbosity=5)))


@pytest.mark.parametrize("flags", [("-v",), ("--verbose",), ("-lv", "5"), ("--verbosity", "9")])
def test_arguments_alone_tell_of_debugging(flags: tuple[str, ...]) -> None:
    found(RULES, "SLT080", of(pod=pod(*flags)))


def test_a_variable_tells_of_debugging() -> None:
    said = found(RULES, "SLT080", of(pod=pod(env={"LLAMA_ARG_LOG_VERBOSITY": "5"})))
    assert str(said.evidence[0]).endswith("LLAMA_ARG_LOG_VERBOSITY=5")


@pytest.mark.parametrize("verbosity", [1, 3, 4])
def test_a_log_of_less_than_debugging_is_clear(verbosity: int) -> None:
    assert is_clear(RULES, "SLT080", of(log=log(requests=timings(), verbosity=verbosity)))


def test_default_and_lower_levels_in_the_arguments_are_clear() -> None:
    assert is_clear(RULES, "SLT080", of(pod=pod()))
    assert is_clear(RULES, "SLT080", of(pod=pod("-lv", "4")))


def test_logging_is_undecided_from_an_address_alone() -> None:
    assert is_undecided(RULES, "SLT080", NOTHING)
    assert is_undecided(RULES, "SLT080", of(server=server()))
    assert is_undecided(RULES, "SLT080", of(log=log(verbosity=None)))
