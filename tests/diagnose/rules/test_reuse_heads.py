"""Where prompts stop being alike is told, and is no alarm: unrelated ones share a template's first words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slotune.diagnose.finding import Confidence, Severity
from slotune.diagnose.rules.reuse import RULES
from slotune.diagnose.rules.reuse_heads import common_head
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Line, LogStory, Partings, Topic
from slotune.llama.log_stream import LogReader
from slotune.llama.server_answers import Props
from slotune.llama.template_facts import template_facts
from tests.diagnose.rules.building import found, is_clear, log, of, server, timings

COMPARED = (
    "0.04.00{at}.000 I srv          load:    - prompt with length     {length}, lcp =      {shared}, f_keep = 0.1\n"
)


def read(*pairs: tuple[int, int]) -> LogStory:
    """The story of a log with a comparison for each (length, tokens in common)."""
    reader = LogReader("server.log")
    for at, (length, shared) in enumerate(pairs):
        reader.feed(COMPARED.format(at=at, length=length, shared=shared).encode())
    (story,) = reader.finish()
    return story


def with_comparisons(*pairs: tuple[int, int]) -> Symptoms:
    seen = dict(read(*pairs).seen)
    return of(log=log({Topic.SLOT_BY_LRU: 40, **seen}, timings(40)))


def test_prompts_that_differ_at_one_place_are_told_where_to_look() -> None:
    said = found(RULES, "SLT040", with_comparisons(*[(142, 18), (323, 19)] * 5), Severity.INFO)
    assert said.sentence.endswith("differ from a kept one after 18 to 19 tokens")
    assert said.first is not None
    assert "behind the first 18 to 19" in said.first
    assert "nothing is wrong" in said.first
    assert "LLAMA_SERVER_SLOTS_DEBUG=1" in said.first, "which makes it sure"
    assert "lcp =      18" in said.evidence[1].text
    assert said.confidence is Confidence.POSSIBLE, "a template before unrelated prompts looks just the same"


@pytest.mark.parametrize(
    "pairs",
    [
        [(142, 18)] * 7,
        [(142, 0)] * 10,
        [(142, 18)] * 9 + [(323, 60)],
        [(142, 120)] * 10,
        [(27, 3)] * 10,
    ],
    ids=["few", "nothing in common", "another place", "nearly all", "short prompts"],
)
def test_what_is_no_place_gets_no_number(pairs: list[tuple[int, int]]) -> None:
    assert common_head(read(*pairs)) is None
    assert "differ from" not in found(RULES, "SLT040", with_comparisons(*pairs), Severity.INFO).sentence


LINE = Line(9, "slot update_slots: id  0 | task 7 | new: … (a time or an id differs from the old one)")


def with_partings(count: int, changing: int) -> Symptoms:
    parted = Partings(count, changing, LINE if changing else None)
    return of(log=replace(log({Topic.SLOT_BY_LRU: 40}, timings(40)), partings=parted))


def test_a_time_that_the_server_shows_where_prompts_part_is_an_alarm() -> None:
    said = found(RULES, "SLT040", with_partings(40, 38))
    assert "38 of 40 prompts part from the one before within a time or an id" in said.sentence
    assert said.evidence[0].line == 9
    assert said.first is not None
    assert said.first.startswith("Put the time or the id at the end of the prompt")


@pytest.mark.parametrize(("count", "changing"), [(2, 2), (40, 12), (40, 0)], ids=["two alone", "few of many", "none"])
def test_a_time_in_a_few_prompts_is_no_alarm(count: int, changing: int) -> None:
    found(RULES, "SLT040", with_partings(count, changing), Severity.INFO)


def test_a_template_that_writes_the_time_is_told_once() -> None:
    template = template_facts("{{ strftime_now('%H:%M') }}")
    props = Props(4, 4096, "m.gguf", "m", "b11549", True, True, template=template)
    symptoms = of(log=with_partings(40, 38).log, server=server(props=props))
    assert is_clear(RULES, "SLT040", symptoms)
    found(RULES, "SLT048", symptoms)


def test_a_log_that_compares_nothing_tells_no_place() -> None:
    assert common_head(None) is None
    assert common_head(log()) is None
