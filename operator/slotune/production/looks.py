"""One look at production, and what it shows of the promise: kept, missed, partly kept, or nothing.

Only numbers decide. What was not asked or gave no number is unknown, and unknown is neither good nor bad: a watcher
that takes silence for health rolls a broken configuration out, and one that takes it for illness rolls a good one back.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from slotune.api.v1alpha1 import SLO
from slotune.production.queries import Queries
from slotune.production.readings import NotANumber, Reading, Unreachable, Value

__all__ = ["Look", "Reader", "Shown", "take_look", "what_it_shows"]

LARGEST: Final = 1e9
"""Seconds or tokens per second. More is no latency and no speed, and would not fit into a status."""


class Shown(enum.StrEnum):
    """What a look shows of the promise."""

    KEPT = "Kept"
    """TTFT is a number within the SLO, and so is the speed if one is owed."""
    PARTLY_KEPT = "PartlyKept"
    """The speed is within the SLO, and TTFT was not asked for."""
    MISSED = "Missed"
    """A number is beyond the SLO, whatever the other one is."""
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Look:
    """Readings of one moment. None: not asked."""

    ttft_p95: Reading | None = None
    """Seconds."""
    tokens_per_second: Reading | None = None
    """Per user."""
    speed_is_mean: bool = False
    requests_processing: Reading | None = None
    requests_deferred: Reading | None = None
    prompt_tokens_per_second: Reading | None = None

    def __post_init__(self) -> None:
        for name in (
            "ttft_p95",
            "tokens_per_second",
            "requests_processing",
            "requests_deferred",
            "prompt_tokens_per_second",
        ):
            reading = getattr(self, name)
            if isinstance(reading, Value) and not 0 <= reading.value <= LARGEST:
                raise ValueError(f"{name} is {reading.value}: it must lie between 0 and {LARGEST:g}")


class Reader(Protocol):
    """Answers a query; :class:`~slotune.production.prometheus.PrometheusReader` does."""

    async def scalar(self, query: str, at: datetime) -> Reading:
        """What the query gives at that time; nothing is raised."""
        ...


async def take_look(reader: Reader, queries: Queries, at: datetime) -> Look:
    """Ask all, within twice the reader's own limit: one query first, and the others together if that was answered."""
    deciding = queries.tokens_per_second if queries.ttft_p95 is None else queries.ttft_p95
    others = [queries.requests_processing, queries.requests_deferred, queries.prompt_tokens_per_second]
    if queries.ttft_p95 is not None:
        others.append(queries.tokens_per_second)
    first = _plausible(await reader.scalar(deciding, at))
    if isinstance(first, Unreachable):
        rest: list[Reading] = [first] * len(others)
    else:
        rest = [_plausible(one) for one in await asyncio.gather(*(reader.scalar(query, at) for query in others))]
    return Look(
        ttft_p95=None if queries.ttft_p95 is None else first,
        tokens_per_second=first if queries.ttft_p95 is None else rest[3],
        speed_is_mean=queries.speed_is_mean,
        requests_processing=rest[0],
        requests_deferred=rest[1],
        prompt_tokens_per_second=rest[2],
    )


def what_it_shows(look: Look, slo: SLO) -> Shown:
    """A number at the target itself keeps it."""
    late = _beyond(look.ttft_p95, most=float(slo.ttft_p95_seconds))
    owed = slo.tokens_per_second
    slow = False if owed is None else _beyond(look.tokens_per_second, least=float(owed))
    if late or slow:
        return Shown.MISSED
    if late is None and look.ttft_p95 is None and owed is not None and slow is not None:
        return Shown.PARTLY_KEPT
    return Shown.UNKNOWN if late is None or slow is None else Shown.KEPT


def _plausible(reading: Reading) -> Reading:
    """A time or a speed is never negative: a query that says so measures something else."""
    if isinstance(reading, Value) and not 0 <= reading.value <= LARGEST:
        return NotANumber("a negative number" if reading.value < 0 else "a number beyond all measure")
    return reading


def _beyond(reading: Reading | None, *, most: float = float("inf"), least: float = 0.0) -> bool | None:
    """Whether a number misses its target; None when there is no number."""
    return not least <= reading.value <= most if isinstance(reading, Value) else None
