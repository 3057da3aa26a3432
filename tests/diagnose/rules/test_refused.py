"""Requests that get an error for what they ask for (ggml-org/llama.cpp#26596, #25895): only the log tells."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Severity
from slotune.diagnose.rules.health import RULES
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import NOTHING, found, is_clear, is_undecided, log, of, timings

START = "0.00.001.000 I srv    load_model: loading model 'm.gguf'\n0.00.002.000 I srv  llama_server: model loaded\n"
REFUSED = "0.02.100.300 E srv    send_error: task id = {task}, error: {words}\n"
GRAMMAR = "Failed to initialize samplers: failed to parse grammar"
ANSWERED = """0.01.004.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0
0.01.990.000 I slot print_timing: id  0 | task 1 | prompt eval time =     700.00 ms /   100 tokens
0.01.990.001 I slot print_timing: id  0 | task 1 |        eval time =     290.00 ms /    20 tokens
0.01.990.002 I slot      release: id  0 | task 1 | stop processing: n_tokens = 119, truncated = 0
"""


def read(text: str) -> LogStory:
    reader = LogReader("server.log")
    reader.feed((START + text).encode())
    (story,) = reader.finish()
    return story


def test_requests_whose_grammar_cannot_be_made_are_found_with_what_to_change() -> None:
    story = read(REFUSED.format(task=2, words=GRAMMAR) * 2 + 6 * ANSWERED)
    said = found(RULES, "SLT118", of(log=story))
    assert said.sentence == f"2 requests got an error beside 6 answers: {GRAMMAR}"
    assert said.cost.refused_share == pytest.approx(0.25)
    assert "maxLength" in (said.first or "")


def test_each_reason_is_told_once_in_the_servers_own_words() -> None:
    other = "input content should be a string or an array of strings"
    story = read(REFUSED.format(task=2, words=GRAMMAR) + REFUSED.format(task=3, words=other))
    said = found(RULES, "SLT118", of(log=story))
    assert said.sentence == f"2 requests got an error beside 0 answers: {other}; {GRAMMAR}"
    assert said.cost.refused_share is None


def test_one_in_a_thousand_is_a_clients_mistake() -> None:
    found(RULES, "SLT118", of(log=read(REFUSED.format(task=2, words=GRAMMAR) + 200 * ANSWERED)), Severity.INFO)


@pytest.mark.parametrize(
    "words",
    [
        "request (900 tokens) exceeds the available context size (512 tokens), try increasing it",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        "input (574 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
        "input is too large to process. increase the physical batch size",
        "input (9000 tokens) is larger than the max context size (8192 tokens). skipping",
        "Context size has been exceeded.",
        "Compute error.",
        "Invalid input batch.",
    ],
)
def test_what_another_finding_is_about_is_told_once(words: str) -> None:
    story = read(ANSWERED + REFUSED.format(task=2, words=words))
    assert is_clear(RULES, "SLT118", of(log=story))


def test_it_is_clear_or_open_where_nothing_was_refused() -> None:
    assert is_clear(RULES, "SLT118", of(log=log(requests=timings())))
    assert is_undecided(RULES, "SLT118", of(log=log(starts=0)))
    assert is_undecided(RULES, "SLT118", NOTHING)
