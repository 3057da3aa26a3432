"""How many tokens one step of a server writes: one, or with speculation those that it guessed right as well.

A step of the model checks all guesses at once and gives one token more than it accepts. What a draft model reads for a
guess is part of what the step costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from slotune.diagnose.evidence import Evidence, Source
from slotune.diagnose.rules import settings
from slotune.diagnose.symptoms import Symptoms
from slotune.llama.flag_cures import DRAFT_MODELS

__all__ = ["Speculating", "speculating"]

LEAST_STEPS = 16
"""Fewer steps than these say nothing about how many tokens one writes."""


@dataclass(frozen=True, slots=True)
class Speculating:
    """Whether guesses are made, and what became of them."""

    is_on: bool | None
    """None: nobody says."""
    tokens_per_step: float | None = 1.0
    """On average over all answers; None: it speculates, and nobody says with what success."""
    drafts_per_step: float = 0.0
    """Tokens that a draft model wrote for one step."""
    evidence: Evidence | None = None


def speculating(symptoms: Symptoms) -> Speculating:
    """As the log counted, else as the server, its log or its arguments say that it does."""
    log = symptoms.log
    requests = None if log is None else log.requests
    if requests is not None and requests.drafted_tokens:
        words = (
            f"draft acceptance: {requests.accepted_tokens:,} of {requests.drafted_tokens:,} guessed tokens in "
            f"{requests.predicted_tokens:,} written"
        )
        evidence = Evidence(Source.LOG, words)
        written = requests.predicted_tokens - requests.requests  # the first of each comes out of the prompt's own pass
        steps = written - requests.accepted_tokens
        if steps < LEAST_STEPS:
            return Speculating(True, None, evidence=evidence)
        return Speculating(True, written / steps, requests.drafted_tokens / steps, evidence)
    said = _said_to(symptoms)
    if said is not None:
        # It found nothing to guess in what was asked so far.
        unused = requests is not None and requests.predicted_tokens >= LEAST_STEPS
        return Speculating(True, 1.0 if unused else None, evidence=said)
    slots = None if symptoms.server is None else symptoms.server.slots
    denied = slots is not None and any(slot.speculative is False for slot in slots)
    known = denied or (log is not None and log.facts.speculation is False) or settings.has_defaults(symptoms)
    return Speculating(False if known or requests is not None else None)


def _said_to(symptoms: Symptoms) -> Evidence | None:
    """Who says that it speculates."""
    slots = None if symptoms.server is None else symptoms.server.slots
    if slots is not None and any(slot.speculative for slot in slots):
        return Evidence(Source.SLOTS, "speculative: true")
    log = symptoms.log
    if log is not None and (log.facts.speculation is not None or log.facts.speculation_error is not None):
        if not log.facts.speculation or log.facts.speculation_error is not None:
            return None
        line = log.fact_lines.get("speculation")
        return Evidence(
            Source.LOG, "it speculates" if line is None else line.text, None if line is None else line.number
        )
    kind = settings.stated(symptoms, "--spec-type")
    if kind is not None:
        return None if kind.values[:1] in ((), ("none",)) else settings.said(kind)
    drafts = (Evidence(Source.FLAGS, name) for name in DRAFT_MODELS if settings.stated(symptoms, name) is not None)
    return next(drafts, None)
