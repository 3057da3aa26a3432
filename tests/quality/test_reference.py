"""A reference that was kept is the one that was recorded, or none at all: it never comes back changed."""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotune.quality.reference import BYTES_MAX, BrokenReferenceError, Likeliest, Reference, Walk

VOCABULARY = 128_256
HEAD = len(b"slotune reference\n") + 1 + 32


@st.composite
def likeliest(draw: st.DrawFn) -> Likeliest:
    tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5, unique=True))
    size = len(tokens)
    logprobs = draw(st.lists(st.floats(-103.0, -2.0, width=32), min_size=size, max_size=size))
    return Likeliest(tuple(tokens), tuple(sorted(logprobs, reverse=True)))


@st.composite
def walk(draw: st.DrawFn) -> Walk:
    positions = tuple(draw(st.lists(likeliest(), min_size=1, max_size=4)))
    prompt = tuple(draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=20)))
    return Walk(prompt, tuple(position.tokens[0] for position in positions), positions)


references = st.builds(
    Reference,
    walks=st.lists(walk(), min_size=1, max_size=4).map(tuple),
    top=st.integers(1, 64),
    vocabulary=st.just(VOCABULARY),
    tokenizer=st.text(max_size=16),
    model=st.text(max_size=8),
    cache_types=st.sampled_from([("f16", "f16"), ("q8_0", "q8_0")]),
    build=st.text(max_size=8),
    prompts_asked=st.integers(0, 64),
)
ONE = Reference(
    (Walk((1, 2), (7,), (Likeliest((7, 9), (-0.25, -2.0)),)),), 2, 100, "t", "m", ("f16", "f16"), "b7000", 1
)


@given(references)
def test_it_comes_back_as_it_was(reference: Reference) -> None:
    data = reference.to_bytes()
    again = Reference.from_bytes(data)
    assert again == reference
    assert again.digest == reference.digest
    assert again.to_bytes() == data


@settings(max_examples=60)
@given(references, st.data())
def test_any_cut_is_noticed(reference: Reference, data: st.DataObject) -> None:
    whole = reference.to_bytes()
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BrokenReferenceError, match=r"is cut short|does not begin like one|was changed"):
        Reference.from_bytes(whole[:length])


@settings(max_examples=60)
@given(references, st.data())
def test_any_changed_byte_is_noticed(reference: Reference, data: st.DataObject) -> None:
    whole = bytearray(reference.to_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    again = None
    with contextlib.suppress(BrokenReferenceError):
        again = Reference.from_bytes(bytes(whole))
    # Compression may hold a bit that means nothing; then what comes back is what was written.
    assert again is None or again == reference


def test_what_follows_it_is_noticed() -> None:
    with pytest.raises(BrokenReferenceError, match="was changed"):
        Reference.from_bytes(ONE.to_bytes() + b"x")


def test_another_content_under_the_same_digest_is_noticed() -> None:
    other = replace(ONE, model="n").to_bytes()
    with pytest.raises(BrokenReferenceError, match="its digest does not match"):
        Reference.from_bytes(ONE.to_bytes()[:HEAD] + other[HEAD:])


def test_a_newer_version_says_so() -> None:
    data = bytearray(ONE.to_bytes())
    data[HEAD - 33] = 2
    with pytest.raises(BrokenReferenceError, match="has version 2, and this slotune reads version 1"):
        Reference.from_bytes(bytes(data))


def rewrapped(content: bytes) -> bytes:
    """A content with a digest that matches it: what somebody writes who means to."""
    return ONE.to_bytes()[: HEAD - 32] + hashlib.sha256(content).digest() + zlib.compress(content)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]\n", id="a list"),
        pytest.param(b'{"walks":[[1,1]],"listed":[1]}\n' + bytes(12), id="facts are missing"),
        pytest.param(b'{"walks":[[0,1]],"listed":[1]}\n' + bytes(8), id="a prompt without tokens"),
        pytest.param(b'{"walks":[[1,2]],"listed":[1]}\n' + bytes(12), id="a position that is missing"),
        pytest.param(b'{"walks":[[1,1]],"listed":[1]}\n' + bytes(13), id="a byte too many"),
        pytest.param(b'{"walks":[],"listed":[]}\n', id="no prompts"),
    ],
)
def test_a_content_made_up_on_purpose_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenReferenceError, match="makes no sense"):
        Reference.from_bytes(rewrapped(content))


def test_a_content_that_unfolds_into_gigabytes_is_refused() -> None:
    with pytest.raises(BrokenReferenceError, match="unfolds into more than"):
        Reference.from_bytes(rewrapped(bytes(65 * 2**20)))


def test_its_digest_is_the_same_on_every_machine() -> None:
    assert ONE.digest == "0f1ba35205cf025db65c527fa7c1ab7a6c4021814d0f7eee69a4ce40f8a7cbeb"


def test_the_digest_names_everything_that_was_recorded() -> None:
    walks = (Walk((1, 3), (7,), ONE.walks[0].positions),)
    others = [
        replace(ONE, walks=walks),
        replace(ONE, top=3),
        replace(ONE, vocabulary=101),
        replace(ONE, tokenizer="u"),
        replace(ONE, model="n"),
        replace(ONE, cache_types=("q8_0", "q8_0")),
        replace(ONE, build="b7001"),
        replace(ONE, prompts_asked=2),
    ]
    assert len({ONE.digest, *(other.digest for other in others)}) == len(others) + 1


def test_the_defaults_fit_into_a_config_map_even_where_nothing_compresses() -> None:
    """64 random prompts of 4,000 tokens of a large vocabulary, 16 positions of 64 tokens, none of them rare."""
    rng = np.random.default_rng(3)
    walks = []
    for _ in range(64):
        positions = []
        for _ in range(16):
            tokens = rng.choice(VOCABULARY, 64, replace=False).tolist()
            logprobs = np.sort(rng.uniform(-12, -4.2, 64).astype(np.float32))[::-1].tolist()
            positions.append(Likeliest(tuple(tokens), tuple(logprobs)))
        prompt = tuple(rng.integers(0, VOCABULARY, 4000).tolist())
        walks.append(Walk(prompt, tuple(position.tokens[0] for position in positions), tuple(positions)))
    size = len(Reference(tuple(walks), 64, VOCABULARY, "t").to_bytes())
    assert 700_000 < size < BYTES_MAX


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda: replace(ONE, walks=()), "at least one prompt", id="no prompts"),
        pytest.param(lambda: replace(ONE, vocabulary=9), "token 9 lies outside", id="a token beyond the vocabulary"),
        pytest.param(lambda: replace(ONE.walks[0], answer=(9,)), "likeliest", id="an answer that was not likeliest"),
        pytest.param(lambda: replace(ONE.walks[0], prompt=()), "at least one token", id="an empty prompt"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(make: object, want: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=want):
        make()


def test_it_knows_what_it_takes_to_walk_it() -> None:
    assert (ONE.positions, ONE.longest) == (1, 3)
