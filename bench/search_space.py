"""What several ways to search one simulated space cost in GPU-minutes, and which of them find the cheapest answer.

384 configurations of an 8B model on a GPU of 24 GB (272 fit): 4 quantizations, 6 slot counts, 4 batch sizes, 2 KV
types, prompt cache on or off; 6 requests/s of 4,000 tokens in and 250 out, owed a p95 TTFT of 1 s at 30 tokens/s. A
question has one noise-free answer, so the true optimum is known. The simulator and the exact bound share their
physics, which flatters the bound: the rows with an optimistic one, and with what the product itself knows, do not.
"""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import optuna

from slotune.llama.candidate import Candidate
from slotune.search.best_first import next_step
from slotune.search.bounds import Bounds, RooflineBounds
from slotune.search.decision import Decision
from slotune.search.problem import Problem, Pruned
from slotune.search.trial import Trial, TrialResult
from tests.simulator.machine import capacity_at_most
from tests.simulator.sandbox import machines_for, measure_noise_free
from tests.simulator.spaces import space_384

REQUESTS = 600
SHUFFLES = 20
TPE_SEEDS = 5
TPE_TRIALS = 60
BISECTIONS = 6


@dataclass
class Laboratory:
    """Answers each question once and counts the GPU-seconds of every trial that is asked for."""

    problem: Problem
    curtailed: bool = True
    """Whether a trial stops at the violation that decides it; peers let it run to its end."""
    answers: dict[tuple[Candidate, float], TrialResult] = field(default_factory=dict)
    gpu_seconds: float = 0.0
    trials: int = 0

    def ask(self, trial: Trial) -> TrialResult:
        """Run one trial; a repeated question is measured (and paid for) again."""
        key = (trial.candidate, trial.rate)
        if key not in self.answers:
            self.answers[key] = measure_noise_free(trial, self.problem, requests=REQUESTS)
        result = replace(self.answers[key], trial=trial)
        if not self.curtailed:
            sent = (REQUESTS + self.problem.measurement.warmup_requests) / trial.rate
            result = replace(result, gpu_seconds=max(result.gpu_seconds, 30.0 + sent))
        self.gpu_seconds += result.gpu_seconds
        self.trials += 1
        return result

    def holds(self, candidate: Candidate, replicas: int) -> bool:
        """Whether ``candidate`` keeps the promise at its share of the peak."""
        return self.ask(Trial(candidate, self.problem.demand.peak_rate / replicas)).passed

    def fewest(self, candidate: Candidate, below: int) -> int | None:
        """Fewest replicas under ``below``, found downwards; None when already below - 1 does not do."""
        found = None
        for replicas in range(below - 1, 0, -1):
            if not self.holds(candidate, replicas):
                break
            found = replicas
        return found


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    trials: float
    minutes: float
    replicas: str
    note: str = ""


def main() -> int:
    """Print the table; 0 when the two targets are met."""
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem = space_384()
    memory: dict[tuple[Candidate, float], TrialResult] = {}
    optimum = true_optimum(Laboratory(problem, answers=memory))
    rows = [
        grid(Laboratory(problem, curtailed=False, answers=memory)),
        replace(grid(Laboratory(problem, answers=memory)), note="(with our early stop)"),
        coordinate_moves(Laboratory(problem, answers=memory)),
        *random_ladder(problem, memory, optimum),
        tpe(problem, memory),
        ours("ours, exact bound", problem, memory, exact_bounds(problem, 1.0)),
        ours("ours, bound 1.3 times too optimistic", problem, memory, exact_bounds(problem, 1.3)),
        ours("ours, bound twice too optimistic", problem, memory, exact_bounds(problem, 2.0)),
        ours("ours, with the product's own bounds", problem, memory, RooflineBounds.from_results),
    ]
    full = rows[0].minutes
    print(
        f"{len(problem.candidates) + len(problem.pruned)} configurations, {len(problem.candidates)} fit; "
        f"the cheapest that keeps the promise takes {optimum} GPUs\n"
    )
    print(f"{'strategy':<40} {'trials':>7} {'GPU-min':>9} {'of grid':>9}  GPUs found")
    for row in rows:
        share = row.minutes / full
        print(f"{row.name:<40} {row.trials:>7.0f} {row.minutes:>9.0f} {share:>9.4f}  {row.replicas} {row.note}")
    by_name = {row.name: row for row in rows}
    met = True
    for name, limit in (("ours, exact bound", 1 / 100), ("ours, bound twice too optimistic", 1 / 20)):
        row = by_name[name]
        good = row.minutes / full < limit and row.replicas == str(optimum)
        print(
            f"\ntarget: {name} finds {optimum} with under 1/{1 / limit:.0f} of the grid's minutes: "
            f"{'met' if good else 'MISSED'} (1/{full / row.minutes:.0f})",
            end="",
        )
        met = met and good
    print()
    return 0 if met else 1


