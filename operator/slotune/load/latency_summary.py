"""The shape of what users saw, pooled over the runs of a trial.

Quantiles are observed values (the smallest one that at least that share of requests does not exceed), as
the statistics of a verdict count them. A request without a first token has no TTFT: it is missing here and
a violation there, so read a quantile beside the share of violations. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from slotune.load.records import RequestRecord, RunResult
from slotune.load.summary import Latencies

__all__ = ["summarize"]


def summarize(runs: Sequence[RunResult]) -> Latencies:
    """Pool the measured requests of ``runs``."""
    records = [record for run in runs for record in run.records]
    ttft = _known(record.ttft_s for record in records)
    speed = _known(record.tokens_per_second for record in records)
    gaps = [record.longest_gap_s for record in records if record.token_events > 1]
    made = [record.output_tokens for record in records if record.output_tokens is not None]
    prompts = [
        record.prompt_tokens + (record.cached_tokens or 0) for record in records if record.prompt_tokens is not None
    ]
    drafted = any(record.drafted_tokens for record in records)
    return Latencies(
        ttft_p50_s=_quantile(ttft, 0.50),
        ttft_p95_s=_quantile(ttft, 0.95),
        ttft_p99_s=_quantile(ttft, 0.99),
        tokens_per_second_p5=_quantile(speed, 0.05),
        tokens_per_second_p50=_quantile(speed, 0.50),
        longest_gap_p99_s=_quantile(gaps, 0.99),
        ttft_quantiles_s=tuple(_quantiles(ttft, np.linspace(0, 1, 101)).tolist()) if ttft else (),
        output_tokens_per_s=_throughput(runs, records),
        mean_output_tokens=float(np.mean(made)) if made else None,
        mean_prompt_tokens=float(np.mean(prompts)) if prompts else None,
        drafted_tokens=sum(record.drafted_tokens or 0 for record in records) or None,
        accepted_tokens=sum(record.accepted_tokens or 0 for record in records) if drafted else None,
    )


def _throughput(runs: Sequence[RunResult], records: Sequence[RequestRecord]) -> float | None:
    """Tokens per second that came in within the windows, whichever request they belong to.

    Tokens over the time from the first send to the last answer would count the drain and read low. Events
    are turned into tokens by what the finished requests show of both.
    """
    window = sum(run.window_s for run in runs)
    events = sum(record.token_events for record in records if record.output_tokens is not None)
    tokens = sum(record.output_tokens or 0 for record in records)
    if window <= 0 or not events:
        return None
    return sum(run.window_token_events for run in runs) * (tokens / events) / window


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _quantile(values: list[float], share: float) -> float | None:
    return float(_quantiles(values, np.array([share]))[0]) if values else None


def _quantiles(values: list[float], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    quantiles: NDArray[np.float64] = np.quantile(np.array(values), shares, method="inverted_cdf")
    return quantiles
