"""Answers are compared on the workload's own prompts: the same ones each time, none twice."""

from __future__ import annotations

import pytest

from slotune.load.demand import Demand, Prompt, SyntheticPrompts
from slotune.load.lengths import DemandError
from slotune.quality.errors import TooFewPromptsError
from slotune.quality.limits import QualitySettings
from slotune.quality.prompts import quality_prompts

SETTINGS = QualitySettings(prompts=8)


def texts(count: int) -> Demand:
    return Demand(peak_rate=1.0, output_tokens=5, prompts=tuple(Prompt(text=f"text {n}") for n in range(count)))


def test_the_same_prompts_are_taken_each_time_in_the_workloads_order() -> None:
    chosen = quality_prompts(texts(50), SETTINGS)
    assert chosen == quality_prompts(texts(50), SETTINGS)
    assert len(chosen) == 8
    assert list(chosen) == [prompt for prompt in texts(50).prompts if prompt in chosen]
    assert chosen != quality_prompts(texts(50), QualitySettings(prompts=8, seed=8))


def test_a_prompt_is_taken_once_whatever_it_is_asked_for() -> None:
    twice = Demand(
        peak_rate=1.0,
        output_tokens=5,
        prompts=(Prompt(text="a"), Prompt(text="b"), Prompt(text="a", max_tokens=9), Prompt(text="b")),
    )
    assert len(quality_prompts(twice, SETTINGS)) == 2


def test_few_prompts_are_all_taken() -> None:
    assert quality_prompts(texts(3), SETTINGS) == texts(3).prompts


def test_one_prompt_is_too_few() -> None:
    with pytest.raises(TooFewPromptsError, match=r"has 1 prompt: .* set quality to \"Off\""):
        quality_prompts(texts(1), SETTINGS)


def test_synthetic_prompts_are_those_of_a_trial() -> None:
    shape = SyntheticPrompts(30, 5, shared_prefix_tokens=12, prefix_groups=2)
    demand = Demand(peak_rate=1.0, output_tokens=5, synthetic=shape)
    chosen = quality_prompts(demand, SETTINGS, vocabulary=1000)
    assert chosen == quality_prompts(demand, SETTINGS, vocabulary=1000)
    assert len(chosen) == 8
    beginnings = set()
    for prompt in chosen:
        assert isinstance(prompt, tuple)
        assert all(250 <= token < 750 for token in prompt)
        beginnings.add(prompt[:12])
    assert len(beginnings) == 2
    with pytest.raises(DemandError, match="vocabulary"):
        quality_prompts(demand, SETTINGS)
