"""Ways to search one space, each written against a laboratory that answers questions and counts what they cost.

So the same code runs on the simulator (``search_space``) and on trials that were measured (``recorded_grid``). Peers
are taken as their authors describe them, with their usual settings.
"""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import optuna

from slotune.llama.candidate import Candidate
from slotune.search.best_first import next_step
from slotune.search.bounds import Bounds, RooflineBounds
from slotune.search.decision import Decision
from slotune.search.options import Preference, unhinted
from slotune.search.problem import Problem
from slotune.search.trial import Trial, TrialResult

__all__ = [
    "Laboratory",
    "Row",
    "auto_tune",
    "coordinate_moves",
    "fewest_below",
    "grid",
    "grid_of_counts",
    "holds",
    "ours",
    "random_ladder",
    "tpe",
    "true_optimum",
]

BISECTIONS = 6
SHUFFLES = 20
TPE_SEEDS = 5


class Laboratory(Protocol):
    """Answers questions about one problem."""

    problem: Problem
    most: int
    """Most servers that may share the peak."""
    gpu_seconds: float
    trials: int

    def ask(self, trial: Trial) -> TrialResult:
        """Run one trial; a repeated question is paid for again."""
        ...


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    trials: float
    minutes: float
    found: tuple[float, ...]
    """Servers that the answer takes, one for each repetition; infinite without an answer."""
    note: str = ""

    @property
    def servers(self) -> str:
        """``2``, or ``2/2/3`` where repetitions differ."""
        shown = ["none" if math.isinf(n) else f"{n:.0f}" for n in self.found]
        return "/".join(shown) if len(set(shown)) > 1 else shown[0]


def holds(lab: Laboratory, candidate: Candidate, replicas: int) -> bool:
    """Whether ``candidate`` keeps the promise at its share of the peak."""
    problem = lab.problem
    rate = problem.demand.peak_rate / replicas
    return lab.ask(Trial(candidate, rate, confidence=problem.measurement.confidence)).passed


def fewest_below(lab: Laboratory, candidate: Candidate, below: float) -> int | None:
    """Fewest servers under ``below``, found downwards; None when already below - 1 does not do."""
    found = None
    for replicas in range(int(min(below, lab.most + 1)) - 1, 0, -1):
        if not holds(lab, candidate, replicas):
            break
        found = replicas
    return found


def fewest(lab: Laboratory, candidate: Candidate) -> float:
    """Fewest servers, found upwards; infinite when none of the allowed counts does."""
    return next((n for n in range(1, lab.most + 1) if holds(lab, candidate, n)), math.inf)


def true_optimum(lab: Laboratory) -> float:
    """Exhaustive: the fewest servers of any configuration."""
    return min(fewest(lab, candidate) for candidate in lab.problem.candidates)


def grid(lab: Laboratory) -> Row:
    """Every configuration that fits, its capacity found by bisection over the rate."""
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


def grid_of_counts(lab: Laboratory) -> Row:
    """Every configuration, the fewest servers that it needs found by bisection over their number."""
    best = math.inf
    for candidate in lab.problem.candidates:
        least, most = 1, lab.most + 1  # the last one stands for "not even all of them"
        while least < most:
            middle = (least + most) // 2
            if holds(lab, candidate, middle):
                most = middle
            else:
                least = middle + 1
        best = min(best, least if least <= lab.most else math.inf)
    return _row("grid with bisection", lab, best)


