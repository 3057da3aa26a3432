"""A trial (one candidate at one rate) and what came of it: the memory of every search."""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import asdict, dataclass, field

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["Purpose", "Trial", "TrialResult"]


class Purpose(enum.StrEnum):
    """Why a trial runs; it does not change what is measured, so it is no part of the key."""

    BASELINE = "baseline"  # what runs today, at today's replicas
    SEARCH = "search"
    CONFIRM = "confirm"  # a fresh start and fresh seeds for a would-be winner
    EXPLAIN = "explain"  # a step between baseline and winner: what each change bought
    SENTINEL = "sentinel"  # the baseline's idle probe again: has the machine drifted?


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate measured at one rate. Immutable; its key is a function of what is measured."""

    candidate: Candidate
    rate: float
    """Requests per second that this one server gets."""
    seed_block: int = 0
    """Selects the seeds of all runs; a confirmation uses another block than the search."""
    confidence: float = 0.95
    attempt: int = 1
    """2 when the first measurement was Invalid."""
    purpose: Purpose = Purpose.SEARCH
    time_limit_s: float | None = None
    """Seconds that the measurement may take at most, start included; None means no limit."""

    def key(self, context: str = "") -> str:
        """Ten hex digits that name what is measured.

        ``context`` is the digest of all that is equal for every trial of one search (weights files,
        workload, SLO, measurement settings, engine build).
        """
        measured = {
            "candidate": asdict(self.candidate),
            "rate": f"{self.rate:.6g}",
            "seeds": self.seed_block,
            "confidence": self.confidence,
            "attempt": self.attempt,
            "probe_only": self.purpose is Purpose.SENTINEL,
            "context": context,
        }
        return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What one trial found. Everything the search, the decision and the report need; small enough for a status."""

    trial: Trial
    verdict: Verdict
    gpu_seconds: float
    """Seconds that the GPU was held, start and warm-up included."""
    failure: FailureClass | None = None
    failure_knob: str | None = None
    """The setting to lower or change, e.g. ``contextSizePerSlot``."""
    probe: IdleProbe | None = None
    latencies: Latencies = field(default_factory=Latencies)
    attribution: Attribution | None = None
    slowest: Attribution | None = None
    """The same over the slowest 5 % of requests: what p95 TTFT is made of, which the mean may hide."""
    planned_requests: int = 0
    """Requests of a full measurement; ``verdict.requests`` is below it when the trial was stopped early."""
    run_violation_shares: tuple[float, ...] = ()
    memory_bytes: int | None = None
    """Model + KV + compute buffers as the engine's log states them."""
    compute_buffer_bytes: int | None = None
    """Learned per ubatch: corrects the prediction for other candidates."""
    host_memory_peak_bytes: int | None = None
    effective: tuple[tuple[str, str], ...] = ()
    """(name, value) of the configuration that /props, /slots and the log confirm."""
    warnings: tuple[str, ...] = ()
    log_tail: tuple[str, ...] = ()
    trace_hashes: tuple[str, ...] = ()
    started_at: str = ""
    """RFC 3339, UTC."""

    @property
    def passed(self) -> bool:
        """Whether the promise was shown to hold."""
        return self.verdict.outcome is Outcome.PASS
