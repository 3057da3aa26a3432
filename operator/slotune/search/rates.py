"""At which rate to ask the question "does c hold rate/N?", and how long the answer may take.

A pass at a faster rate is a pass at the owed one. Where the owed rate is so slow that a verdict
would take hours, faster rates are tried first, halving towards the owed one, which is asked
itself only when all of them failed: a Fail is short (it is curtailed), a Pass is what takes long.
"""

from __future__ import annotations

import math

from slotune.llama.candidate import Candidate
from slotune.search.problem import Measurement
from slotune.verdict.binomial import fewest_requests
from slotune.verdict.curtailment import look_confidence
from slotune.verdict.promise import Promise

__all__ = [
    "COMPARISON_S",
    "PATIENCE_S",
    "START_ALLOWANCE_S",
    "must_hold_half",
    "rates_to_try",
    "requests_per_run",
    "seconds_at",
]

PATIENCE_S = 900.0
"""Longest full measurement (seconds) before a faster rate is worth a try."""
WORTH_IT = 1.5
"""A faster rate must beat the owed one by this factor, or the possible Fail costs more than a Pass saves."""
BOUND_SHARE = 0.8
"""Share of the optimistic capacity above which a pass is not to be expected (queues grow without limit near it)."""
START_ALLOWANCE_S = 60.0
"""Seconds set aside for start and idle probe when a trial's worst case is estimated."""
COMPARISON_S = 1800.0
"""Longest that looking at answers may take: 64 prompts of 4,000 tokens and 1,024 steps are a minute on a GPU with an 8B
model, half an hour on a CPU that reads 150 tokens/s."""


def requests_per_run(measurement: Measurement, promise: Promise, confidence: float) -> int:
    """Requests of one run: as many as were asked for, and enough for a pass to be possible at all.

    A confirmation after failed ones needs more confidence than the setting was made for.
    """
    looks = 1 + measurement.extensions
    fewest = fewest_requests(promise.violation_share, look_confidence(confidence, looks))
    return max(measurement.requests_per_run, math.ceil(fewest / measurement.runs))


def seconds_at(rate: float, measurement: Measurement, *, looks: int = 1, per_run: int | None = None) -> float:
    """Seconds of load that a full measurement of ``looks`` looks takes, warm-up included.

    ``per_run``: requests of a run, where they are more than the setting; None takes the setting.
    """
    requests = (per_run or measurement.requests_per_run) + measurement.warmup_requests
    return looks * measurement.runs * requests / rate


def rates_to_try(owed: float, capacity_at_most: float, measurement: Measurement) -> tuple[float, ...]:
    """Rates in requests/s, fastest first, the owed rate last; only the owed one when that is quick enough."""
    if seconds_at(owed, measurement) <= PATIENCE_S:
        return (owed,)
    fastest = min(owed * seconds_at(owed, measurement) / PATIENCE_S, BOUND_SHARE * capacity_at_most)
    rates = []
    while fastest >= WORTH_IT * owed:
        rates.append(fastest)
        fastest /= 2
    return (*rates, owed)


def must_hold_half(candidate: Candidate, baseline: Candidate) -> bool:
    """Whether a pass at a rate says nothing about half of it, so that half is asked as well.

    Three things help at one load and cost at another. Guessed tokens, from the text or from a draft model, pay off or
    cost by how full a step is (#27342 of ggml-org/llama.cpp). One KV pool for all slots was slower where few were busy
    (#28495), and separate ones cost a whole step for every run of busy neighbours, so they are slowest half full
    (#25840). Sampling where the model runs helped 32 busy slots and cost a single one (#27050, #17004). What today's
    server does as well, users have seen at every load, but for guessed tokens, which the rest of a candidate may tip.
    """
    sampling = candidate.backend_sampling and not baseline.backend_sampling
    return candidate.speculation != "none" or _is_another_layout(candidate, baseline) or sampling


def _is_another_layout(candidate: Candidate, baseline: Candidate) -> bool:
    """Whether users have not seen this layout of the KV cache at every load: a pool where today has none, or more
    separate streams than today. One slot has one stream and no pool, whatever its flag says."""
    if candidate.parallel_slots == 1:
        return False
    pool_today = baseline.kv_unified and baseline.parallel_slots > 1
    if candidate.kv_unified:
        return not pool_today
    return pool_today or candidate.parallel_slots > baseline.parallel_slots
