"""What a demand amounts to, before a server has seen it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from slotune.load.demand import Arrivals, Demand, Prompt, SyntheticPrompts
from slotune.load.estimates import demand_identity, with_estimates
from slotune.load.trace import build_trace

SYNTHETIC = SyntheticPrompts(input_tokens_mean=400, input_tokens_stddev=80, shared_prefix_tokens=100, prefix_groups=4)
DEMAND = Demand(peak_rate=6.0, output_tokens=10, synthetic=SYNTHETIC)


def test_synthetic_prompts_are_counted_as_they_will_be_drawn() -> None:
    demand = with_estimates(DEMAND)
    trace = build_trace(demand, rate=1.0, seed=1, requests=5000)
    lengths = np.array([entry.input_tokens for entry in trace.entries])
    assert demand.input_tokens_mean == pytest.approx(lengths.mean(), rel=0.01)
    assert demand.input_tokens_p95 == pytest.approx(np.quantile(lengths, 0.95), rel=0.02)
    assert demand.input_tokens_max == 640 >= lengths.max()
    assert demand.reusable_tokens == 100


def test_recorded_lengths_take_the_place_of_drawn_ones() -> None:
    arrivals = Arrivals("replay", offsets_s=(0.0, 1.0, 2.0), input_tokens=(50, 200, 350))
    demand = with_estimates(replace(DEMAND, arrivals=arrivals))
    assert demand.input_tokens_mean == pytest.approx((101 + 200 + 350) / 3)
    assert (demand.input_tokens_max, demand.reusable_tokens) == (350, 100)


def test_real_prompts_count_four_bytes_a_token_and_reuse_what_they_share() -> None:
    prompts = (Prompt(text="s" * 400 + "a" * 400), Prompt(text="s" * 400 + "b" * 400), Prompt(text="ü" * 100))
    demand = with_estimates(Demand(peak_rate=1.0, output_tokens=1, prompts=prompts))
    assert demand.input_tokens_mean == (200 + 200 + 50) / 3
    assert demand.input_tokens_max == 200
    assert demand.reusable_tokens == pytest.approx((100 + 100 + 0) / 3)


def test_the_identity_is_that_of_what_is_declared() -> None:
    assert with_estimates(DEMAND).identity == demand_identity(DEMAND) == with_estimates(with_estimates(DEMAND)).identity
    changes: list[dict[str, object]] = [
        {"output_tokens": 11},
        {"peak_rate": 7.0},
        {"sampling": (("temperature", 1.0),)},
        {"arrivals": Arrivals("constant")},
        {"synthetic": None, "prompts": (Prompt(text="a"),)},
        {"synthetic": None, "prompts": (Prompt(text="b"),)},
    ]
    identities = {demand_identity(replace(DEMAND, **change)) for change in changes}  # type: ignore[arg-type]  # any field
    assert len(identities | {demand_identity(DEMAND)}) == 7
