"""Everything a search must know before it starts: what is owed, what may be tried, what it costs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.quality.limits import Limits, QualitySettings
from slotune.search.trial import Trial
from slotune.verdict.promise import Promise

__all__ = ["Budget", "Hardware", "Measurement", "Problem", "Pruned", "QualityQuestion"]


@dataclass(frozen=True, slots=True)
class Hardware:
    """One GPUClass."""

    name: str
    price_per_hour: Decimal
    memory_bytes: int | None = None
    """None: memory is never a reason to prune (a CPU node whose limit is unknown)."""
    bandwidth_bytes_per_s: float | None = None
    """Peak memory bandwidth: an optimistic bound on decode speed. None: no bound until something is measured."""
    replicas_max: int = 8
    is_gpu: bool = True
    """False for a CPU node: then the model lies in host memory."""
    currency: str = "USD"
    """Three letters (ISO 4217) that ``price_per_hour`` is in; only words depend on it."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """How much evidence a verdict takes."""

    confidence: float = 0.95
    requests_per_run: int = 200
    runs: int = 5
    warmup_requests: int = 50
    """Per run, at the same rate, discarded."""
    extensions: int = 1
    """How often an Inconclusive trial may add ``runs`` more runs. The confidence is shared among the looks."""
    base_seed: int = 7
    request_timeout_s: float = 300.0
    startup_timeout_s: float = 600.0
    drift_limit: float = 0.03
    """Share by which the sentinel may differ before the trials between are Invalid."""
    sentinel_every: int = 5
    """Trials on a GPU class between two sentinels there; 0 turns them off."""
    probe_requests: int = 5


@dataclass(frozen=True, slots=True)
class Budget:
    """Where a search must stop."""

    gpu_seconds: float = 7200.0
    trials: int = 200


@dataclass(frozen=True, slots=True)
class Pruned:
    """A candidate that is never started, and why."""

    candidate: Candidate
    code: str
    """CamelCase: ``DoesNotFit``, ``ContextTooSmall``, ``TTFTFloor``, ``DecodeFloor``, …"""
    reason: str


@dataclass(frozen=True, slots=True)
class QualityQuestion:
    """How far answers may move, and from what."""

    limits: Limits
    reference: str
    """Variant whose answers all others are compared with, with an f16 KV cache."""
    settings: QualitySettings = field(default_factory=QualitySettings)
    context: str = ""
    """Digest of what a comparison depends on besides its own weights file (the reference's, prompts, settings, engine
    build): less than a load trial does, so an SLO that changes asks nothing about answers again."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A search as a value. The same problem and the same results always give the same next step."""

    name: str
    promise: Promise
    demand: Demand
    hardware: Mapping[str, Hardware]
    models: Mapping[str, ModelFacts]
    candidates: tuple[Candidate, ...]
    """All that may be tried, the baseline among them; unique."""
    baseline: Candidate
    replicas_today: int = 1
    measurement: Measurement = field(default_factory=Measurement)
    budget: Budget = field(default_factory=Budget)
    memory_bytes: Mapping[Candidate, int] = field(default_factory=dict)
    """Predicted bytes on the device per candidate: a crash on memory removes all that need at least as much."""
    pruned: tuple[Pruned, ...] = ()
    """Candidates that were ruled out by the manifest or by memory before anything ran."""
    explain: bool = True
    """Measure what each change bought after a winner is confirmed."""
    quality: QualityQuestion | None = None
    """How far answers may move; None when nobody looks."""
    context: str = ""
    """Digest for :meth:`key`."""

    def context_of(self, trial: Trial) -> str:
        """Digest of all but ``trial`` itself that its result depends on."""
        if self.quality is None or not trial.purpose.asks_answers:
            return self.context
        return self._of_answers(self.quality, trial.candidate.variant)

    @property
    def contexts(self) -> frozenset[str]:
        """Digests of all that can be known here: for load, and for the answers of each weights file."""
        asked = self.quality
        return frozenset({self.context, *(self._of_answers(asked, name) for name in self.models if asked is not None)})

    def _of_answers(self, asked: QualityQuestion, variant: str) -> str:
        said = f"{asked.context}/{self.models[variant].identity}"
        return hashlib.sha256(said.encode()).hexdigest()[:16]

    def key(self, trial: Trial) -> str:
        """Ten hex digits that name what ``trial`` measures here."""
        return trial.key(self.context_of(trial))
