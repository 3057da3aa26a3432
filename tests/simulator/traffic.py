"""Who comes when, with how many tokens: the same for every candidate, scaled by the rate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slotune.load.demand import Arrivals, Demand, SyntheticPrompts

__all__ = ["Traffic", "traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """One entry per request, in the order of arrival."""

    unit_times: tuple[float, ...]
    """Arrival times at one request per second."""
    prompt_tokens: tuple[int, ...]
    groups: tuple[int, ...]
    """Prefix group of each prompt."""
    shared_prefix_tokens: int


def traffic(demand: Demand, seed: int, requests: int) -> Traffic:
    """The seeded trace of ``requests`` requests."""
    synthetic = demand.synthetic or SyntheticPrompts(max(1, round(demand.input_tokens_mean)))
    return _traffic(demand.arrivals, synthetic, seed, requests)


@lru_cache(maxsize=64)
def _traffic(arrivals: Arrivals, prompts: SyntheticPrompts, seed: int, requests: int) -> Traffic:
    generator = np.random.default_rng(seed)
    if arrivals.process == "replay":
        offsets = np.resize(np.asarray(arrivals.offsets_s), requests)
        laps = np.arange(requests) // len(arrivals.offsets_s)
        mean_gap = arrivals.offsets_s[-1] / max(1, len(arrivals.offsets_s) - 1)
        times = (offsets + laps * (arrivals.offsets_s[-1] + mean_gap)) / mean_gap
    elif arrivals.process == "constant":
        times = np.arange(1, requests + 1, dtype=float)
    else:
        shape = arrivals.burstiness if arrivals.process == "gamma" else 1.0
        times = np.cumsum(generator.gamma(shape, 1 / shape, requests))
    lengths = generator.normal(prompts.input_tokens_mean, prompts.input_tokens_stddev, requests).round().astype(int)
    most = prompts.input_tokens_max or prompts.input_tokens_mean + 3 * prompts.input_tokens_stddev
    weights = 1 / np.arange(1, prompts.prefix_groups + 1) ** prompts.zipf_exponent
    groups = generator.choice(prompts.prefix_groups, requests, p=weights / weights.sum())
    return Traffic(
        unit_times=tuple(times.tolist()),
        prompt_tokens=tuple(np.clip(lengths, prompts.shared_prefix_tokens + 1, max(most, 1)).tolist()),
        groups=tuple(groups.tolist()),
        shared_prefix_tokens=prompts.shared_prefix_tokens,
    )