def true_optimum(lab: Laboratory) -> int:
    """Exhaustive: the fewest replicas of any configuration."""
    return min(next((n for n in range(1, 17) if lab.holds(candidate, n)), 99) for candidate in lab.problem.candidates)


def grid(lab: Laboratory) -> Row:
    """Every configuration that fits, its capacity found by bisection, every run to its end."""
    peak = lab.problem.demand.peak_rate
    best = math.inf
    for candidate in lab.problem.candidates:
        low, high = 0.0, peak
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if lab.ask(Trial(candidate, middle)).passed:
                low = middle
            else:
                high = middle
        best = min(best, math.ceil(peak / low) if low > 0 else math.inf)
    return _row(f"grid with {BISECTIONS}-step bisection", lab, best)


def coordinate_moves(lab: Laboratory) -> Row:
    """Queue, then cache, then bytes, one setting at a time; a move is kept only when it saves a GPU."""
    moves: Sequence[tuple[str, Sequence[object]]] = (
        ("parallel_slots", (1, 2, 4, 8, 16, 32)),
        ("batch_size", (512, 1024, 2048, 4096)),
        ("cache_prompt", (True,)),
        ("kv", ("q8_0",)),
        ("variant", ("Q8_0", "Q5_K_M", "Q4_K_M")),
    )
    current = lab.problem.baseline
    allowed = set(lab.problem.candidates)
    replicas = next((n for n in range(1, 17) if lab.holds(current, n)), 17)
    for name, values in moves:
        for value in values:
            changed: dict[str, Any] = {"cache_type_k": value, "cache_type_v": value} if name == "kv" else {name: value}
            moved = replace(current, **changed)
            fewer = lab.fewest(moved, replicas) if moved in allowed and moved != current else None
            if fewer is not None:
                current, replicas = moved, fewer
    return _row("coordinate moves: queue, cache, bytes", lab, replicas)


def random_ladder(problem: Problem, memory: dict[tuple[Candidate, float], TrialResult], optimum: int) -> list[Row]:
    """Random order; each configuration is asked for one GPU less than the best so far. Without a bound, all must be."""
    until, whole, found = [], [], []
    for seed in range(SHUFFLES):
        lab = Laboratory(problem, answers=memory)
        order = list(problem.candidates)
        random.Random(seed).shuffle(order)
        best, reached = 17, None
        for candidate in order:
            best = lab.fewest(candidate, best) or best
            if best == optimum and reached is None:
                reached = (lab.trials, lab.gpu_seconds)
        assert reached is not None
        until.append(reached)
        whole.append((lab.trials, lab.gpu_seconds))
        found.append(best)
    return [
        Row(
            name,
            statistics.fmean(t for t, _ in spent),
            statistics.fmean(s for _, s in spent) / 60,
            str(max(found)),
            note=note,
        )
        for name, spent, note in (
            ("random search, until it is lucky", until, f"(mean of {SHUFFLES}; does not know that it is done)"),
            ("random search, until it knows", whole, f"(mean of {SHUFFLES})"),
        )
    ]


