"""Show every slot the shared prefixes before a run, as a server that has run for a while has seen them.

Each slot keeps the prompt cache of its own. A server that was just started, or a run with prefixes of
its own, has cold slots, and the first burst that needs one pays for reading the whole prefix: seen as
late requests that a server in production would not have. A warm-up at the owed rate does not reach the
slots that only bursts use, so as many requests as there are slots are sent at once, short, and
forgotten; the rated warm-up comes after them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand
from slotune.load.exchange import Tally, exchange
from slotune.load.records import RequestRecord
from slotune.load.target import Target, open_session
from slotune.load.trace import Trace, TraceEntry

__all__ = ["prime_slots", "priming_entries"]

OTHER_NONCE = 0x9E3779B97F4A7C15
"""Makes the prompts others than those that the trace itself sends behind its window, while stragglers end."""

PRIMING_TOKENS = 2
"""Answers are cut short: only reading the prompt matters."""


async def prime_slots(
    target: Target,
    trace: Trace,
    demand: Demand,
    slots: int,
    *,
    vocabulary: int | None = None,
    request_timeout_s: float = 300.0,
) -> None:
    """Send ``slots`` requests of the trace's own prefixes at once, and wait for all of them.

    Their prompts share the trace's prefixes and nothing else, so none of them is asked again. What becomes of
    them is nobody's business: the run that follows shows it.
    """
    entries = priming_entries(trace, demand, slots)
    if not entries:
        return
    bodies = Bodies(demand, seed=trace.seed, vocabulary=vocabulary, model=target.model)
    start = time.perf_counter()
    async with open_session(target) as session:
        await asyncio.gather(
            *(
                exchange(
                    session,
                    target.url(path),
                    body,
                    RequestRecord(entry.index, entry.prompt_id, 0.0),
                    asked_tokens=entry.max_tokens,
                    exact=demand.ignore_eos,
                    start=start,
                    timeout_s=request_timeout_s,
                    tally=Tally(),
                )
                for entry in entries
                for path, body in (bodies(entry),)
            )
        )


def priming_entries(trace: Trace, demand: Demand, slots: int) -> list[TraceEntry]:
    """Return what :func:`prime_slots` sends; nothing where nothing is shared or no slot caches."""
    if slots < 1 or demand.reusable_tokens <= 0:
        return []
    return [
        replace(entry, nonce=entry.nonce ^ OTHER_NONCE, max_tokens=min(PRIMING_TOKENS, entry.max_tokens))
        for entry in itertools.islice(trace.continuation(), slots)
    ]
