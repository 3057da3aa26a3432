"""Logging at debug level, told from the log or from the arguments, without a word of what was logged."""

from __future__ import annotations

import pytest

from slotune.diagnose.rules.logs import RULES
from slotune.llama.log_story import Line, Seen, Topic
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, pod, server, timings

PROMPT = "tell me about my private matters"


def test_a_debug_log_is_found_and_none_of_its_lines_is_quoted() -> None:
    lines = Seen(60_000, Line(12, PROMPT), Line(69_000, PROMPT))
    said = found(RULES, "SLT080", of(log=log({Topic.DEBUG_LINE: lines}, timings(), verbosity=5, lines=70_000)))
    assert "60,000 of 70,000 lines" in said.sentence
    assert "15.0 for each token" in said.sentence
    assert said.evidence[0].line == 12
    assert said.cost.speed_share == pytest.approx(60_000 * 20e-6 / 120)
    assert PROMPT not in str(said)


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
