"""Prompts of a file share what they share: a replay neither adds reuse nor takes it away."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from slotune.load.demand import Prompt
from slotune.load.sharing import marked, shared_lengths

texts = st.lists(st.text(alphabet="ab", max_size=8), max_size=10)


def beginning(word: str, other: str) -> int:
    """Count equal characters the slow, obvious way."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False))))


@given(texts)
def test_the_shared_length_is_the_longest_beginning_in_common_with_any_other(words: list[str]) -> None:
    want = [
        max((beginning(word, other) for at, other in enumerate(words) if at != number), default=0)
        for number, word in enumerate(words)
    ]
    assert shared_lengths([Prompt(text=word) for word in words]) == want


@given(st.text(max_size=20), st.data())
def test_a_marker_changes_nothing_before_its_place_and_nothing_after(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert marked(Prompt(text=text), at, "<>").text == text[:at] + "<>" + text[at:]


def chat(*messages: tuple[str, object]) -> Prompt:
    return Prompt(messages=tuple({"role": role, "content": content} for role, content in messages))


def contents(prompt: Prompt) -> list[object]:
    return [message["content"] for message in prompt.messages or ()]


def test_chats_with_one_system_prompt_share_it_and_differ_after_it() -> None:
    one = chat(("system", "be kind"), ("user", "tell me of cats"))
    two = chat(("system", "be kind"), ("user", "tell me of dogs"))
    at = shared_lengths([one, two])
    assert at[0] == at[1]
    assert contents(marked(one, at[0], "<>")) == ["be kind", "tell me of <>cats"]


def test_the_marker_goes_into_the_message_where_chats_part() -> None:
    one = chat(("system", "be kind"), ("user", "a"), ("assistant", "b"), ("user", "c"))
    two = chat(("system", "be rude"), ("user", "a"))
    at = shared_lengths([one, two])[0]
    assert contents(marked(one, at, "<>")) == ["be <>kind", "a", "b", "c"]


def test_a_chat_alone_is_marked_at_its_start_and_one_that_is_there_twice_at_its_end() -> None:
    only = chat(("user", "hello"))
    assert contents(marked(only, shared_lengths([only])[0], "<>")) == ["<>hello"]
    assert contents(marked(only, shared_lengths([only, only])[0], "<>")) == ["hello<>"]


def test_a_message_of_parts_passes_the_marker_on() -> None:
    parts = [{"type": "text", "text": "look"}]
    assert contents(marked(chat(("user", parts), ("user", "b")), 0, "<>")) == [parts, "<>b"]
    assert contents(marked(chat(("user", "b"), ("user", parts)), 10**6, "<>")) == ["b<>", parts]
    assert contents(marked(chat(("user", parts)), 0, "<>")) == [parts]


def test_marking_leaves_the_prompt_itself_alone() -> None:
    prompt = chat(("user", "hello"))
    marked(prompt, 0, "<>")
    assert contents(prompt) == ["hello"]
