"""Lengths keep the mean that was declared, whatever the cuts do to the distribution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from slotune.load.demand import SyntheticPrompts
from slotune.load.lengths import DemandError, PromptLengths

SHARES = np.random.default_rng(1).random(20_000)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(0, 2000), st.integers(0, 15_000))
def test_the_mean_is_the_declared_one_and_no_length_is_beyond_the_cuts(
    own: int, spread: int, prefix: int, room: int
) -> None:
    mean, most = prefix + own, prefix + own + room
    lengths = PromptLengths.of(SyntheticPrompts(mean, spread, most, shared_prefix_tokens=prefix)).at(SHARES)
    assert lengths.min() > prefix
    assert lengths.max() <= most
    assert lengths.mean() == pytest.approx(mean, abs=max(0.5, 0.03 * spread))


def test_it_is_scipys_truncated_normal_where_the_cuts_are_symmetric() -> None:
    lengths = PromptLengths.of(SyntheticPrompts(1000, 100, 1300, shared_prefix_tokens=699))
    want = stats.truncnorm(-3, 3, loc=1000, scale=100)
    for share in (0.05, 0.5, 0.95):
        assert lengths.quantile(share) == pytest.approx(want.ppf(share), abs=1)


def test_the_default_limit_is_three_standard_deviations_above_the_mean() -> None:
    assert PromptLengths.of(SyntheticPrompts(500, 100)).most == 800


def test_without_spread_all_lengths_are_the_mean() -> None:
    assert set(PromptLengths.of(SyntheticPrompts(500)).at(SHARES).tolist()) == {500}


@pytest.mark.parametrize(
    ("prompts", "names"),
    [
        (SyntheticPrompts(0), "input_tokens_mean 0"),
        (SyntheticPrompts(10, -1), "input_tokens_stddev -1"),
        (SyntheticPrompts(10, shared_prefix_tokens=10), "shared_prefix_tokens is 10"),
        (SyntheticPrompts(10, input_tokens_max=9), "input_tokens_max 9"),
    ],
)
def test_impossible_lengths_are_refused_by_name(prompts: SyntheticPrompts, names: str) -> None:
    with pytest.raises(DemandError, match=names):
        PromptLengths.of(prompts)
