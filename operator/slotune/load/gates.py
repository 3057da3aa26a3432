"""Was the measurement itself sound? Each gate finds one fault of the client or of its surroundings.

A missed gate makes a run Invalid: the numbers say nothing about the candidate. Gates are exact bookkeeping
or forgive one outlier, so that a run of a dozen requests is not thrown away for a single hiccup; and
overload of the *server* never trips one, because an overloaded candidate must fail, not be excused.

How late may the client be? TTFT counts from the scheduled time, so lag makes a candidate look worse, never
better. A p99 lag within 10 ms is what a healthy client does; a target far above a second can bear 1 % of
itself (a loop that shares two cores with the engine is late by more than 10 ms without changing any
answer about a promise of 5 s), so the limit is the larger of the two. For targets below a second 10 ms is
more than 1 %, so there a second gate asks the exact question: did lag above 1 % of the target turn a
request that was on time into a violation? Then the client decided, and the run is void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slotune.load.records import RequestRecord, RequestStatus, RunResult

__all__ = ["GATES", "check_run", "lag_limit_s", "nearly_largest"]

LAG_LIMIT_S = 0.010
LOOP_LAG_LIMIT_S = 0.005
LAG_SHARE_OF_TARGET = 0.01
RATE_TOLERANCE = 0.02
LITTLE_TOLERANCE = 0.05
LITTLE_SLACK_S = 0.001
"""Each request may lie between the two clocks' readings by this much: answers in a few milliseconds are no fault."""
COUNTER_TOLERANCE = 0.01
CPU_LIMIT = 0.70
BUFFERED_SHARE = 0.5
BUFFERED_TOKENS = 8
"""Answers of fewer tokens may well come in one piece."""


def check_run(run: RunResult, ttft_s: float | None = None) -> list[tuple[str, str]]:
    """Return (code, sentence) of all that makes ``run`` Invalid; empty when the measurement is sound.

    Args:
        run: A finished or stopped run.
        ttft_s: The TTFT target that it is measured for; None leaves the limits that depend on it at their floor.
    """
    found = ((code, gate(run, ttft_s)) for code, gate in GATES)
    return [(code, sentence) for code, sentence in found if sentence is not None]


def lag_limit_s(ttft_s: float | None, floor: float = LAG_LIMIT_S) -> float:
    """Return the lag that may be exceeded by one request in a hundred."""
    return max(floor, LAG_SHARE_OF_TARGET * (ttft_s or 0.0))


def client_out_of_resources(run: RunResult, ttft_s: float | None) -> str | None:
    """This machine ran out of ports or open files, so requests failed that never left it."""
    if not run.client_faults:
        return None
    return (
        f"{run.client_faults} requests could not be sent because this machine ran out of ports or open files: "
        f"raise ulimit -n or lower the rate"
    )


def client_was_late(run: RunResult, ttft_s: float | None) -> str | None:
    """Requests went out later than the trace planned."""
    lag, limit = nearly_largest(_lags(run)), lag_limit_s(ttft_s)
    if lag <= limit:
        return None
    return (
        f"the client sent requests up to {lag * 1e3:.0f} ms late (p99), {limit * 1e3:.0f} ms are allowed: "
        f"give it more CPU"
    )


def lag_made_violations(run: RunResult, ttft_s: float | None) -> str | None:
    """Requests missed the target only because they were sent late."""
    if ttft_s is None:
        return None
    flipped = sum(_flipped(record, ttft_s) for record in run.records)
    if not flipped:
        return None
    return f"{flipped} requests missed the target only because the client sent them late: give it more CPU"


def loop_was_slow(run: RunResult, ttft_s: float | None) -> str | None:
    """The event loop itself ran late, so times of arrival were stamped late."""
    limit = lag_limit_s(ttft_s, LOOP_LAG_LIMIT_S)
    if run.loop_lag_p99_s <= limit:
        return None
    return (
        f"the client's event loop ran {run.loop_lag_p99_s * 1e3:.1f} ms late (p99), {limit * 1e3:.0f} ms are "
        f"allowed: give it more CPU"
    )


def client_cpu_was_full(run: RunResult, ttft_s: float | None) -> str | None:
    """The client's core was so busy that its own queueing must show."""
    if run.client_cpu_share <= CPU_LIMIT:
        return None
    return (
        f"the client used {run.client_cpu_share:.0%} of a core, {CPU_LIMIT:.0%} are allowed: "
        f"use more processes or a lower rate"
    )


