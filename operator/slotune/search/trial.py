"""A trial (one candidate at one rate) and what came of it: the memory of every search."""

from __future__ import annotations

import enum
import hashlib
import json
from dataclasses import dataclass, field

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.load.cache_facts import CacheFacts
from slotune.load.device_facts import DeviceFacts
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.quality.divergence import Divergence
from slotune.search.noticed import Noticed
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["Purpose", "Trial", "TrialResult"]


class Purpose(enum.StrEnum):
    """Why a trial runs. Of those that put a server under load no part of their key, but for blocks of a comparison."""

    BASELINE = "baseline"  # what runs today, at today's replicas
    SEARCH = "search"
    CONFIRM = "confirm"  # a fresh start and fresh seeds for a would-be winner
    EXPLAIN = "explain"  # a step between baseline and winner: what each change bought
    PARTIAL = "partial"  # a confirmed candidate again at half its rate: what helps a full server may slow a quiet one
    FINALIST = "finalist"  # a short block of a comparison in turns: which of two equals has more room?
    SENTINEL = "sentinel"  # the idle probe of a server again, as a rule the baseline's: has the machine drifted?
    REFERENCE = "reference"  # the reference's answers are recorded
    QUALITY = "quality"  # a pair's answers are compared with them; those of the reference itself give the noise floor

    @property
    def puts_load(self) -> bool:
        """Whether requests are sent at a rate, so that the verdict is about the promise."""
        return self not in {Purpose.SENTINEL, Purpose.REFERENCE, Purpose.QUALITY}

    @property
    def asks_answers(self) -> bool:
        """Whether answers are looked at, one step at a time and at no rate."""
        return self in {Purpose.REFERENCE, Purpose.QUALITY}


_UNDER_LOAD = frozenset(
    {
        FailureClass.CRASHED,
        FailureClass.WEDGED,
        FailureClass.OUT_OF_MEMORY_RUNTIME,
        FailureClass.OUT_OF_MEMORY_HOST,
    }
)
"""Ends that a server may come to after it came up."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate measured at one rate. Immutable; its key is a function of what is measured."""

    candidate: Candidate
    rate: float
    """Requests per second that this one server gets; 0 where answers are looked at and nothing else."""
    seed_block: int = 0
    """Selects the seeds of all runs: 0 search, 1 confirmation, 2 half load, 3 and 4 a comparison of finalists."""
    confidence: float = 0.95
    attempt: int = 1
    """2 when the first measurement was Invalid, or of answers undecided."""
    purpose: Purpose = Purpose.SEARCH
    time_limit_s: float | None = None
    """Seconds that the measurement may take at most, start included; None means no limit."""

    def key(self, context: str = "") -> str:
        """Ten hex digits that name what is measured.

        ``context`` is the digest of all that is equal for every trial of one search (weights files,
        workload, SLO, measurement settings, engine build); for trials of answers, which depend on less, that of the
        question about quality. ``Problem.key`` takes the right one.
        """
        measured: dict[str, object] = {
            "candidate": self.candidate.as_said(),
            "rate": f"{self.rate:.6g}",
            "seeds": self.seed_block,
            "confidence": self.confidence,
            "attempt": self.attempt,
            "probe_only": self.purpose is Purpose.SENTINEL,
            "context": context,
        }
        if self.purpose.asks_answers:
            measured["answers"] = self.purpose.value
        if self.purpose is Purpose.FINALIST:
            measured["block"] = True
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
    quality: Divergence | None = None
    """How far the answers lie from the reference's, of a comparison."""
    reference: str = ""
    """Digest of the reference that was recorded or compared with."""
    device: DeviceFacts | None = None
    """What the accelerator did in the measured windows of all runs; None where nobody could watch it."""
    node: str = ""
    """Node of the cluster that it ran on; empty where there is one machine, or nobody said."""
    cache: CacheFacts | None = None
    """What the prompt cache served, could have served, and to whom; None where nothing is shared and none is used."""
    noticed: tuple[Noticed, ...] = ()
    """What was found of the server by its log, its arguments and its limits: what numbers can't tell."""

    @property
    def never_ran(self) -> bool:
        """Whether the server did not come up as asked, so that no slower rate can help.

        One that was up and then crashed or wedged did so under what it was asked at that moment.
        """
        return self.failure is not None and not (self.effective and self.failure in _UNDER_LOAD)

    @property
    def passed(self) -> bool:
        """Whether the promise was shown to hold."""
        return self.verdict.outcome is Outcome.PASS
