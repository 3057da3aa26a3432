"""How fast a server reads prompts and writes answers, by whoever says it best: a probe, its log, or its counters."""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Running

__all__ = ["Speed", "counted_decode_speed", "decode_speed", "mean_decode_speed", "prefill_speed"]

LEAST_TOKENS = 64
"""Fewer tokens than these say nothing about a speed: a server that has hardly worked is no slow one."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens/s of one sequence."""

    tokens_per_s: float
    evidence: Evidence
    alone: bool
    """Whether nobody else was in the batch: else it is less than the server could do."""


def prefill_speed(symptoms: Symptoms) -> Speed | None:
    """Prompt tokens read per second."""
    if (probe := symptoms.probe) is not None:
        return Speed(
            probe.prefill_tokens_per_s,
            Evidence(
                Source.PROBE, f"{probe.prompt_tokens:,} tokens read at {probe.prefill_tokens_per_s:,.0f} tokens/s"
            ),
            probe.was_idle,
        )
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.prefill_tokens_per_s is not None:
        return _logged("prompts read", requests.prefill_tokens_per_s[2], requests.most_busy_slots)
    if (running := _running(symptoms)) is not None and running.prefill_tokens_per_s is not None:
        return Speed(running.prefill_tokens_per_s, _so_far(running), False)
    return _counted(symptoms, "prompt_tokens_total", "prompt_seconds_total")


def decode_speed(symptoms: Symptoms) -> Speed | None:
    """Tokens written per second to one user."""
    if (probe := symptoms.probe) is not None and probe.decode_step_s > 0:
        return Speed(
            1 / probe.decode_step_s,
            Evidence(Source.PROBE, f"a token every {1000 * probe.decode_step_s:.3g} ms"),
            probe.was_idle,
        )
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.decode_tokens_per_s is not None:
        return _logged("answers written", requests.decode_tokens_per_s[2], requests.most_busy_slots)
    if (running := _running(symptoms)) is not None and running.decode_tokens_per_s is not None:
        return Speed(running.decode_tokens_per_s, _so_far(running), False)
    return counted_decode_speed(symptoms)


def mean_decode_speed(symptoms: Symptoms) -> Speed | None:
    """Tokens written per second to one user on average over all that the log holds."""
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is None or requests.predicted_ms <= 0:
        return None
    written = requests.predicted_tokens - requests.requests  # the clock starts with the first token
    if written <= 0:
        return None
    words = f"{requests.predicted_tokens:,} tokens of {requests.requests:,} answers in {requests.predicted_ms:,.0f} ms"
    return Speed(1e3 * written / requests.predicted_ms, Evidence(Source.LOG, words), requests.most_busy_slots == 1)


def counted_decode_speed(symptoms: Symptoms) -> Speed | None:
    """The same by the server's own counters."""
    # Summed over slots, so the ratio is what one user sees.
    return _counted(symptoms, "tokens_predicted_total", "tokens_predicted_seconds_total")


def _running(symptoms: Symptoms) -> Running | None:
    """Of a request that had not finished; who was beside it is not said."""
    return None if symptoms.log is None else symptoms.log.running


def _so_far(running: Running) -> Evidence:
    return Evidence(Source.LOG, running.line.text, running.line.number)


def _logged(what: str, fastest: float, busy: int | None) -> Speed:
    """The fastest tenth: with others in the batch every request is slower than the server."""
    return Speed(fastest, Evidence(Source.LOG, f"{what} at {fastest:,.4g} tokens/s by the fastest tenth"), busy == 1)


def _counted(symptoms: Symptoms, tokens: str, seconds: str) -> Speed | None:
    metrics = None if symptoms.server is None else symptoms.server.metrics_later or symptoms.server.metrics
    if metrics is None:
        return None
    count, spent = metrics.get(tokens), metrics.get(seconds)
    if not count or not spent or count < LEAST_TOKENS:
        return None
    return Speed(count / spent, Evidence(Source.METRICS, f"{tokens} {count:.0f} in {seconds} {spent:.4g}"), False)
