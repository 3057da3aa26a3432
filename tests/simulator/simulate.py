"""One seeded run on the simulated server, in the records that a load client would have kept."""

from __future__ import annotations

from slotune.llama.candidate import Candidate
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from tests.simulator.machine import NO_CONTINUOUS_BATCHING, Machine, kv_bytes_per_token
from tests.simulator.scheduler import Served, Server, schedule
from tests.simulator.traffic import Traffic, traffic

__all__ = ["server_for", "simulate"]

_MIB = 1 << 20


def simulate(
    candidate: Candidate,
    facts: ModelFacts,
    machine: Machine,
    demand: Demand,
    rate: float,
    seed: int,
    requests: int = 200,
    warmup: int = 50,
) -> RunResult:
    """Serve ``warmup`` + ``requests`` requests at ``rate`` from an idle start; the warm-up is not kept.

    A noise-free client: every request is sent when it is due. Stragglers are followed to the end.
    """
    trace = traffic(demand, seed, warmup + requests)
    scheduled = [time / rate for time in trace.unit_times]
    served = schedule(
        server_for(candidate, facts, machine),
        [time + machine.request_overhead_s for time in scheduled],
        trace.prompt_tokens,
        [demand.output_tokens] * len(scheduled),
        trace.groups,
        trace.shared_prefix_tokens,
    )
    records = _records(trace, scheduled, served, warmup)
    begin = scheduled[warmup - 1] if warmup else 0.0
    return RunResult(
        seed=seed,
        rate=rate,
        records=records,
        trace_hash=f"simulated-{seed}",
        warmup_requests=warmup,
        window_s=scheduled[-1] - begin,
        window_token_events=sum(record.token_events for record in records),
        in_flight_area_s=sum(r.finished_s - r.scheduled_s for r in records if r.finished_s is not None),
        busy_samples=[sample for sample in served.busy_samples if begin <= sample[0] <= scheduled[-1]],
    )


def server_for(candidate: Candidate, facts: ModelFacts, machine: Machine) -> Server:
    """What ``candidate`` takes per step, per token and per copy on ``machine``."""
    kv = kv_bytes_per_token(facts, candidate)
    host = candidate.cache_ram_mib
    return Server(
        slots=candidate.parallel_slots,
        batch=min(candidate.batch_size, candidate.context_total),
        context=candidate.context_total if candidate.kv_unified else candidate.context_per_slot,
        pool=candidate.context_total,
        unified=candidate.kv_unified,
        static_batch=NO_CONTINUOUS_BATCHING in candidate.extra_args,
        reuse_prefix=candidate.cache_prompt,
        host_cache_tokens=float("inf") if host < 0 else host * _MIB / kv,
        save_idle_slots=candidate.cache_idle_slots,
        step_s=machine.step_overhead_s,
        weights_s=facts.active_weights_bytes / machine.bandwidth_bytes_per_s,
        context_token_s=kv / machine.bandwidth_bytes_per_s,
        prompt_token_s=1 / machine.prefill_speed(candidate),
        host_token_s=kv / machine.host_bytes_per_s,
    )


def _records(trace: Traffic, scheduled: list[float], served: Served, warmup: int) -> list[RequestRecord]:
    records = []
    for i in range(warmup, len(scheduled)):
        started, first, last, status = served.started[i], served.first[i], served.last[i], served.status[i]
        generated = served.generated[i]
        answered = first is not None
        records.append(
            RequestRecord(
                index=i,
                prompt_id=i,
                scheduled_s=scheduled[i],
                status=status,
                sent_s=scheduled[i],
                headers_s=started if started is not None or status is RequestStatus.OK else last,
                first_token_s=first,
                first_content_s=first,
                last_token_s=last if answered else None,
                finished_s=last,
                token_events=generated,
                longest_gap_s=served.longest_gap[i],
                prompt_tokens=served.computed[i] if answered else None,
                cached_tokens=served.cached[i] if answered else None,
                prompt_ms=1000 * (first - started) if first is not None and started is not None else None,
                output_tokens=generated if answered else None,
                predicted_ms=1000 * (last - first) if first is not None and last is not None else None,
                error=None if status is RequestStatus.OK else status.value,
            )
        )
    return records
