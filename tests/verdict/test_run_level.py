"""Each run counts once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from slotune.verdict.run_level import run_share_upper


def test_the_bound_is_that_of_a_one_sample_t_test() -> None:
    shares = [0.01, 0.03, 0.0, 0.05, 0.02]
    want = stats.ttest_1samp(shares, 0.0, alternative="less").confidence_interval(0.95).high
    assert run_share_upper(shares, 0.95) == pytest.approx(want)


def test_a_single_run_says_nothing() -> None:
    assert run_share_upper([0.0], 0.95) is None
    assert run_share_upper([], 0.95) is None


def test_runs_that_agree_leave_their_mean() -> None:
    assert run_share_upper([0.02] * 5, 0.95) == pytest.approx(0.02)


def test_the_bound_is_never_above_everything() -> None:
    assert run_share_upper([0.0, 1.0], 0.95) == 1.0


def test_the_bound_lies_above_the_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    covered = sum((run_share_upper(list(generator.normal(0.05, 0.01, 5)), 0.9) or 0) >= 0.05 for _ in range(2000))
    assert covered / 2000 == pytest.approx(0.9, abs=0.02)
