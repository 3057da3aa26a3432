"""How fast a server reads prompts and writes answers, by whoever says it best: a probe, its log, or its counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.rules.settings import slots
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.log_story import Running

__all__ = ["Speed", "counted_decode_speed", "decode_speed", "mean_decode_speed", "prefill_speed"]

PROBED: Final = "by the probe"
LEAST_TOKENS = 64
"""Fewer tokens than these say nothing about a speed: a server that has hardly worked is no slow one."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens/s of one sequence."""

    tokens_per_s: float
    evidence: Evidence
    alone: bool | None
    """Whether nobody else was in the batch: else it is less than the server could do. None: nobody says."""
    basis: str = ""
    """Of which requests, in a few words."""
    is_mean: bool = False
    """Whether of all that the server was asked, however short: what it can do is more."""


def prefill_speed(symptoms: Symptoms) -> Speed | None:
    """Prompt tokens read per second."""
    if (probe := symptoms.probe) is not None:
        return Speed(
            probe.prefill_tokens_per_s,
            Evidence(
                Source.PROBE, f"{probe.prompt_tokens:,} tokens read at {probe.prefill_tokens_per_s:,.0f} tokens/s"
            ),
            probe.was_idle,
            PROBED,
        )
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.prefill_tokens_per_s is not None:
        return _logged("prompts read", requests.prefill_tokens_per_s[2], requests.most_busy_slots)
    if (running := _running(symptoms)) is not None and running.prefill_tokens_per_s is not None:
        return Speed(
            running.prefill_tokens_per_s,
            Evidence.of_line(running.line),
            _one_slot(symptoms),
            "by one request so far",
            is_mean=True,
        )
    return _counted(symptoms, "prompt_tokens_total", "prompt_seconds_total")


def decode_speed(symptoms: Symptoms) -> Speed | None:
    """Tokens written per second to one user."""
    if (probe := symptoms.probe) is not None and probe.decode_step_s > 0:
        return Speed(
            1 / probe.decode_step_s,
            Evidence(Source.PROBE, f"a token every {1000 * probe.decode_step_s:.3g} ms"),
            probe.was_idle,
            PROBED,
        )
    requests = None if symptoms.log is None else symptoms.log.requests
    if requests is not None and requests.decode_tokens_per_s is not None:
        return _logged("answers written", requests.decode_tokens_per_s[2], requests.most_busy_slots)
    if (running := _running(symptoms)) is not None and running.decode_tokens_per_s is not None:
        return Speed(
            running.decode_tokens_per_s,
            Evidence.of_line(running.line),
            _one_slot(symptoms),
            "by one request so far",
            is_mean=True,
        )
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
    alone = _had_one(requests.most_busy_slots)
    return Speed(1e3 * written / requests.predicted_ms, Evidence(Source.LOG, words), alone, "on average in the log")


def counted_decode_speed(symptoms: Symptoms) -> Speed | None:
    """The same by the server's own counters."""
    # Summed over slots, so the ratio is what one user sees.
    return _counted(symptoms, "tokens_predicted_total", "tokens_predicted_seconds_total")


def _running(symptoms: Symptoms) -> Running | None:
    """Of a request that had not finished; who was beside it is not said."""
    return None if symptoms.log is None else symptoms.log.running


def _logged(what: str, fastest: float, busy: int | None) -> Speed:
    """The fastest tenth: with others in the batch every request is slower than the server."""
    evidence = Evidence(Source.LOG, f"{what} at {fastest:,.4g} tokens/s by the fastest tenth")
    return Speed(fastest, evidence, _had_one(busy), "by the fastest tenth in the log")


def _had_one(busy: int | None) -> bool | None:
    return None if busy is None else busy == 1


def _one_slot(symptoms: Symptoms) -> bool | None:
    """Whether there can be nobody beside; None: there are other slots, or nobody says."""
    known = slots(symptoms)
    return True if known is not None and known.value == 1 else None


def _counted(symptoms: Symptoms, tokens: str, seconds: str) -> Speed | None:
    metrics = None if symptoms.server is None else symptoms.server.metrics_later or symptoms.server.metrics
    if metrics is None:
        return None
    count, spent = metrics.get(tokens), metrics.get(seconds)
    if not count or not spent or count < LEAST_TOKENS:
        return None
    alone, busy = _one_slot(symptoms), metrics.get("n_busy_slots_per_decode")
    if alone is None and busy is not None and busy > 1:
        alone = False
    evidence = Evidence(Source.METRICS, f"{tokens} {count:.0f} in {seconds} {spent:.4g}")
    return Speed(count / spent, evidence, alone, "on average since the start", is_mean=True)
