"""What the server did so far: how fast users were served, how much came from the cache, how many slots worked.

Counters are read as differences between two looks where enough happened in between, else since the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from slotune.diagnose.counting import counted
from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.symptoms import ProbeFacts, ServerLook, Symptoms
from slotune.llama.log_story import LogStory, Seen

__all__ = [
    "MANY_REQUESTS",
    "Measured",
    "busy_slots",
    "cached_share",
    "decode_alone",
    "grown",
    "line_of",
    "owed_speed",
    "prefill_alone",
    "prefill_share",
    "pressed",
    "prompt_tokens",
    "quoted",
    "read_again_s",
    "reading_s",
    "total",
    "user_speed",
]

ENOUGH_TOKENS: Final = 50
"""Of which a speed is told: one answer of a usual length."""
ENOUGH_STEPS: Final = 20
"""Decodes of which a mean is told."""
ROUNDED: Final = 2e-7
"""The server makes that mean with numbers of 24 bits: after millions of steps little is known of the last few."""
SURE_TO: Final = 0.1
"""Slots."""
FASTEST: Final = 1e7
"""Tokens/s that no server reaches: a time that says so was not measured."""
MANY_REQUESTS: Final = 10
"""From here on a share of requests is more than chance."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure, and where it was seen."""

    value: float
    evidence: Evidence
    alone: bool = False
    """Whether nothing ran beside it: else a speed is at least this."""


def quoted(seen: Seen) -> Evidence:
    """The last line that said it."""
    return Evidence.of_line(seen.last)


def line_of(log: LogStory) -> tuple[Evidence, ...]:
    """The timings of the slowest prompt, where the log has them."""
    example = None if log.requests is None else log.requests.example
    return () if example is None else (Evidence.of_line(example),)


def total(server: ServerLook, name: str) -> float | None:
    """A counter since the start, at the last look."""
    for metrics in (server.metrics_later, server.metrics):
        if metrics is not None and (value := metrics.get(name)) is not None:
            return value
    return None


def grown(server: ServerLook, name: str) -> float | None:
    """By how much a counter grew between the looks; None without two looks, or after a restart."""
    first = None if server.metrics is None else server.metrics.get(name)
    later = None if server.metrics_later is None else server.metrics_later.get(name)
    return None if first is None or later is None or later < first else later - first


def owed_speed(symptoms: Symptoms) -> float | None:
    """Tokens/s that are owed to each user; None: none are, or nobody says."""
    return None if symptoms.promise is None else symptoms.promise.tokens_per_second_per_user


def user_speed(symptoms: Symptoms) -> Measured | None:
    """Tokens/s of one request while others run beside it: by the server's counters, else by the log's median."""
    server = symptoms.server
    if server is not None:
        names = ("tokens_predicted_total", "tokens_predicted_seconds_total")
        for what, read in (("in between", grown), ("since the start", total)):
            tokens, seconds = (read(server, name) for name in names)
            if tokens is not None and seconds and tokens >= ENOUGH_TOKENS and tokens < FASTEST * seconds:
                speed = tokens / seconds
                text = f"{names[0]} / {names[1]} {what}: {speed:.1f} tokens/s"
                return Measured(speed, Evidence(Source.METRICS, text))
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.decode_tokens_per_s is not None:
        speed = requests.decode_tokens_per_s[1]
        text = f"median of {requests.requests} answers: {speed:.1f} tokens/s"
        return Measured(speed, Evidence(Source.LOG, text))
    return None


def decode_alone(symptoms: Symptoms) -> Measured | None:
    """Tokens/s of one request with nothing beside it: the probe's, else the fastest tenth in the log."""
    probe, requests = symptoms.probe, None if symptoms.log is None else symptoms.log.requests
    probed = logged = None
    if probe is not None and 1 / FASTEST < probe.decode_step_s < math.inf:
        speed = 1 / probe.decode_step_s
        text = f"one request alone: {speed:.1f} tokens/s"
        probed = Measured(speed, Evidence(Source.PROBE, text), probe.was_idle)
    if requests is not None and requests.decode_tokens_per_s is not None:
        speed = requests.decode_tokens_per_s[2]
        text = f"fastest tenth of {requests.requests} answers: {speed:.1f} tokens/s"
        logged = Measured(speed, Evidence(Source.LOG, text), requests.most_busy_slots == 1)
    return _nearest(probed, logged)


