"""What the load client keeps of one request, and of one run. Times are seconds on one monotonic clock."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from slotune.load.device_facts import DeviceFacts

__all__ = ["RequestRecord", "RequestStatus", "RunResult"]


class RequestStatus(enum.StrEnum):
    """How a request ended; everything but OK is a violation."""

    OK = "ok"
    HTTP_ERROR = "http-error"  # an answer outside 2xx
    STREAM_ERROR = "stream-error"  # an error event under HTTP 200, or a broken stream
    REFUSED = "refused"  # no connection
    NO_TOKENS = "no-tokens"  # the stream ended without a generated token
    TRUNCATED = "truncated"  # the context ran out, or fewer tokens came than were asked for with ignore_eos
    UNFINISHED = "unfinished"  # still running at the time limit


@dataclass(slots=True)
class RequestRecord:
    """One request. Every time is relative to the run's start; None means "never happened"."""

    index: int
    """Position in the trace; unique within a run."""
    prompt_id: int
    scheduled_s: float
    status: RequestStatus = RequestStatus.UNFINISHED
    sent_s: float | None = None
    headers_s: float | None = None
    """Response headers: llama-server flushes them when a slot takes the request (build 11549)."""
    first_token_s: float | None = None
    """First event that carries a generated token on any channel."""
    first_content_s: float | None = None
    """First non-reasoning token."""
    last_token_s: float | None = None
    finished_s: float | None = None
    token_events: int = 0
    longest_gap_s: float = 0.0
    """Longest pause between two token events: a neighbour's prefill shows here."""
    prompt_tokens: int | None = None
    """timings.prompt_n: prompt tokens that were computed, without cached ones."""
    cached_tokens: int | None = None
    prompt_ms: float | None = None
    output_tokens: int | None = None
    """timings.predicted_n."""
    predicted_ms: float | None = None
    drafted_tokens: int | None = None
    """timings.draft_n: tokens that were guessed ahead; None when none were, or the server does not say."""
    accepted_tokens: int | None = None
    """timings.draft_n_accepted: those of them that the model would have said."""
    error: str | None = None
    """Short, without prompt text."""

    @property
    def ttft_s(self) -> float | None:
        """First token minus the scheduled time (so a late client shows)."""
        return None if self.first_token_s is None else self.first_token_s - self.scheduled_s

    @property
    def tpot_s(self) -> float | None:
        """(t_last - t_first) / (n_out - 1); None below two tokens."""
        if self.first_token_s is None or self.last_token_s is None or (self.output_tokens or 0) < 2:
            return None
        assert self.output_tokens is not None
        return (self.last_token_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def tokens_per_second(self) -> float | None:
        """1/TPOT. None when undefined; infinity when all tokens came in one event."""
        tpot = self.tpot_s
        return None if tpot is None else (1 / tpot if tpot > 0 else float("inf"))


@dataclass(slots=True)
class RunResult:
    """One seeded run at one rate: the measured window only (warm-up is counted, not kept)."""

    seed: int
    rate: float
    """Requests per second that the trace planned."""
    records: list[RequestRecord] = field(default_factory=list)
    """In send order; requests *scheduled* in the window, whenever they finished."""
    trace_hash: str = ""
    warmup_requests: int = 0
    stopped_early: bool = False
    """The caller's stop rule ended the run: later requests were not sent."""
    window_s: float = 0.0
    invalid_reasons: list[tuple[str, str]] = field(default_factory=list)
    """(CamelCase code, sentence) of each validity gate that was missed."""
    loop_lag_p99_s: float = 0.0
    client_cpu_share: float = 0.0
    busy_samples: list[tuple[float, int, int]] = field(default_factory=list)
    """(time, requests processing, requests deferred) from /metrics, when it could be scraped."""
    busy_slots: float | None = None
    """Mean slots per decode over the run, from the server's counters; None when it did not say."""
    processes: int = 1
    """Client processes that shared the trace."""
    in_flight_area_s: float = 0.0
    """Integral of "measured requests in flight" over time, counted when requests come and go."""
    window_token_events: int = 0
    """Token events that arrived within the window, whichever request they belong to."""
    output_tokens_known: int = 0
    """Tokens that the server's answers state, over all requests, warm-up included."""
    output_tokens_least: int = 0
    """Token events of requests that ended without a count: the server made at least these."""
    output_tokens_most: int = 0
    """Tokens asked of requests that ended without a count: the server made at most these."""
    server_output_tokens: int | None = None
    """By how much the server's own counter moved from idle to idle; None when it could not be read."""
    busy_before: int = 0
    """Requests that the server still had, running or waiting, when this run began."""
    client_faults: int = 0
    """Requests that this machine, not the server, could not send (out of ports or files)."""
    device: DeviceFacts | None = None
    """What the accelerator did in the window; None where nobody could watch it."""
