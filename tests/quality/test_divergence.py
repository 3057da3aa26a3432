"""Positions become one statement with its uncertainty."""

from __future__ import annotations

import math

import pytest

from slotune.quality.coarse import LEAST_LOGPROB, Likeliest
from slotune.quality.divergence import PositionFacts, compare_position, summarise

HALF = Likeliest((1, 2), (math.log(0.5), math.log(0.25)))


def test_a_position_tells_divergence_agreement_residual_and_the_answers_probability() -> None:
    other = Likeliest((2, 1), (math.log(0.6), math.log(0.2)))
    facts = compare_position(4, HALF, other)
    want = 0.5 * math.log(0.5 / 0.2) + 0.25 * math.log(0.25 / 0.6) + 0.25 * math.log(0.25 / 0.2)
    assert facts.kld == pytest.approx(want, abs=1e-5)
    assert (facts.prompt, facts.agrees) == (4, False)
    assert facts.residual == pytest.approx(0.25)
    assert facts.log_ratio == pytest.approx(math.log(0.5 / 0.2))


def test_an_answer_that_the_candidate_does_not_list_counts_with_the_most_that_it_can_have() -> None:
    facts = compare_position(0, HALF, Likeliest((7, 8), (math.log(0.6), math.log(0.1))))
    assert not facts.agrees
    assert facts.log_ratio == pytest.approx(math.log(0.5 / 0.1))


def test_equal_probabilities_everywhere_are_no_agreement() -> None:
    flat = Likeliest((8, 9), (math.log(0.01), math.log(0.01)))
    assert not compare_position(0, HALF, flat).agrees


def test_perplexity_is_compared_on_the_references_own_answers() -> None:
    facts = [PositionFacts(prompt, 0.1, True, 0.0, math.log(1.5)) for prompt in range(3)]
    assert summarise(facts, "d", 0.95).perplexity_ratio == pytest.approx(1.5)
    lost = [PositionFacts(prompt, 90.0, False, 0.0, -LEAST_LOGPROB) for prompt in range(3)]
    assert summarise(lost, "d", 0.95).perplexity_ratio == pytest.approx(1e12)


def test_the_order_of_positions_does_not_matter() -> None:
    facts = [PositionFacts(number % 3, number / 10, number % 2 == 0, 0.1, 0.0) for number in range(9)]
    assert summarise(facts, "d", 0.95) == summarise(facts[::-1], "d", 0.95)


def test_a_sure_statement_is_wider_than_a_likely_one() -> None:
    facts = [PositionFacts(number % 5, (number % 7) / 50, number % 6 > 0, 0.1, 0.0) for number in range(40)]
    likely, sure = summarise(facts, "d", 0.9), summarise(facts, "d", 0.99)
    assert sure.kld_lower < likely.kld_lower < likely.mean_kld < likely.kld_upper < sure.kld_upper
    assert sure.top1_lower < likely.top1_lower < likely.top1 < likely.top1_upper < sure.top1_upper


def test_one_prompt_is_no_sample() -> None:
    with pytest.raises(ValueError, match="at least 2 prompts"):
        summarise([PositionFacts(0, 0.1, True, 0.0, 0.0)] * 5, "d", 0.95)
