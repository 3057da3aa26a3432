"""What a probe sends stays within what it announced, whatever the server is like."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slotune.diagnose.symptoms import ServerLook
from slotune.gathering.probe_plan import (
    ANSWER_TOKENS,
    PROMPT_TOKENS,
    SHORT_ANSWER_TOKENS,
    answer_tokens_of,
    long_words,
    longest_prompt,
    plain_text,
)
from slotune.llama.server_answers import Props
from slotune.load.records import RequestRecord


def record(tokens: int, prompt_ms: float, predicted_ms: float | None = None) -> RequestRecord:
    return RequestRecord(
        0, 0, 0.0, prompt_tokens=tokens, prompt_ms=prompt_ms, output_tokens=4, predicted_ms=predicted_ms
    )


@given(
    context=st.integers(1, 10**6),
    per_word=st.floats(0.5, 12.0),
    short=st.lists(st.builds(record, st.integers(0, 600), st.floats(0.0, 1e5)), max_size=2),
)
def test_a_long_prompt_fits_its_slot_and_the_announcement(
    context: int, per_word: float, short: list[RequestRecord]
) -> None:
    props = Props(1, context, "m.gguf", "m", "b1", metrics_enabled=True, slots_enabled=True)
    longest = longest_prompt(ServerLook("http://127.0.0.1:1", props=props))
    assert longest <= PROMPT_TOKENS
    words = long_words(longest, per_word, short)
    assert words >= 1
    assert words == 1 or words * per_word <= longest


@given(st.lists(st.builds(record, st.just(9), st.just(1.0), st.none() | st.floats(0.0, 1e6)), max_size=2))
def test_an_answer_has_a_few_tokens_at_least_and_no_more_than_announced(short: list[RequestRecord]) -> None:
    assert SHORT_ANSWER_TOKENS <= answer_tokens_of(short) <= ANSWER_TOKENS


@given(st.integers(1, 600), st.integers(0, 2**32 - 1))
def test_a_seed_decides_the_words(words: int, seed: int) -> None:
    assert plain_text(words, seed) == plain_text(words, seed)
    assert len(plain_text(words, seed).split()) == words
