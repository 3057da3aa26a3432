"""Builders of facts for reports, with good defaults: a test says only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.search.decision import Choice, Decision, monthly_cost
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict

GIB = 1024**3
HOSTILE = "<script>alert('x')</script>\"&<b>"


@dataclass(frozen=True)
class Sample:
    """A search that ended."""

    problem: Problem
    decision: Decision
    results: tuple[TrialResult, ...]
    findings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def model(name: str, gigabytes: float, bits: float) -> ModelFacts:
    """An 8B model: 32 layers, 8 key-value heads of 128."""
    weights = int(gigabytes * 1e9)
    return ModelFacts(
        path=f"/models/secret-place/{name}.gguf",
        file_bytes=weights,
        identity=f"id-{name}",
        architecture="llama",
        quantization=name,
        context_length=131072,
        vocabulary=128256,
        embedding=4096,
        heads=32,
        layers=(LayerCache(1024, 1024),) * 32,
        weights_bytes=weights,
        active_weights_bytes=weights,
        bits_per_weight=bits,
    )


def quantiles(p50: float, p95: float, p99: float) -> tuple[float, ...]:
    """101 TTFT quantiles through the given points, rising slowly at first."""
    points = [(0, p50 * 0.45), (50, p50), (95, p95), (99, p99), (100, p99 * 1.15)]
    values = []
    for percent in range(101):
        (low, a), (high, b) = next((p, q) for p, q in pairwise(points) if p[0] <= percent <= q[0])
        share = (percent - low) / (high - low)
        values.append(a + (b - a) * share**1.3)
    return tuple(values)


def trial_result(
    candidate: Candidate,
    rate: float,
    outcome: Outcome,
    *,
    reason: str,
    code: str = "",
    p95: float | None = None,
    tokens: float | None = None,
    split: tuple[float, float, float, float] | None = None,
    violations: int = 0,
    requests: int = 1000,
    planned: int = 1000,
    confidence: float = 0.95,
    purpose: Purpose = Purpose.SEARCH,
    seed_block: int = 0,
    seconds: float = 300.0,
    cached: float | None = None,
    failure: FailureClass | None = None,
    warnings: tuple[str, ...] = (),
) -> TrialResult:
    """A result with plausible latencies around ``p95``; ``split`` is queue, prefill, contention, overhead."""
    latencies = Latencies()
    if p95 is not None:
        latencies = Latencies(
            ttft_p50_s=p95 * 0.62,
            ttft_p95_s=p95,
            ttft_p99_s=p95 * 1.2,
            tokens_per_second_p5=tokens,
            tokens_per_second_p50=None if tokens is None else tokens * 1.2,
            longest_gap_p99_s=0.1,
            ttft_quantiles_s=quantiles(p95 * 0.62, p95, p95 * 1.2),
            output_tokens_per_s=rate * 250,
            mean_output_tokens=250,
            mean_prompt_tokens=4000,
        )
    return TrialResult(
        trial=Trial(candidate, rate, seed_block=seed_block, confidence=confidence, purpose=purpose),
        verdict=Verdict(
            outcome,
            reason,
            code or {"Pass": "PromiseKept", "Fail": "TooManyViolations"}.get(outcome.value, "TooClose"),
            confidence,
            requests=requests,
            violations=violations,
            effective_requests=requests * 0.7 if requests else None,
            share_upper=0.04 if outcome is Outcome.PASS else None,
            run_share_upper=0.042 if outcome is Outcome.PASS else None,
            ttft_p95_s=p95,
            ttft_p95_upper_s=None if p95 is None or outcome is not Outcome.PASS else p95 * 1.14,
            tokens_per_second_p5=tokens,
        ),
        gpu_seconds=seconds,
        failure=failure,
        probe=IdleProbe(0.004, 10_000, 0.0102),
        latencies=latencies,
        attribution=None if split is None else Attribution(*split, cached_share=cached, busy_slots=6.0),
        slowest=None if split is None or p95 is None else _slowest(split, p95),
        planned_requests=planned,
        run_violation_shares=(0.01, 0.02, 0.02, 0.03, 0.01),
        memory_bytes=18 * GIB,
        effective=(("build", "b11549-8f2c1d0"), ("parallelSlots", str(candidate.parallel_slots))),
        warnings=warnings,
        log_tail=("a log line that must stay out of reports",),
        trace_hashes=("3f9a", "77c0"),
        started_at="2026-02-03T10:00:00Z",
    )


def _slowest(split: tuple[float, float, float, float], p95: float) -> Attribution:
    """The slowest 5 % wait a little longer than p95, and most of that in the queue."""
    _, prefill, contention, overhead = split
    rest = max(p95 * 1.04 - prefill - overhead, 0.0)
    shared = min(contention * 2, rest)
    return Attribution(rest - shared, prefill, shared, overhead)


def choice(problem: Problem, result: TrialResult, replicas: int, headroom: float = 1.0) -> Choice:
    """``result`` as a choice, with both costs worked out."""
    price = problem.hardware[result.trial.candidate.gpu_class].price_per_hour
    tokens_per_hour = Decimal(str(problem.demand.peak_rate)) * problem.demand.output_tokens * 3600
    return Choice(
        result.trial.candidate,
        replicas,
        monthly_cost(replicas, price),
        price * replicas / tokens_per_hour * 1_000_000,
        result,
        headroom,
    )