def tpe(problem: Problem, memory: dict[tuple[Candidate, float], TrialResult]) -> Row:
    """Optuna's TPE on violations at the best rate so far; configurations that do not fit are constraints."""
    axes: dict[str, list[Any]] = {
        "variant": sorted({c.variant for c in problem.candidates}),
        "slots": [1, 2, 4, 8, 16, 32],
        "batch": [512, 1024, 2048, 4096],
        "kv": ["f16", "q8_0"],
        "cache": [False, True],
    }
    fitting = set(problem.candidates)
    spent, found = [], []
    for seed in range(TPE_SEEDS):
        lab = Laboratory(problem, answers=memory)
        best = 17

        def objective(trial: optuna.Trial, lab: Laboratory = lab, fitting: set[Candidate] = fitting) -> float:
            nonlocal best
            kv = trial.suggest_categorical("kv", axes["kv"])
            candidate = replace(
                problem.baseline,
                variant=trial.suggest_categorical("variant", axes["variant"]),
                parallel_slots=trial.suggest_categorical("slots", axes["slots"]),
                batch_size=trial.suggest_categorical("batch", axes["batch"]),
                cache_type_k=kv,
                cache_type_v=kv,
                cache_prompt=trial.suggest_categorical("cache", axes["cache"]),
            )
            trial.set_constraint("memory", 0.0 if candidate in fitting else 1.0)
            if candidate not in fitting:
                return 17.0
            fewest = next((n for n in range(1, 17) if lab.holds(candidate, n)), 17)
            best = min(best, fewest)
            return float(fewest)

        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=10)
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=TPE_TRIALS)
        spent.append((lab.trials, lab.gpu_seconds))
        found.append(best)
    return Row(
        "Optuna TPE with constraints",
        statistics.fmean(t for t, _ in spent),
        statistics.fmean(s for _, s in spent) / 60,
        "/".join(map(str, found)),
        note=f"({TPE_TRIALS} configurations, {TPE_SEEDS} seeds; does not know that it is done)",
    )


@dataclass(frozen=True)
class ExactBounds:
    """The simulator's own capacity bound, times an optimism of at least 1."""

    problem: Problem
    optimism: float

    def capacity_at_most(self, candidate: Candidate) -> float:
        """Requests per second."""
        machine = machines_for(self.problem)[candidate.gpu_class]
        facts = self.problem.models[candidate.variant]
        return self.optimism * capacity_at_most(facts, candidate, machine, self.problem.demand)

    def floor(self, candidate: Candidate) -> Pruned | None:
        """None: capacity alone is known here."""
        return None


def exact_bounds(problem: Problem, optimism: float) -> Callable[[Problem, Iterable[TrialResult]], Bounds]:
    """The same bounds whatever was measured."""
    bounds = ExactBounds(problem, optimism)
    return lambda *_: bounds


def ours(
    name: str,
    problem: Problem,
    memory: dict[tuple[Candidate, float], TrialResult],
    make_bounds: Callable[[Problem, Iterable[TrialResult]], Bounds],
) -> Row:
    """Best-first, the baseline's trial and the confirmation included."""
    lab = Laboratory(problem, answers=memory)
    results: list[TrialResult] = []
    while True:
        step = next_step(problem, results, make_bounds)
        if isinstance(step, Decision):
            replicas = "none" if step.choice is None else str(step.choice.replicas)
            return Row(name, lab.trials, lab.gpu_seconds / 60, replicas, note="(baseline and confirmation included)")
        results.append(lab.ask(step))


def _row(name: str, lab: Laboratory, replicas: float) -> Row:
    return Row(name, lab.trials, lab.gpu_seconds / 60, str(replicas))


if __name__ == "__main__":
    raise SystemExit(main())
