"""What a trial stands for in money: the replicas that its rate means, and what they cost a month."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.report.figures import count, finite, rate
from slotune.search.decision import Decision, monthly_cost
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = [
    "Today",
    "cost_of",
    "currency_of",
    "hardware_of",
    "load_of",
    "machines",
    "measured",
    "owed_wait",
    "p95_of",
    "pace_of",
    "replicas_at",
    "today_of",
]

_ROUNDING = 1e-6
"""peak / (peak / N) may end a hair above N."""


def replicas_at(problem: Problem, per_server: float) -> int | None:
    """Servers that share the peak when each gets ``per_server`` requests/s, at least one; None without a rate."""
    peak = finite(problem.demand.peak_rate)
    if peak is None or finite(per_server) is None or per_server <= 0:
        return None
    return max(1, math.ceil(peak / per_server - _ROUNDING))


def hardware_of(problem: Problem, candidate: Candidate) -> Hardware | None:
    """The GPU class that the candidate runs on; None when the problem does not list it."""
    return problem.hardware.get(candidate.gpu_class)


def currency_of(problem: Problem, candidate: Candidate) -> str:
    """Currency of the candidate's price."""
    hardware = hardware_of(problem, candidate)
    return hardware.currency if hardware else "USD"


def cost_of(problem: Problem, candidate: Candidate, replicas: int | None) -> Decimal | None:
    """Monthly cost of ``replicas`` servers; None when either is unknown."""
    hardware = hardware_of(problem, candidate)
    return None if hardware is None or replicas is None else monthly_cost(replicas, hardware.price_per_hour)


def machines(replicas: int | None, candidate: Candidate) -> str:
    """``4 × l4``."""
    return f"{'?' if replicas is None else replicas} × {candidate.gpu_class}"


def measured(results: Iterable[TrialResult]) -> tuple[TrialResult, ...]:
    """Trials that put a candidate under load: neither a sentinel's idle probe nor a look at answers."""
    return tuple(r for r in results if r.trial.purpose.puts_load)


@dataclass(frozen=True, slots=True)
class Today:
    """What runs now: its replicas and cost are known from the manifest even when nothing was measured."""

    candidate: Candidate
    replicas: int
    cost: Decimal | None
    result: TrialResult | None
    """The baseline's trial that speaks for today's load, else any trial of it; None when there is none."""
    keeps: bool | None
    """Whether the promise holds today; None when neither was shown."""


def today_of(problem: Problem, decision: Decision) -> Today:
    """Today's servers, measured or not."""
    choice = decision.today
    candidate = choice.candidate if choice else problem.baseline
    replicas = choice.replicas if choice else problem.replicas_today
    cost = choice.monthly_cost if choice else cost_of(problem, candidate, replicas)
    known = [choice.result if choice else None, decision.baseline_result]
    known += [step.result for step in decision.steps if step.name == "baseline"]
    results = [result for result in known if result is not None]
    for result in results:
        keeps = _keeps(problem, result, replicas)
        if keeps is not None:
            return Today(candidate, replicas, cost, result, keeps)
    return Today(candidate, replicas, cost, results[0] if results else None, None)


def _keeps(problem: Problem, result: TrialResult, replicas: int) -> bool | None:
    """A Pass speaks for its rate and slower ones, a Fail for its rate and faster ones."""
    owed = problem.demand.peak_rate / max(replicas, 1)
    if result.verdict.outcome is Outcome.PASS and result.trial.rate >= owed * (1 - _ROUNDING):
        return True
    if result.verdict.outcome is Outcome.FAIL and result.trial.rate <= owed * (1 + _ROUNDING):
        return False
    return None


def owed_wait(problem: Problem, result: TrialResult | None) -> float | None:
    """TTFT in seconds at the percentile that the promise is about (p95 when 5 % may be violations)."""
    share = problem.promise.violation_share
    if result is None or math.isclose(share, 0.05):
        return p95_of(result)
    quantiles = result.latencies.ttft_quantiles_s
    if len(quantiles) < 2:
        return None
    place = (1 - share) * (len(quantiles) - 1)
    low = min(int(place), len(quantiles) - 2)
    return finite(quantiles[low] + (quantiles[low + 1] - quantiles[low]) * (place - low))


def p95_of(result: TrialResult | None) -> float | None:
    """p95 TTFT in seconds as the verdict saw it, else as the latencies have it."""
    if result is None:
        return None
    judged = finite(result.verdict.ttft_p95_s)
    return judged if judged is not None else finite(result.latencies.ttft_p95_s)


def pace_of(result: TrialResult | None) -> float | None:
    """Tokens/s per user at the slow end (p5), as the verdict saw it, else as the latencies have it."""
    if result is None:
        return None
    judged = finite(result.verdict.tokens_per_second_p5)
    return judged if judged is not None else finite(result.latencies.tokens_per_second_p5)


def load_of(problem: Problem, result: TrialResult) -> str:
    """``1.2/s ×5``: what one server got, and how many such servers share the peak."""
    replicas = replicas_at(problem, result.trial.rate)
    return f"{rate(result.trial.rate)} ×{count(replicas)}"
