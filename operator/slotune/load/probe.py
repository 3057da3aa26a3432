"""How fast is the server with nothing else to do: a few requests, one at a time, nothing cached.

Overhead, prefill speed and decode step of an idle server are what the rest of TTFT is measured against:
what is left under load is queue and contention.
"""

from __future__ import annotations

import secrets
import statistics
from dataclasses import replace

from slotune.load.bodies import Bodies
from slotune.load.demand import Demand
from slotune.load.exchange import exchange_alone
from slotune.load.gauges import wait_idle
from slotune.load.quiet import resting_collector
from slotune.load.records import RequestRecord
from slotune.load.sharing import prompt_bytes
from slotune.load.summary import IdleProbe
from slotune.load.target import Target, open_session
from slotune.load.trace import TraceEntry, build_trace

__all__ = ["PROBE_OUTPUT_TOKENS", "IdleProbeError", "probe_entries", "probe_idle", "send_probes", "summarize_probes"]

PROBE_OUTPUT_TOKENS = 64
"""Most tokens that a probe asks for: enough steps for a mean."""

IDLE_WAIT_S = 30.0
DISCARD_FROM = 3
"""With this many requests or more the first is discarded: a fresh server still compiles or warms something."""


class IdleProbeError(RuntimeError):
    """No probe was answered with timings. ``records`` hold what came instead."""

    def __init__(self, records: list[RequestRecord]) -> None:
        self.records = records
        said = sorted({record.error or f"{record.status}, without timings" for record in records})
        super().__init__(
            f"none of {len(records)} idle probes was answered with timings ({'; '.join(said)}): "
            f"is this a llama-server, and does the prompt fit its context?"
        )


async def probe_idle(
    target: Target,
    demand: Demand,
    requests: int,
    *,
    vocabulary: int | None = None,
    seed: int | None = None,
    request_timeout_s: float = 300.0,
) -> IdleProbe:
    """Measure the idle server with ``requests`` requests of the workload's mean prompt length.

    overhead = median of (TTFT from the send - prompt_ms); prefill speed = median of prompt_n / prompt_ms;
    decode step = median of predicted_ms / (predicted_n - 1), because predicted_ms runs from the first
    token to the last.

    Args:
        target: The server.
        demand: The workload.
        requests: How many, 1 or more.
        vocabulary: Tokens of the model; only synthetic prompts need it.
        seed: Selects the prompts; None draws one, so that a second probe of a server finds nothing cached.
        request_timeout_s: Seconds after which a request is given up.

    Raises:
        IdleProbeError: not one request was answered with timings.
        DemandError: the demand makes no traffic.
    """
    records = await send_probes(
        target, demand, requests, vocabulary=vocabulary, seed=seed, request_timeout_s=request_timeout_s
    )
    return summarize_probes(records)


async def send_probes(
    target: Target,
    demand: Demand,
    requests: int,
    *,
    vocabulary: int | None = None,
    seed: int | None = None,
    request_timeout_s: float = 300.0,
    idle_wait_s: float = IDLE_WAIT_S,
) -> list[RequestRecord]:
    """Return what came of each request of :func:`probe_idle` that counts: the first of several is left out.

    All are cold: no prompt shares anything with any other.
    ``idle_wait_s``: seconds that each may wait for an idle server before it is sent anyway.
    """
    if seed is None:
        seed = secrets.randbits(32)
    bodies = Bodies(demand, seed=seed, vocabulary=vocabulary, model=target.model)
    records: list[RequestRecord] = []
    with resting_collector():
        async with open_session(target) as session:
            for entry in probe_entries(demand, requests, seed):
                await wait_idle(session, target, timeout_s=idle_wait_s)
                request = bodies.uncached(entry)
                records.append(
                    await exchange_alone(session, target, request, entry, demand=demand, timeout_s=request_timeout_s)
                )
    return records[1:] if len(records) >= DISCARD_FROM else records


def probe_entries(demand: Demand, requests: int, seed: int) -> list[TraceEntry]:
    """Return requests as the workload has them, but of its mean length."""
    tokens = min(demand.output_tokens, PROBE_OUTPUT_TOKENS)
    entries = [
        replace(entry, max_tokens=tokens)
        for entry in build_trace(demand, rate=1.0, seed=seed, requests=requests).entries
    ]
    if demand.synthetic is not None:
        return [replace(entry, input_tokens=demand.synthetic.input_tokens_mean) for entry in entries]
    sizes = [prompt_bytes(prompt) for prompt in demand.prompts]
    mean = statistics.fmean(sizes)
    typical = sorted(range(len(sizes)), key=lambda prompt_id: (abs(sizes[prompt_id] - mean), prompt_id))
    return [replace(entry, prompt_id=typical[number % len(typical)]) for number, entry in enumerate(entries)]


def summarize_probes(records: list[RequestRecord]) -> IdleProbe:
    """Return what probes say.

    Raises:
        IdleProbeError: not one of them was answered with timings.
    """
    overheads, speeds, steps = [], [], []
    for record in records:
        first, sent = record.first_token_s, record.sent_s
        if first is None or sent is None or not record.prompt_ms or not record.prompt_tokens:
            continue
        overheads.append(max(0.0, first - sent - record.prompt_ms / 1e3))
        speeds.append(record.prompt_tokens / (record.prompt_ms / 1e3))
        if record.predicted_ms and (record.output_tokens or 0) > 1:
            steps.append(record.predicted_ms / 1e3 / ((record.output_tokens or 0) - 1))
    if not speeds:
        raise IdleProbeError(records)
    return IdleProbe(
        overhead_s=statistics.median(overheads),
        prefill_tokens_per_s=statistics.median(speeds),
        # One token an answer has no step between two; the prompt's own pass is all there is.
        decode_step_s=statistics.median(steps) if steps else 0.0,
        prefill_tokens_per_s_best=max(speeds),
        decode_step_s_best=min(steps, default=None),
    )
