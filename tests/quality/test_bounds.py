"""Bounds hold as often as they say: against scipy, and by counting over seeded samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special, stats

from slotune.quality.bounds import mean_bounds, share_bounds, unseen_share, wilson


@given(st.integers(1, 2000), st.floats(0, 1), st.sampled_from([0.9, 0.95, 0.99]))
def test_wilson_is_scipys(size: int, share: float, confidence: float) -> None:
    hits = round(share * size)
    oracle = stats.binomtest(hits, size, alternative="greater").proportion_ci(confidence, method="wilson")
    quantile = float(special.ndtri(confidence))
    assert wilson(hits / size, size, -quantile) == pytest.approx(oracle.low, abs=1e-12)
    above = stats.binomtest(hits, size, alternative="less").proportion_ci(confidence, method="wilson")
    assert wilson(hits / size, size, quantile) == pytest.approx(above.high, abs=1e-12)


def test_without_a_position_nothing_is_known_of_a_share() -> None:
    assert (wilson(0.5, 0, -1.6), wilson(0.5, 0, 1.6)) == (0.0, 1.0)


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_wilson_solved_for_its_size_is_the_score_test(size: int, hits: int) -> None:
    share = min(hits, size) / size
    bound = wilson(share, size, -1.645)
    if 0 < bound < share:
        assert 1.645**2 * bound * (1 - bound) / (share - bound) ** 2 == pytest.approx(size, rel=1e-6)


Draw = Callable[[np.random.Generator], tuple[NDArray[np.float64], float]]


def lognormal(between: float, within: float, prompts: int = 64) -> Draw:
    """Few positions that differ a lot, and prompts that differ: what divergences look like."""

    def draw(rng: np.random.Generator) -> tuple[NDArray[np.float64], float]:
        logs = rng.normal(0, between, (prompts, 1)) + rng.normal(0, within, (prompts, 16))
        return np.exp(logs), math.exp((between**2 + within**2) / 2)

    return draw


@pytest.mark.parametrize(
    ("draw", "least_upper"),
    [
        pytest.param(lognormal(0.0, 1.0), 0.94, id="mild skew"),
        pytest.param(lognormal(0.5, 1.5), 0.94, id="skewed as a 4-bit file"),
        pytest.param(lognormal(1.0, 1.5), 0.94, id="prompts far apart"),
        pytest.param(lognormal(0.5, 1.5, prompts=16), 0.92, id="16 prompts"),
    ],
)
def test_the_bounds_of_a_mean_hold_as_often_as_they_say(draw: Draw, least_upper: float) -> None:
    rng = np.random.default_rng(11)
    above = below = 0
    samples = 600
    for _ in range(samples):
        sample, truth = draw(rng)
        bounds = mean_bounds(sample.tolist(), upper=0.95, lower=0.975)
        above += bounds.upper >= truth
        below += bounds.lower <= truth
    assert above / samples >= least_upper
    assert below / samples >= 0.965


@pytest.mark.parametrize("correlation", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("truth", [0.90, 0.95])
def test_the_bounds_of_a_share_hold_as_often_as_they_say(truth: float, correlation: float) -> None:
    rng = np.random.default_rng(5)
    above = below = 0
    samples = 600
    for _ in range(samples):
        if correlation:
            strength = (1 - correlation) / correlation
            shares = rng.beta(truth * strength, (1 - truth) * strength, (64, 1))
        else:
            shares = np.full((64, 1), truth)
        bounds = share_bounds((rng.random((64, 16)) < shares).tolist(), upper=0.975, lower=0.95)
        above += bounds.upper >= truth
        below += bounds.lower <= truth
    assert below / samples >= 0.93
    assert above / samples >= 0.965


def rarely_broken(rng: np.random.Generator, prompts: int) -> list[list[float]]:
    """2 % of the prompts are answered by nonsense, 3 nats away, all others nearly as by the reference."""
    broken = rng.random((prompts, 1)) < 0.02
    return np.where(broken, 3.0, 0.003 * np.exp(rng.normal(-0.125, 0.5, (prompts, 16)))).tolist()


@pytest.mark.parametrize(("prompts", "missed"), [(64, 0.27), (128, 0.075), (200, 0.018)])
def test_where_few_prompts_break_the_bound_holds_only_as_often_as_one_of_them_is_asked(
    prompts: int, missed: float
) -> None:
    rng = np.random.default_rng(3)
    samples = 800
    kept = sum(mean_bounds(rarely_broken(rng, prompts), upper=0.95, lower=0.975).upper <= 0.05 for _ in range(samples))
    # The true mean is 0.063: whatever keeps 0.05 here is wrong, and is so because no broken prompt was drawn.
    assert kept / samples == pytest.approx(missed, abs=0.035)
    assert missed == pytest.approx(0.98**prompts, abs=0.005)
    assert (unseen_share(prompts, 0.95) < 0.02) == (missed < 0.05)


@given(st.integers(1, 5000), st.sampled_from([0.5, 0.8, 0.95, 0.999]))
def test_the_share_that_may_be_unseen_is_the_exact_bound_of_nothing_seen(prompts: int, confidence: float) -> None:
    oracle = stats.binomtest(0, prompts, alternative="less").proportion_ci(confidence, method="exact")
    assert unseen_share(prompts, confidence) == pytest.approx(oracle.high, rel=1e-9)
    assert unseen_share(prompts + 1, confidence) < unseen_share(prompts, confidence)


def test_without_a_prompt_everything_may_be_unseen() -> None:
    assert unseen_share(0, 0.95) == 1.0


def test_positions_that_agree_by_prompt_are_worth_little_more_than_prompts() -> None:
    clusters = [[prompt % 4 > 0] * 16 for prompt in range(64)]
    assert share_bounds(clusters, upper=0.975, lower=0.95).effective < 70


def test_a_single_prompt_shows_nothing_about_prompts() -> None:
    mean = mean_bounds([[0.1, 0.2]], upper=0.95, lower=0.975)
    assert (mean.lower, mean.upper) == (-math.inf, math.inf)
    share = share_bounds([[True, True]], upper=0.975, lower=0.95)
    assert (share.lower, share.upper) == (0.0, 1.0)


def test_equal_positions_have_no_error() -> None:
    mean = mean_bounds([[0.0, 0.0], [0.0]], upper=0.95, lower=0.975)
    assert (mean.mean, mean.standard_error, mean.upper) == (0.0, 0.0, 0.0)


def test_the_standard_error_is_that_of_cluster_totals() -> None:
    clusters = [[1.0, 3.0], [2.0], [5.0, 6.0, 7.0]]
    residuals = np.array([4 - 2 * 4, 2 - 4, 18 - 3 * 4])
    want = math.sqrt(3 / 2 * (residuals**2).sum()) / 6
    assert mean_bounds(clusters, upper=0.95, lower=0.975).standard_error == pytest.approx(want)


@given(st.lists(st.lists(st.floats(0, 5), min_size=1, max_size=4), min_size=2, max_size=12))
@example([[0.0], [1.5439091851849926e-157]])
def test_the_mean_lies_between_its_bounds(clusters: list[list[float]]) -> None:
    bounds = mean_bounds(clusters, upper=0.95, lower=0.975)
    assert bounds.lower <= bounds.mean + 1e-9
    assert bounds.mean <= bounds.upper + 1e-9
