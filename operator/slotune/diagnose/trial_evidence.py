"""The numbers of a trial that a finding rests on, and what it explains of the wait, each as its row of the table needs.

Seconds are those of the slowest requests where they are known: the promise is about them.
"""

from __future__ import annotations

from collections.abc import Callable

from slotune.diagnose.case import Case
from slotune.diagnose.durations import seconds
from slotune.diagnose.finding import Cost

__all__ = [
    "NOTHING_COUNTED",
    "cache_seen",
    "canaries_seen",
    "gaps_seen",
    "lost_to_floor",
    "lost_to_others",
    "parts_seen",
    "probe_seen",
    "speed_seen",
    "wait",
]

NOTHING_COUNTED = Cost()


def parts_seen(case: Case) -> str:
    """``slowest requests: queue 2.4 s, prefill 0.40 s, contention 0 ms, overhead 10 ms; 7.9 of 8 slots busy``."""
    parts = case.parts
    if parts is None:
        return f"p95 TTFT {_time(case.result.verdict.ttft_p95_s)}"
    whose = "slowest requests" if case.result.slowest is not None else "requests on average"
    busy = "" if case.busy_slots is None else f"; {case.busy_slots:.1f} of {case.slots} slots busy"
    cached = "" if case.cached_share is None else f"; {100 * case.cached_share:.0f} % of prompt tokens cached"
    return (
        f"{whose}: queue {seconds(parts.queue_s)}, prefill {seconds(parts.prefill_s)}, contention "
        f"{seconds(parts.contention_s)}, overhead {seconds(parts.overhead_s)}{busy}{cached}"
    )


def probe_seen(case: Case) -> str:
    """``idle server: 10,000 prompt tokens/s, 10 ms a token, 10 ms besides``."""
    probe = case.result.probe
    if probe is None:
        return "the idle server was not probed"
    return (
        f"idle server: {probe.prefill_tokens_per_s:,.0f} prompt tokens/s, {seconds(probe.decode_step_s)} a token, "
        f"{seconds(probe.overhead_s)} besides"
    )


def speed_seen(case: Case) -> str:
    """``slowest users: 24 tok/s; idle server: …``."""
    speed = "no speed" if case.speed is None else f"{case.speed:.0f} tok/s"
    busy = "" if case.busy_slots is None else f", {case.busy_slots:.1f} of {case.slots} slots busy"
    return f"slowest users: {speed}{busy}; {probe_seen(case)}"


def gaps_seen(case: Case) -> str:
    """``longest pause between two tokens: 0.40 s (p99)``."""
    return f"longest pause between two tokens: {_time(case.result.latencies.longest_gap_p99_s)} (p99)"


def cache_seen(case: Case) -> str:
    """``prompt cache: served 20 % of 60 % possible, slots alone 25 %; 20 prefixes, 8 slots, cacheRAMMiB 0``."""
    facts, candidate = case.result.cache, case.result.trial.candidate
    if facts is None:
        return f"{_share(case.cached_share)} of prompt tokens cached, {_share(case.reusable_share)} are shared"
    return (
        f"prompt cache: served {_share(facts.measured_reuse)} of {_share(facts.theoretical_reuse)} possible, slots "
        f"alone {_share(facts.slots_reuse)}; {facts.prefixes} prefixes, {candidate.parallel_slots} slots, cacheRAMMiB "
        f"{candidate.cache_ram_mib}"
    )


def canaries_seen(case: Case) -> str:
    """``canary prompts: differ by 0.3 nats without any cache``."""
    noise = None if case.result.cache is None else case.result.cache.canary_noise
    return f"canary prompts: differ by {0.0 if noise is None else noise:.2g} nats without any cache"


def wait(*names: str) -> Callable[[Case], Cost]:
    """What these parts of the wait (``queue_s``, …) explain of it."""

    def cost(case: Case) -> Cost:
        parts = case.parts
        if parts is None or case.ttft_s <= 0:
            return NOTHING_COUNTED
        explained = sum(getattr(parts, name) for name in names)
        return Cost(ttft_s=explained, ttft_share=explained / case.ttft_s)

    return cost


def lost_to_others(case: Case) -> Cost:
    """Share of the speed that one user alone has, and the slowest do not get."""
    probe, speed = case.result.probe, case.speed
    if probe is None or speed is None or probe.decode_step_s <= 0:
        return NOTHING_COUNTED
    return Cost(speed_share=max(0.0, 1 - speed * probe.decode_step_s))


def lost_to_floor(case: Case) -> Cost:
    """Share of the speed that memory bandwidth allows, and one user alone does not get."""
    probe, floor = case.result.probe, case.roofline_step_s
    if probe is None or floor is None or probe.decode_step_s <= 0:
        return NOTHING_COUNTED
    return Cost(speed_share=max(0.0, 1 - floor / probe.decode_step_s))


def _time(value: float | None) -> str:
    return "not measured" if value is None else seconds(value)


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.0f} %"
