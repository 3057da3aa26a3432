"""Bounds decide whether a pair may be tried, never means; noise and nearness to a limit are named as such."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotune.api.v1alpha1.measurement import Measurement
from slotune.quality.divergence import Divergence, PositionFacts, summarise
from slotune.quality.limits import BALANCED, STRICT, Limits
from slotune.verdict.quality_gate import NOT_A_RANKING, judge_damaged, judge_floor, judge_quality
from slotune.verdict.verdicts import Outcome

GOOD = Divergence(
    positions=1024,
    prompts=64,
    mean_kld=0.004,
    kld_standard_error=0.0004,
    kld_lower=0.0033,
    kld_upper=0.0048,
    top1=0.972,
    top1_lower=0.96,
    top1_upper=0.98,
    effective_positions=900.0,
    residual_mass=0.01,
    perplexity_ratio=1.001,
    confidence=0.95,
    reference_digest="d" * 64,
)
QUIET = replace(GOOD, mean_kld=0.00002, kld_lower=0.0, kld_upper=0.00004, top1=0.999, top1_lower=0.99, top1_upper=1.0)


def test_a_pair_that_keeps_both_limits_at_their_unlucky_ends_passes() -> None:
    verdict = judge_quality(GOOD, QUIET, STRICT)
    assert (verdict.outcome, verdict.code, verdict.confidence) == (Outcome.PASS, "QualityKept", 0.95)
    assert "at most 0.0048 at 95 % confidence, Strict allows 0.01" in verdict.reason
    assert "does not rank" in verdict.reason


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"kld_upper": 0.0101}, Outcome.INCONCLUSIVE, id="a mean below the limit is not enough"),
        pytest.param({"top1_lower": 0.949}, Outcome.INCONCLUSIVE, id="nor an agreement above it"),
        pytest.param({"kld_upper": 0.01, "top1_lower": 0.95}, Outcome.PASS, id="bounds at the limits keep them"),
        pytest.param(
            {"mean_kld": 0.011, "kld_lower": 0.009, "kld_upper": 0.013},
            Outcome.INCONCLUSIVE,
            id="a mean above the limit is no failure",
        ),
        pytest.param(
            {"mean_kld": 0.02, "kld_lower": 0.011, "kld_upper": 0.03}, Outcome.FAIL, id="a bound above it is one"
        ),
        pytest.param(
            {"top1": 0.9, "top1_lower": 0.88, "top1_upper": 0.94}, Outcome.FAIL, id="so is an agreement surely below"
        ),
    ],
)
def test_bounds_decide_and_means_do_not(changes: dict[str, float], want: Outcome) -> None:
    assert judge_quality(replace(GOOD, **changes), QUIET, STRICT).outcome is want  # type: ignore[arg-type]  # floats only


def test_a_failure_says_which_limits_are_surely_broken() -> None:
    bad = replace(GOOD, mean_kld=0.3, kld_lower=0.25, kld_upper=0.35, top1=0.7, top1_lower=0.67, top1_upper=0.73)
    verdict = judge_quality(bad, QUIET, BALANCED)
    assert verdict.code == "QualityTooLow"
    assert "divergence is surely above the limit (at least 0.25)" in verdict.reason
    assert "agreement is surely below the limit (at most 73.0 %)" in verdict.reason


def facts(prompts: int) -> list[PositionFacts]:
    """Divergence 0.004 and agreement 93.75 %, alike in every prompt but for a little."""
    return [
        PositionFacts(prompt, 0.003 + 0.002 * ((prompt + step) % 2), (prompt + step) % 16 > 0, 0.01, 0.0)
        for prompt in range(prompts)
        for step in range(16)
    ]


def positions_advised(reason: str) -> int:
    found = re.search(r"about ([\d,]+) more positions", reason)
    assert found
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param(Limits("Custom", 0.05, 0.92), Outcome.PASS, id="keeps"),
        pytest.param(Limits("Custom", 0.05, 0.955), Outcome.FAIL, id="breaks"),
    ],
)
def test_as_many_positions_as_it_asks_for_decide(limits: Limits, want: Outcome) -> None:
    few = summarise(facts(16), QUIET.reference_digest, 0.95)
    undecided = judge_quality(few, QUIET, limits)
    assert (undecided.outcome, undecided.code) == (Outcome.INCONCLUSIVE, "QualityUndecided")
    assert ("keeps" if want is Outcome.PASS else "breaks") in undecided.reason
    more = positions_advised(undecided.reason)
    assert 16 < more < 3000
    enough = summarise(facts(16 + round(1.1 * more / 16)), QUIET.reference_digest, 0.95)
    assert judge_quality(enough, QUIET, limits).outcome is want
    half = summarise(facts(16 + round(0.4 * more / 16)), QUIET.reference_digest, 0.95)
    assert judge_quality(half, QUIET, limits).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("agreement", [0.92, 0.925, 0.955])
def test_the_setting_that_is_advised_is_one_that_the_manifest_takes_and_decides(agreement: float) -> None:
    limits = Limits("Custom", 0.05, agreement)
    reason = judge_quality(summarise(facts(16), QUIET.reference_digest, 0.95), QUIET, limits).reason
    found = re.search(r"set measurement.qualityPrompts to (\d+)", reason)
    assert found
    taken = Measurement(quality_prompts=int(found[1]))
    # Positions come in whole prompts, and the quantile of few prompts is a little wider than was foreseen.
    enough = summarise(facts(round(1.1 * taken.quality_prompts)), QUIET.reference_digest, 0.95)
    assert judge_quality(enough, QUIET, limits).outcome is not Outcome.INCONCLUSIVE


def test_what_can_never_be_recorded_is_not_advised() -> None:
    limits = Limits("Custom", 0.05, 0.9355)
    reason = judge_quality(summarise(facts(16), QUIET.reference_digest, 0.95), QUIET, limits).reason
    assert "no number of positions that can be recorded" in reason


def test_a_pass_says_how_rare_a_kind_of_prompt_may_be_that_was_never_asked() -> None:
    assert "less than 4.6 % of the traffic may be missing" in judge_quality(GOOD, QUIET, STRICT).reason
    more = replace(GOOD, prompts=299)
    assert "less than 1 % of the traffic" in judge_quality(more, QUIET, STRICT).reason


def test_at_the_limit_no_number_of_positions_is_promised() -> None:
    at_limit = replace(GOOD, mean_kld=0.01, kld_lower=0.009, kld_upper=0.011)
    assert "no number of positions that can be recorded" in judge_quality(at_limit, QUIET, STRICT).reason


def test_a_limit_within_the_noise_is_an_error_that_names_limit_floor_and_cure() -> None:
    noisy = replace(QUIET, mean_kld=0.0041)
    verdict = judge_quality(GOOD, noisy, STRICT)
    assert (verdict.outcome, verdict.code) == (Outcome.INVALID, "NoiseFloorTooHigh")
    assert "limit of 0.01 nats (Strict)" in verdict.reason
    assert "3 times 0.0041" in verdict.reason
    assert "set meanKLD to 0.013 or more" in verdict.reason
    assert judge_quality(GOOD, noisy, BALANCED).outcome is Outcome.PASS


def test_an_agreement_limit_within_the_noise_is_one_too() -> None:
    verdict = judge_floor(replace(QUIET, top1=0.98), STRICT)
    assert (verdict.outcome, verdict.code) == (Outcome.INVALID, "NoiseFloorTooHigh")
    assert "top-1 agreement (Strict)" in verdict.reason
    assert "2 % of positions" in verdict.reason
    assert "set top1Percent to 94 or less" in verdict.reason
    assert judge_floor(replace(QUIET, top1=0.98), BALANCED).outcome is Outcome.PASS


@given(st.floats(1e-6, 1.0), st.floats(0.7, 1.0))
def test_the_cure_that_is_named_cures(noise: float, top1: float) -> None:
    floor = replace(QUIET, mean_kld=noise, top1=top1)
    reason = judge_floor(floor, Limits("Custom", 1e-9, 0.05)).reason
    found = re.search(r"set meanKLD to (\S+) or more", reason)
    assert found
    assert judge_floor(floor, Limits("Custom", float(found[1]), 0.05)).outcome is Outcome.PASS


def test_the_floor_itself_is_judged() -> None:
    verdict = judge_floor(QUIET, STRICT)
    assert (verdict.outcome, verdict.code) == (Outcome.PASS, "NoiseFloorLow")
    silent = replace(QUIET, mean_kld=0.0, kld_upper=0.0, top1=1.0)
    assert judge_floor(silent, STRICT).outcome is Outcome.PASS


def test_two_references_are_never_mixed() -> None:
    with pytest.raises(ValueError, match="measure both against the same"):
        judge_quality(replace(GOOD, reference_digest="e" * 64), QUIET, STRICT)


def test_probabilities_that_are_none_fail() -> None:
    verdict = judge_damaged("the model's logprobs are no numbers", STRICT, 0.95)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "QualityTooLow")


def test_reports_are_given_the_words_that_it_is_no_ranking() -> None:
    assert "not which of them is better" in NOT_A_RANKING
