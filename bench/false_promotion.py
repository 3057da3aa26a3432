"""How often a configuration that just misses the promise is promoted, and how often one with room to spare is.

The whole procedure of the product decides: the search's own trials with their extension, curtailment and verdicts, and
the confirmation on fresh seeds (``slotune.search.next_step`` asks, ``slotune.verdict.judge`` judges). The server is a
discrete-event model, so the rate at which exactly 5 % of requests violate is known.

BENCH_FULL=1 takes 1,000 replications of the boundary (about 20 minutes); without it 400, and a coarser curve.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from bench.queue_model import MODEL, PROMISE, WORKLOADS, Boundary, Workload, boundary, runs_of_a_trial
from slotune.llama.candidate import Candidate
from slotune.load.records import RunResult
from slotune.sandbox.measurement import run_seed
from slotune.search.best_first import next_step
from slotune.search.bounds import Bounds
from slotune.search.decision import Decision, DecisionKind
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned
from slotune.search.trial import Trial, TrialResult
from slotune.verdict.binomial import pass_limit, share_lower, share_upper
from slotune.verdict.curtailment import StopRule
from slotune.verdict.judge import judge
from slotune.verdict.verdicts import Outcome, Verdict
from slotune.verdict.violations import violation_of

__all__ = ["Promotion", "compare", "main", "promote", "promotions"]

FULL = os.environ.get("BENCH_FULL", "") not in ("", "0")
REPLICATIONS = 1000 if FULL else 400
POWER_REPLICATIONS = 300 if FULL else 100
COMPARED = 200 if FULL else 60
CURVE_REPLICATIONS = 40 if FULL else 10
CALIBRATION = 4_000_000 if FULL else 1_000_000
"""Requests from which a boundary is found."""
SURE = 0.95
"""Of the bounds that are printed."""
MOST_FALSE = 0.05
LEAST_POWER = 0.80
ROOM = 0.8
"""Rate of a configuration that should pass, over the boundary rate."""
MOST_REQUESTS = 4000
CURVE_RATES = (0.9, 0.8, 0.7)
CURVE_RUNS = (50, 100, 200, 400)
"""Requests of a run; times 5 runs, 2 looks and 2 trials they are 1,000 to 8,000 in all."""


@dataclass(frozen=True)
class Promotion:
    """What became of one configuration."""

    promoted: bool
    """Passed and confirmed."""
    passed_once: bool
    """Passed its first trial."""
    requests: int
    """Measured, over all trials."""


@dataclass(frozen=True)
class _OneRate:
    """Bounds that leave the owed rate as the only question."""

    rate: float

    def capacity_at_most(self, candidate: Candidate) -> float:
        del candidate
        return self.rate

    def floor(self, candidate: Candidate) -> Pruned | None:
        del candidate
        return None


def main() -> int:
    """Print the tables; 0 when both targets are met for every workload."""
    boundaries = {workload: boundary(workload, CALIBRATION) for workload in WORKLOADS}
    print("Rate at which 5 % of requests violate, with its standard error:")
    for workload, found in boundaries.items():
        print(
            f"  {workload.name:<34} {found.rate:.4f} ± {found.standard_error:.4f} requests/s "
            f"(5 % ± {_percent(found.share_error, 2)})",
            flush=True,
        )
    met = [
        _false(boundaries),
        _power(boundaries),
    ]
    _comparison(boundaries)
    _curve(boundaries)
    return 0 if all(met) else 1


def promotions(
    workload: Workload, rate: float, replications: int, measurement: Measurement | None = None
) -> Iterator[Promotion]:
    """The whole procedure again and again, with other seeds each time."""
    for replication in range(replications):
        yield promote(workload, rate, replace(measurement or Measurement(), base_seed=replication, sentinel_every=0))


def promote(workload: Workload, rate: float, measurement: Measurement) -> Promotion:
    """Ask the search what to measure, measure it, until it decides."""
    problem = Problem(
        name="false-promotion",
        promise=PROMISE,
        demand=replace(workload.demand, peak_rate=rate),
        hardware={"gpu": Hardware("gpu", Decimal(1), replicas_max=1)},
        models={"Q4_K_M": MODEL},
        candidates=(workload.candidate,),
        baseline=workload.candidate,
        measurement=measurement,
        budget=Budget(gpu_seconds=1e12),
        explain=False,
    )

    def bounds(*_: object) -> Bounds:
        return _OneRate(rate)

    results: list[TrialResult] = []
    requests = 0
    while not isinstance(step := next_step(problem, results, bounds), Decision):
        verdict = _measure(workload, step, measurement)
        requests += verdict.requests
        results.append(TrialResult(step, verdict, 0.0))
    return Promotion(step.kind is DecisionKind.FOUND, results[0].passed, requests)


def compare(workload: Workload, rate: float, replication: int) -> Counter[str]:
    """Which rules pass the same 5 × 200 requests at 95 %, in one look."""
    runs = _runs(workload, rate, Measurement(base_seed=replication), 0, 5)
    plain = judge(runs, PROMISE, confidence=0.95, planned_requests=1000)
    ours = judge(runs, PROMISE, confidence=0.95, planned_requests=1000, demand=workload.demand)
    return Counter(
        {
            "point estimate": plain.violations <= 50,
            "naive binomial": plain.violations <= pass_limit(1000, 0.05, 0.95),
            "clusters and runs": plain.outcome is Outcome.PASS,
            "and the crowd's luck": ours.outcome is Outcome.PASS,
        }
    )


def _runs(workload: Workload, rate: float, settings: Measurement, block: int, count: int) -> list[RunResult]:
    seeds = [run_seed(settings.base_seed, block, number) for number in range(count)]
    return runs_of_a_trial(workload, rate, seeds, requests=settings.requests_per_run, warmup=settings.warmup_requests)


def _measure(workload: Workload, trial: Trial, settings: Measurement) -> Verdict:
    """One trial as a sandbox runs it: looks, curtailment, verdict."""
    looks = 1 + settings.extensions
    planned = settings.runs * settings.requests_per_run
    limit = StopRule(planned * looks, PROMISE, trial.confidence, looks).limit
    verdict: Verdict | None = None
    for look in range(1, looks + 1):
        runs = _curtailed(_runs(workload, trial.rate, settings, trial.seed_block, look * settings.runs), limit)
        verdict = judge(
            runs,
            PROMISE,
            confidence=trial.confidence,
            planned_requests=planned * look,
            looks=looks,
            demand=workload.demand,
        )
        if verdict.outcome is not Outcome.INCONCLUSIVE or runs[-1].stopped_early:
            break
    assert verdict is not None
    return verdict


def _curtailed(runs: Sequence[RunResult], limit: int) -> list[RunResult]:
    """The runs up to the violation that rules a pass out."""
    kept: list[RunResult] = []
    left = limit
    for run in runs:
        for position, record in enumerate(run.records):
            left -= violation_of(record, PROMISE) is not None
            if left < 0:
                return [*kept, replace(run, records=run.records[: position + 1], stopped_early=True)]
        kept.append(run)
    return kept


def _false(boundaries: dict[Workload, Boundary]) -> bool:
    print(f"\nAt the boundary, {REPLICATIONS:,} replications: share that passes though it should not")
    print(f"  {'workload':<34} {'one trial':>20} {'whole procedure':>20} {'requests':>9}  target")
    met = True
    for workload, found in boundaries.items():
        all_of_them = list(promotions(workload, found.rate, REPLICATIONS))
        once = sum(one.passed_once for one in all_of_them)
        promoted = sum(one.promoted for one in all_of_them)
        upper = share_upper(promoted, REPLICATIONS, SURE)
        good = upper <= MOST_FALSE
        met = met and good
        print(
            f"  {workload.name:<34} {_bounded(once, REPLICATIONS):>20} {_bounded(promoted, REPLICATIONS):>20} "
            f"{_mean_requests(all_of_them):>9,.0f}  {'met' if good else 'MISSED'}",
            flush=True,
        )
    print(f"  (≤: upper bound at {_percent(SURE)}; target: of the whole procedure at most {_percent(MOST_FALSE)})")
    return met


def _power(boundaries: dict[Workload, Boundary]) -> bool:
    print(
        f"\nAt {_percent(ROOM)} of that rate, {POWER_REPLICATIONS} replications: share that passes, within "
        f"{MOST_REQUESTS:,} requests"
    )
    print(f"  {'workload':<34} {'one trial':>10} {'whole procedure':>16} {'≥':>8} {'requests':>9}  target")
    met = True
    for workload, found in boundaries.items():
        all_of_them = list(promotions(workload, ROOM * found.rate, POWER_REPLICATIONS))
        once = sum(one.passed_once for one in all_of_them)
        promoted = sum(one.promoted and one.requests <= MOST_REQUESTS for one in all_of_them)
        good = promoted / POWER_REPLICATIONS >= LEAST_POWER
        met = met and good
        print(
            f"  {workload.name:<34} {_percent(once / POWER_REPLICATIONS):>10} "
            f"{_percent(promoted / POWER_REPLICATIONS):>16} "
            f"{_percent(share_lower(promoted, POWER_REPLICATIONS, SURE)):>8} {_mean_requests(all_of_them):>9,.0f}  "
            f"{'met' if good else 'MISSED'}",
            flush=True,
        )
    print(f"  (target: at least {_percent(LEAST_POWER)})")
    return met


def _comparison(boundaries: dict[Workload, Boundary]) -> None:
    count = COMPARED
    print(
        f"\nThe same 5 × 200 requests, one look at 95 %, {count} replications: passes at the boundary / at 80 % of it"
    )
    names = ("point estimate", "naive binomial", "clusters and runs", "and the crowd's luck")
    print(f"  {'workload':<34} " + " ".join(f"{name:>21}" for name in names))
    for workload, found in boundaries.items():
        passed = [
            sum((compare(workload, share * found.rate, number) for number in range(count)), Counter[str]())
            for share in (1.0, ROOM)
        ]
        cells = [" / ".join(_percent(counts[name] / count) for counts in passed) for name in names]
        print(f"  {workload.name:<34} " + " ".join(f"{cell:>21}" for cell in cells), flush=True)


def _curve(boundaries: dict[Workload, Boundary]) -> None:
    print(
        f"\nWhat certainty costs: share promoted, {CURVE_REPLICATIONS} replications, by most requests (requests spent)"
    )
    print(f"  {'workload':<34} {'rate':>5} " + " ".join(f"{20 * per_run:>14,}" for per_run in CURVE_RUNS))
    for workload, found in boundaries.items():
        for share in CURVE_RATES:
            cells = []
            for per_run in CURVE_RUNS:
                settings = Measurement(requests_per_run=per_run)
                all_of_them = list(promotions(workload, share * found.rate, CURVE_REPLICATIONS, settings))
                promoted = sum(one.promoted for one in all_of_them) / CURVE_REPLICATIONS
                cells.append(f"{_percent(promoted)} ({_mean_requests(all_of_them):,.0f})")
            print(
                f"  {workload.name:<34} {_percent(share):>5} " + " ".join(f"{cell:>14}" for cell in cells), flush=True
            )


def _mean_requests(all_of_them: Sequence[Promotion]) -> float:
    return sum(one.requests for one in all_of_them) / len(all_of_them)


def _bounded(count: int, of: int) -> str:
    return f"{_percent(count / of)} (≤ {_percent(share_upper(count, of, SURE))})"


def _percent(share: float, digits: int = 1) -> str:
    text = f"{100 * share:.{digits}f}"
    return f"{text.removesuffix('.0')} %"


if __name__ == "__main__":
    sys.exit(main())
