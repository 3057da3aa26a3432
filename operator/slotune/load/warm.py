"""How long a prompt waits alone on the server when its prefix was read just before: the warm end of the cold one.

The idle probe's prompts share nothing with any other, so they tell what a cold prompt costs. The same prompts with a
declared prefix, sent one at a time behind one that brought the prefix, tell what the cache can save at best. Neither
has a queue in it, and both have the same length, so the two can be compared; the trial's own numbers, under load and
with the declared sharing, stand beside them. A cold *load* is not measured: a rate that needs the cache would only show
how long the queue was when it was stopped.

Costs one cold and a few warm prompts, with answers of two tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand
from slotune.load.exchange import exchange_alone
from slotune.load.gauges import wait_idle
from slotune.load.priming import PRIMING_TOKENS
from slotune.load.probe import IDLE_WAIT_S, probe_entries
from slotune.load.quiet import resting_collector
from slotune.load.records import RequestRecord
from slotune.load.reuse import measured_reuse
from slotune.load.target import Target, open_session
from slotune.load.trace import TraceEntry

__all__ = ["WARM_REQUESTS", "AloneTTFT", "alone", "probe_warm"]

WARM_REQUESTS = 3
"""Prompts whose prefix is known, behind the one that brings it."""


@dataclass(frozen=True, slots=True)
class AloneTTFT:
    """Some requests that had the server to themselves."""

    ttft_s: float | None
    """Median from the send; None when none was answered."""
    reuse: float | None
    """Share of their prompt tokens that came from a cache; None when the server did not say."""


async def probe_warm(
    target: Target,
    demand: Demand,
    *,
    seed: int,
    vocabulary: int | None = None,
    request_timeout_s: float = 300.0,
) -> AloneTTFT:
    """Send one prompt of the workload's mean length and :data:`WARM_REQUESTS` more with the same prefix, one at a time.

    Args:
        target: The server, idle.
        demand: A workload that declares sharing (``reusable_tokens`` above 0).
        seed: Selects the prompts: one of its own, so that no run finds their prefix.
        vocabulary: Tokens of the model; only synthetic prompts need it.
        request_timeout_s: Seconds after which a request is given up.
    """
    bodies = Bodies(demand, seed=seed, vocabulary=vocabulary, model=target.model)
    records = []
    with resting_collector():
        async with open_session(target) as session:
            for entry in _alike(demand, seed):
                await wait_idle(session, target, timeout_s=IDLE_WAIT_S)
                records.append(
                    await exchange_alone(
                        session, target, bodies(entry), entry, demand=demand, timeout_s=request_timeout_s
                    )
                )
    return alone(records[1:])


def alone(records: Sequence[RequestRecord]) -> AloneTTFT:
    """What requests that were sent one at a time add up to."""
    waits = [
        record.first_token_s - record.sent_s
        for record in records
        if record.first_token_s is not None and record.sent_s is not None
    ]
    return AloneTTFT(statistics.median(waits) if waits else None, measured_reuse(records))


def _alike(demand: Demand, seed: int) -> list[TraceEntry]:
    """Prompts of mean length that begin with one prefix: the most popular group's, or that of one real prompt."""
    entries = probe_entries(demand, WARM_REQUESTS + 1, seed)
    first = entries[0]
    return [
        replace(
            entry,
            prompt_id=first.prompt_id,
            prefix_group=None if entry.prefix_group is None else 0,
            max_tokens=min(PRIMING_TOKENS, entry.max_tokens),
        )
        for entry in entries
    ]
