"""A lower bound is one for every pair of distributions: never above the exact divergence, zero where they are equal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from slotune.quality.coarse import LEAST_LOGPROB, Likeliest, divergence, kept

Distribution = NDArray[np.float64]

ROUNDING = 1e-6
"""What is given away on purpose per position, see ``coarse.ROUNDING``."""


def softmax(logits: list[float]) -> Distribution:
    values = np.exp(np.asarray(logits) - max(logits))
    return np.asarray(values / values.sum())


def listed(distribution: Distribution, count: int) -> Likeliest:
    order = np.argsort(-distribution, kind="stable")[:count].tolist()
    logs = [
        max(LEAST_LOGPROB, math.log(distribution[token])) if distribution[token] > 0 else LEAST_LOGPROB
        for token in order
    ]
    return Likeliest(tuple(order), tuple(min(0.0, value) for value in logs))


def exact(p: Distribution, q: Distribution) -> float:
    return float(sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True) if a > 0))


logits = st.floats(-12, 12, allow_nan=False)
pairs = st.integers(2, 24).flatmap(
    lambda size: st.tuples(
        st.lists(logits, min_size=size, max_size=size).map(softmax),
        st.lists(logits, min_size=size, max_size=size).map(softmax),
    )
)


@given(pairs, st.integers(1, 24), st.integers(1, 24))
def test_it_is_never_above_the_exact_divergence(pair: tuple[Distribution, Distribution], top: int, theirs: int) -> None:
    p, q = pair
    assert divergence(listed(p, top), listed(q, theirs)) <= exact(p, q) + 1e-9


@given(pairs, st.integers(1, 24))
def test_equal_distributions_have_none(pair: tuple[Distribution, Distribution], top: int) -> None:
    p, _ = pair
    assert divergence(listed(p, top), listed(p, top)) == 0
    assert divergence(kept(listed(p, top)), listed(p, top)) == 0


@given(pairs, st.integers(1, 23), st.integers(1, 23), st.integers(1, 24), st.integers(0, 10))
def test_telling_more_tokens_apart_never_lowers_it(
    pair: tuple[Distribution, Distribution], top: int, more: int, theirs: int, their_more: int
) -> None:
    p, q = pair
    coarse = divergence(listed(p, top), listed(q, theirs))
    assert coarse <= divergence(listed(p, top + more), listed(q, theirs)) + 1e-9
    assert coarse <= divergence(listed(p, top), listed(q, theirs + their_more)) + 1e-9


@given(pairs)
def test_whole_lists_give_the_exact_divergence_but_for_rounding(pair: tuple[Distribution, Distribution]) -> None:
    p, q = pair
    size = len(p)
    assert divergence(listed(p, size), listed(q, size)) == pytest.approx(exact(p, q), abs=2 * ROUNDING)


def test_two_tokens_by_hand() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.25, 0.5])
    want = 0.5 * math.log(0.5 / 0.25) + 0.3 * math.log(0.3 / 0.25) + 0.2 * math.log(0.2 / 0.5)
    assert divergence(listed(p, 2), listed(q, 3)) == pytest.approx(want, abs=1e-5)


def test_a_token_that_the_candidate_does_not_list_has_at_most_its_last_ones_probability() -> None:
    reference = Likeliest((7,), (math.log(0.9),))
    candidate = Likeliest((1, 2), (math.log(0.6), math.log(0.05)))
    # Token 7 has 0.05 at most there, so all else has 0.95 at least: nearer to the reference it can't be.
    want = 0.9 * math.log(0.9 / 0.05) + 0.1 * math.log(0.1 / 0.95)
    assert divergence(reference, candidate) == pytest.approx(want, abs=1e-5)


def test_what_the_candidate_lists_for_other_tokens_is_not_available_for_those_it_does_not_list() -> None:
    reference = Likeliest((7, 8), (math.log(0.5), math.log(0.5)))
    candidate = Likeliest((1, 2), (math.log(0.5), math.log(0.4)))
    # A tenth is left for tokens 7 and 8 together, although each of them alone could have 0.4.
    assert divergence(reference, candidate) == pytest.approx(math.log(0.5 / 0.05), abs=1e-4)


def test_a_probability_of_zero_is_far_away_and_still_a_number() -> None:
    reference = Likeliest((1, 2), (math.log(0.5), math.log(0.5)))
    candidate = Likeliest((3, 1, 2), (0.0, LEAST_LOGPROB, LEAST_LOGPROB))
    assert 90 < divergence(reference, candidate) < 110


def test_a_reference_keeps_what_is_likely_enough_to_matter() -> None:
    assert kept(Likeliest((1, 2, 3), (-0.1, -3.0, -30.0))) == Likeliest((1, 2), (-0.1, -3.0))
    assert kept(Likeliest((1, 2), (-50.0, -60.0))) == Likeliest((1,), (-50.0,))


@pytest.mark.parametrize(
    ("tokens", "logprobs", "want"),
    [
        pytest.param((), (), "at least one", id="nothing"),
        pytest.param((1, 2), (-0.5,), "1 logprobs", id="one logprob for two tokens"),
        pytest.param((1, 1), (-1.0, -2.0), "twice", id="a token twice"),
        pytest.param((-1,), (-1.0,), "below 0", id="a negative token"),
        pytest.param((1,), (0.1,), "outside", id="more than certain"),
        pytest.param((1,), (math.nan,), "no number", id="no number"),
        pytest.param((1,), (-math.inf,), "outside", id="minus infinity"),
        pytest.param((1, 2), (-2.0, -1.0), "falling", id="rising"),
        pytest.param((1, 2), (-0.1, -0.1), "more than 1", id="more than 1 in sum"),
    ],
)
def test_lists_that_are_none_are_refused(tokens: tuple[int, ...], logprobs: tuple[float, ...], want: str) -> None:
    with pytest.raises(ValueError, match=want):
        Likeliest(tokens, logprobs)