def rate_was_off(run: RunResult, ttft_s: float | None) -> str | None:
    """Requests did not come at the pace of the trace, from the first to the last one sent."""
    sent = [(record.sent_s, record.scheduled_s) for record in run.records if record.sent_s is not None]
    if len(sent) < 2:
        return None
    took = sent[-1][0] - sent[0][0]
    planned = sent[-1][1] - sent[0][1]
    # Two lags within their limit must not add up to a rate that is off: short runs would.
    if abs(took - planned) <= max(RATE_TOLERANCE * planned, 2 * lag_limit_s(ttft_s)):
        return None
    return (
        f"requests that were planned within {planned:.2f} s took {took:.2f} s to send, "
        f"{RATE_TOLERANCE:.0%} are allowed: the rate was not the one to be measured"
    )


def requests_got_lost(run: RunResult, ttft_s: float | None) -> str | None:
    """Little's law does not hold between requests in flight and their times, so some are missing or wrong.

    L = lambda W as exact bookkeeping: the integral of requests in flight, counted as they come and go, must
    equal the sum of the times that the records state. Both cover each measured request from its send to its
    end, so neither a short window nor a growing queue can upset it. A stopped run left requests out on purpose.
    """
    if run.stopped_early:
        return None
    stated = sum(
        record.finished_s - record.sent_s
        for record in run.records
        if record.finished_s is not None and record.sent_s is not None
    )
    slack = max(LITTLE_TOLERANCE * max(stated, run.in_flight_area_s), LITTLE_SLACK_S * len(run.records))
    if abs(stated - run.in_flight_area_s) <= slack:
        return None
    return (
        f"requests were in flight for {run.in_flight_area_s:.2f} s in all but their records say {stated:.2f} s: "
        f"records are missing or wrong"
    )


def server_was_busy_before(run: RunResult, ttft_s: float | None) -> str | None:
    """The server had work that was not ours when the run began."""
    if not run.busy_before:
        return None
    return (
        f"the server still had {run.busy_before} requests when the run began: "
        f"somebody else uses it, or it drains more slowly than it was waited for"
    )


def counters_disagree(run: RunResult, ttft_s: float | None) -> str | None:
    """The server made more or fewer tokens than this client was given.

    Requests that ended without a count make a range of what would agree.
    """
    if run.server_output_tokens is None or run.stopped_early:
        return None
    least = run.output_tokens_known + run.output_tokens_least
    most = run.output_tokens_known + run.output_tokens_most
    slack = COUNTER_TOLERANCE * most
    if least - slack <= run.server_output_tokens <= most + slack:
        return None
    cause = (
        "somebody else uses the server"
        if run.server_output_tokens > most
        else "answers were lost, or another server answered"
    )
    return (
        f"the server counted {run.server_output_tokens} generated tokens, its answers to this client "
        f"{least if least == most else f'{least} to {most}'}: {cause}"
    )


def tokens_were_not_counted(run: RunResult, ttft_s: float | None) -> str | None:
    """Answers came without timings or usage, so tokens per second can't be told."""
    answered = [record for record in run.records if record.status is RequestStatus.OK]
    silent = sum(record.output_tokens is None for record in answered)
    if not silent:
        return None
    return f"{silent} of {len(answered)} answers had neither timings nor usage: does a proxy strip the last event?"


def stream_was_buffered(run: RunResult, ttft_s: float | None) -> str | None:
    """Whole answers came in one piece, so something between hides when tokens were made."""
    long = [record for record in run.records if (record.output_tokens or 0) >= BUFFERED_TOKENS]
    buffered = sum(record.token_events == 1 for record in long)
    if not long or buffered <= BUFFERED_SHARE * len(long):
        return None
    return f"{buffered} of {len(long)} answers came in one piece: turn off response buffering between client and server"


GATES: tuple[tuple[str, Callable[[RunResult, float | None], str | None]], ...] = (
    ("ClientOutOfResources", client_out_of_resources),
    ("ClientLate", client_was_late),
    ("LagMadeViolations", lag_made_violations),
    ("ClientLoopSlow", loop_was_slow),
    ("ClientCPUFull", client_cpu_was_full),
    ("RateOff", rate_was_off),
    ("LittlesLaw", requests_got_lost),
    ("ServerBusyBefore", server_was_busy_before),
    ("CountersDisagree", counters_disagree),
    ("NoTokenCounts", tokens_were_not_counted),
    ("StreamBuffered", stream_was_buffered),
)
"""(code for machines, gate), most telling first."""


def nearly_largest(values: Sequence[float]) -> float:
    """Return the p99, of fewer than 200 values the second largest: one hiccup is no habit. 0 below two values."""
    if len(values) < 2:
        return 0.0
    return sorted(values)[-1 - max(1, len(values) // 100)]


def _lags(run: RunResult) -> list[float]:
    return [record.sent_s - record.scheduled_s for record in run.records if record.sent_s is not None]


def _flipped(record: RequestRecord, ttft_s: float) -> bool:
    if record.ttft_s is None or record.sent_s is None:
        return False
    lag = record.sent_s - record.scheduled_s
    return lag > LAG_SHARE_OF_TARGET * ttft_s and record.ttft_s > ttft_s >= record.ttft_s - lag