def coordinate_moves(lab: Laboratory, moves: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Row:
    """One setting at a time in the order of ``moves`` (name, changes); a move is kept only when it saves a server."""
    current = lab.problem.baseline
    allowed = set(lab.problem.candidates)
    replicas = fewest(lab, current)
    for _, changes in moves:
        for changed in changes:
            moved = replace(current, **changed)
            fewer = fewest_below(lab, moved, replicas) if moved in allowed and moved != current else None
            if fewer is not None:
                current, replicas = moved, fewer
    return _row("coordinate moves: queue, cache, bytes", lab, replicas)


def random_ladder(new: Callable[[], Laboratory], optimum: float) -> list[Row]:
    """Random order; each is asked for one server less than the best so far. Without a bound, all must be asked."""
    until, whole, found = [], [], []
    for seed in range(SHUFFLES):
        lab = new()
        order = list(lab.problem.candidates)
        random.Random(seed).shuffle(order)
        best: float = lab.most + 1
        reached = None
        for candidate in order:
            best = fewest_below(lab, candidate, best) or best
            if best == optimum and reached is None:
                reached = (lab.trials, lab.gpu_seconds)
        until.append(reached or (lab.trials, lab.gpu_seconds))
        whole.append((lab.trials, lab.gpu_seconds))
        found.append(best if best <= lab.most else math.inf)
    return [
        _mean_row(name, spent, found, note)
        for name, spent, note in (
            ("random search, until it is lucky", until, f"(mean of {SHUFFLES}; does not know that it is done)"),
            ("random search, until it knows", whole, f"(mean of {SHUFFLES})"),
        )
    ]


def tpe(
    new: Callable[[], Laboratory],
    axes: Mapping[str, Sequence[Any]],
    make: Callable[[Mapping[str, Any]], Candidate],
    configurations: int,
) -> Row:
    """Optuna's TPE on the servers that a configuration needs; those that do not fit are constraints.

    ``axes``: values by name; ``make``: a configuration of them.
    """
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spent, found = [], []
    for seed in range(TPE_SEEDS):
        lab = new()
        fitting = set(lab.problem.candidates)
        needed: list[float] = []

        def objective(
            trial: optuna.Trial,
            lab: Laboratory = lab,
            fitting: set[Candidate] = fitting,
            needed: list[float] = needed,
        ) -> float:
            candidate = make({name: trial.suggest_categorical(name, list(values)) for name, values in axes.items()})
            trial.set_constraint("memory", 0.0 if candidate in fitting else 1.0)
            if candidate not in fitting:
                return float(lab.most + 1)
            needed.append(fewest(lab, candidate))
            return min(needed[-1], float(lab.most + 1))

        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(10, max(1, configurations // 2)))
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=configurations)
        spent.append((lab.trials, lab.gpu_seconds))
        found.append(min(needed, default=math.inf))
    note = f"({configurations} configurations, {TPE_SEEDS} seeds; does not know that it is done)"
    return _mean_row("Optuna TPE with constraints", spent, found, note)


def auto_tune(lab: Laboratory) -> Row:
    """vLLM's ``auto_tune.sh``, for llama-server: a grid of sequences and batch tokens, all else as today.

    Each pair runs at the full rate first, then slower step by step until the limit holds. Its script subtracts
    1 request/s a step; here a step is one server more, which is coarser and so in its favour.
    """
    today = lab.problem.baseline
    same = [c for c in lab.problem.candidates if set(c.changed_from(today)) <= {"parallel_slots", "batch_size"}]
    best = min((fewest(lab, candidate) for candidate in same), default=math.inf)
    return _row("vLLM auto_tune: slots × batch, rate stepped down", lab, best, "(weights, KV and cache as today)")


def ours(
    name: str,
    lab: Laboratory,
    make_bounds: Callable[[Problem, Iterable[TrialResult]], Bounds] = RooflineBounds.from_results,
    refine: Callable[[Problem, Sequence[TrialResult]], Problem] = lambda problem, _: problem,
    prefer: Callable[[Problem, Sequence[TrialResult]], Preference] = unhinted,
) -> Row:
    """Best-first, the baseline's trial and the confirmation included."""
    results: list[TrialResult] = []
    while True:
        problem = refine(lab.problem, results)
        step = next_step(problem, results, make_bounds, prefer(problem, results))
        if isinstance(step, Decision):
            replicas = math.inf if step.choice is None else step.choice.replicas
            return _row(name, lab, replicas, "(baseline and confirmation included)")
        results.append(lab.ask(step))


def _row(name: str, lab: Laboratory, replicas: float, note: str = "") -> Row:
    return Row(name, lab.trials, lab.gpu_seconds / 60, (replicas,), note)


def _mean_row(name: str, spent: Sequence[tuple[int, float]], found: Sequence[float], note: str) -> Row:
    trials = statistics.fmean(t for t, _ in spent)
    return Row(name, trials, statistics.fmean(s for _, s in spent) / 60, tuple(found), note)
