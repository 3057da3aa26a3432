"""A table of hearsay would warn everybody; each row must say when, for whom, who found it out, and what to do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.llama.build_defaults import NEWEST_KNOWN, OLDEST_KNOWN
from slotune.llama.slow_builds import (
    COMPILED_KV_PAIRS,
    SLOW_BUILDS,
    SlowBuild,
    Standing,
    is_kernel_missing,
)


def row(code: str) -> SlowBuild:
    return next(one for one in SLOW_BUILDS if one.code == code)


@pytest.mark.parametrize("slow", SLOW_BUILDS, ids=lambda slow: slow.code)
def test_every_row_names_its_report_its_builds_and_its_cure(slow: SlowBuild) -> None:
    assert slow.first <= slow.last
    assert slow.fixed is None or slow.last < slow.fixed <= NEWEST_KNOWN
    assert slow.first >= OLDEST_KNOWN, "what earlier builds did was not looked up"
    assert slow.issues
    assert all(re.fullmatch(r"#\d{4,6}", issue) for issue in slow.issues)
    assert re.search(r"\d", slow.what), "a report without a number is a rumour"
    assert slow.cure.endswith(".")
    assert not slow.what.endswith(".")


def test_no_row_is_there_twice() -> None:
    assert len({slow.code for slow in SLOW_BUILDS}) == len(SLOW_BUILDS)


@pytest.mark.parametrize(
    ("build", "want"),
    [
        (10428, Standing.FREE),
        (10429, Standing.SLOW),
        (10434, Standing.SLOW),
        (10435, Standing.UNKNOWN),
        (10471, Standing.UNKNOWN),
        (10472, Standing.FREE),
        (11549, Standing.FREE),
    ],
)
def test_between_the_last_slow_build_and_the_first_good_one_nobody_knows(build: int, want: Standing) -> None:
    assert row("DecodeOnWorkerThread").standing(build) is want


def test_what_nobody_fixed_is_true_of_every_later_build() -> None:
    assert row("FlashAttentionOnNeoverse").standing(NEWEST_KNOWN + 1000) is Standing.SLOW


@given(st.integers(1, 30_000), st.sampled_from(SLOW_BUILDS))
def test_a_build_never_becomes_slow_again_within_a_row(build: int, slow: SlowBuild) -> None:
    order = {Standing.SLOW: 0, Standing.UNKNOWN: 1, Standing.FREE: 2}
    if build >= slow.first:
        assert order[slow.standing(build)] <= order[slow.standing(build + 1)]


@pytest.mark.parametrize("pair", sorted(COMPILED_KV_PAIRS))
def test_pairs_with_a_kernel_of_their_own_are_fast_on_every_build(pair: str) -> None:
    assert not is_kernel_missing(10791, pair)


def test_a_pair_that_some_builds_compiled_by_default_is_not_called_missing() -> None:
    assert is_kernel_missing(10400, "q8_0-q4_0")
    assert not is_kernel_missing(10791, "q8_0-q4_0")
    assert is_kernel_missing(10791, "q5_1-q5_1")
    assert not is_kernel_missing(11434, "q5_1-q5_1"), "later builds convert and say so"
