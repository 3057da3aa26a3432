"""Money: a configuration costs what its replicas cost, used or not."""

from __future__ import annotations

import math
from decimal import Decimal

__all__ = ["cost_per_million_output_tokens", "replicas_for_work"]

SECONDS_PER_HOUR = 3600


def replicas_for_work(gpu_seconds_per_request: float, peak_rate: float) -> int:
    """Fewest GPUs that have the seconds for ``peak_rate`` requests/s: ceil(seconds x rate). No queueing in it."""
    return max(1, math.ceil(gpu_seconds_per_request * peak_rate - 1e-9))


def cost_per_million_output_tokens(
    replicas: int, price_per_hour: Decimal, peak_rate: float, mean_output_tokens: float
) -> Decimal | None:
    """N x price / 3600 / (rate x tokens) x 10^6, at the peak; None when no token is asked for."""
    tokens_per_second = peak_rate * mean_output_tokens
    if tokens_per_second <= 0:
        return None
    per_second = price_per_hour * replicas / SECONDS_PER_HOUR
    return (per_second / Decimal(tokens_per_second) * 1_000_000).quantize(Decimal("0.0001"))