def prefill_alone(symptoms: Symptoms) -> Measured | None:
    """Prompt tokens/s with nothing beside them: the probe's, else the fastest tenth in the log."""
    probe, requests = symptoms.probe, None if symptoms.log is None else symptoms.log.requests
    probed = logged = None
    if probe is not None and 0 < probe.prefill_tokens_per_s < FASTEST:
        speed = probe.prefill_tokens_per_s
        text = f"prompts alone: {speed:,.0f} tokens/s"
        probed = Measured(speed, Evidence(Source.PROBE, text), probe.was_idle)
    if requests is not None and requests.prefill_tokens_per_s is not None:
        speed = requests.prefill_tokens_per_s[2]
        text = f"fastest tenth of {requests.requests} prompts: {speed:,.0f} tokens/s"
        logged = Measured(speed, Evidence(Source.LOG, text), requests.most_busy_slots == 1)
    return _nearest(probed, logged)


def read_again_s(symptoms: Symptoms, tokens: float) -> float | None:
    """Seconds that so many prompt tokens take with nothing beside them; None: nobody says how fast they are read."""
    speed = prefill_alone(symptoms)
    return None if speed is None else tokens / speed.value


def _nearest(probed: Measured | None, logged: Measured | None) -> Measured | None:
    """A probe that had the server to itself; else the faster, since what ran beside either made it slower."""
    if probed is not None and probed.alone:
        return probed
    known = [one for one in (probed, logged) if one is not None]
    return max(known, key=lambda one: one.value, default=None)


def cached_share(symptoms: Symptoms) -> tuple[float, int, Evidence] | None:
    """(Share of prompt tokens that came from the cache, prompt tokens in all, where); None: nobody counted."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.cached_tokens is not None:
        whole = requests.prompt_tokens + requests.cached_tokens
        if whole > 0:
            text = (
                f"{counted(requests.requests, 'request')}: {requests.cached_tokens:,} of {whole:,} prompt tokens cached"
            )
            return requests.cached_tokens / whole, whole, Evidence(Source.LOG, text)
    server = symptoms.server
    if server is None:
        return None
    cached, computed = total(server, "prompt_tokens_cached_total"), total(server, "prompt_tokens_total")
    if cached is None or computed is None or cached + computed <= 0:
        return None
    text = f"prompt_tokens_cached_total {cached:,.0f}, prompt_tokens_total {computed:,.0f}"
    return cached / (cached + computed), round(cached + computed), Evidence(Source.METRICS, text)


def busy_slots(server: ServerLook) -> Measured | None:
    """Mean slots that took part in a step: between the looks, else since the start."""
    decodes, name = "n_decode_total", "n_busy_slots_per_decode"
    steps = grown(server, decodes)
    if steps is not None and steps >= ENOUGH_STEPS and server.metrics is not None and server.metrics_later is not None:
        before, after = server.metrics.get(name) or 0.0, server.metrics_later.get(name) or 0.0
        earlier, later = server.metrics.get(decodes) or 0.0, server.metrics_later.get(decodes) or 0.0
        mean = (after * later - before * earlier) / steps  # the gauge is the mean since the start
        if ROUNDED * after * later <= SURE_TO * steps and mean >= 0:
            return Measured(mean, Evidence(Source.METRICS, f"{name} in {steps:,.0f} steps in between: {mean:.1f}"))
    steps, mean_ever = total(server, decodes), total(server, name)
    if steps is None or mean_ever is None or steps < ENOUGH_STEPS:
        return None
    return Measured(mean_ever, Evidence(Source.METRICS, f"{name} {mean_ever:.1f} since the start"))


def prefill_share(symptoms: Symptoms) -> float | None:
    """Part of the time in a slot that goes into the prompt; None: nobody counted."""
    requests = None if symptoms.log is None else symptoms.log.requests
    prompt: float | None = None
    predicted: float | None = None
    if symptoms.server is not None:
        prompt = total(symptoms.server, "prompt_seconds_total")
        predicted = total(symptoms.server, "tokens_predicted_seconds_total")
    if (prompt is None or predicted is None) and requests is not None:
        prompt, predicted = requests.prompt_ms, requests.predicted_ms
    return prompt / (prompt + predicted) if prompt and predicted is not None else None


def prompt_tokens(symptoms: Symptoms) -> float | None:
    """Mean tokens that a prompt leaves to compute; None: no request was logged."""
    requests = None if symptoms.log is None else symptoms.log.requests
    return requests.prompt_tokens / requests.requests if requests is not None and requests.requests else None


def reading_s(probe: ProbeFacts) -> float | None:
    """Seconds that a probe's prompt took to read; None: it was not timed, as by a server that makes no text."""
    speed = probe.prefill_tokens_per_s
    return probe.prompt_tokens / speed if 0 < speed < FASTEST and probe.prompt_tokens > 0 else None


def pressed(log: LogStory, slots: int) -> float | None:
    """Part of the log's time, start-up and pauses in it, in which a slot was at work; None without time stamps."""
    if log.requests is None or not log.seconds or log.seconds <= 0 or slots < 1:
        return None
    # A log that begins after its server did holds times of requests that were taken up before.
    return min(1.0, (log.requests.prompt_ms + log.requests.predicted_ms) / 1e3 / log.seconds / slots)
