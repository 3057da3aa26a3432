"""Old builds say what a slot kept of a prompt: where none ever keeps any, the prompt cache is off."""

from __future__ import annotations

import pytest

from slotune.diagnose.finding import Confidence, Finding, Severity
from slotune.diagnose.rules.reuse import RULES
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader
from tests.diagnose.rules.building import ask, found, is_clear, of, pod

RELEASED = (
    'INFO [            update_slots] slot released | tid="7" timestamp=1748127{0} id_slot=0 id_task={0} n_ctx=32768 '
    "n_past=648 n_system_tokens=0 n_cache_tokens={1} truncated=false\n"
)
OLD_REQUEST = (
    'INFO [   launch_slot_with_task] slot is processing task | tid="7" timestamp=1748127{0} id_slot=0 id_task={0}\n'
    "INFO [           print_timings] prompt eval time     =    6383.32 ms /   536 tokens (   11.91 ms per token,    "
    '83.97 tokens per second) | tid="7" timestamp=1748127{0} id_slot=0 id_task={0} n_prompt_tokens_processed=536\n'
    "INFO [           print_timings] generation eval time =   12977.77 ms /   113 runs   (  114.85 ms per token,     "
    '8.71 tokens per second) | tid="7" timestamp=1748127{0} id_slot=0 id_task={0} n_decoded=113\n'
) + RELEASED


def old_log(*kept: int, request: str = OLD_REQUEST) -> LogStory:
    """As builds until September 2024 and ik_llama.cpp write it: requests after which a slot kept so many tokens."""
    reader = LogReader("server.log")
    reader.feed("".join(request.format(200 + number, one) for number, one in enumerate(kept)).encode())
    (story,) = reader.finish()
    return story


def test_slots_that_keep_nothing_of_any_prompt_have_no_prompt_cache() -> None:
    story = old_log(0, 0, 0, 0)
    said = found(RULES, "SLT047", of(log=story), Severity.INFO)

    assert "after all of 4 requests their slot kept nothing" in said.sentence
    assert said.confidence is Confidence.LIKELY
    assert (said.evidence[0].line, "n_cache_tokens=0" in said.evidence[0].text) == (16, True)
    assert said.first is not None
    assert said.first.startswith("Send cache_prompt: true")
    assert is_clear(RULES, "SLT040", of(log=story)), "it has this one's cause"
    stated = found(RULES, "SLT047", of(log=story, pod=pod("--no-cache-prompt")), Severity.INFO)
    assert stated.first is None, "the argument that is stated has its usual cure"


@pytest.mark.parametrize(
    "story",
    [old_log(0, 0), old_log(0, 0, 0, 648), old_log(648, 648, 648), old_log(0, 0, 0, 0, request=RELEASED)],
    ids=["two requests", "one was kept", "all were kept", "no text is made"],
)
def test_slots_that_keep_a_prompt_or_may_be_by_chance_without_one_are_no_finding(story: LogStory) -> None:
    assert not isinstance(ask(RULES, "SLT047", of(log=story)), Finding)
