"""What several ways to search one simulated space cost in GPU-minutes, and which of them find the cheapest answer.

384 configurations of an 8B model on a GPU of 24 GB (272 fit): 4 quantizations, 6 slot counts, 4 batch sizes, 2 KV
types, prompt cache on or off; 6 requests/s of 4,000 tokens in and 250 out, owed a p95 TTFT of 1 s at 30 tokens/s. A
question has one noise-free answer, so the true optimum is known. The simulator and the exact bound share their
physics, which flatters the bound: the rows with an optimistic one, and with what the product itself knows, do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.strategies import Row, coordinate_moves, grid, ours, random_ladder, tpe, true_optimum
from slotune.llama.candidate import Candidate
from slotune.search.bounds import Bounds
from slotune.search.problem import Problem, Pruned
from slotune.search.trial import Trial, TrialResult
from tests.simulator.machine import capacity_at_most
from tests.simulator.sandbox import machines_for, measure_noise_free
from tests.simulator.spaces import space_384

REQUESTS = 600
TPE_TRIALS = 60
MOST = 16
"""Servers that any strategy may ask for."""
MOVES = (
    ("parallel_slots", [{"parallel_slots": slots} for slots in (1, 2, 4, 8, 16, 32)]),
    ("batch_size", [{"batch_size": batch} for batch in (512, 1024, 2048, 4096)]),
    ("cache_prompt", [{"cache_prompt": True}]),
    ("kv", [{"cache_type_k": "q8_0", "cache_type_v": "q8_0"}]),
    ("variant", [{"variant": variant} for variant in ("Q8_0", "Q5_K_M", "Q4_K_M")]),
)


@dataclass
class Laboratory:
    """Answers each question once and counts the GPU-seconds of every trial that is asked for."""

    problem: Problem
    curtailed: bool = True
    """Whether a trial stops at the violation that decides it; peers let it run to its end."""
    answers: dict[tuple[Candidate, float], TrialResult] = field(default_factory=dict)
    most: int = MOST
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


def main() -> int:
    """Print the table; 0 when the two targets are met."""
    problem = space_384()
    memory: dict[tuple[Candidate, float], TrialResult] = {}

    def new() -> Laboratory:
        return Laboratory(problem, answers=memory)

    optimum = true_optimum(new())
    rows = [
        grid(Laboratory(problem, curtailed=False, answers=memory)),
        replace(grid(new()), note="(with our early stop)"),
        coordinate_moves(new(), MOVES),
        *random_ladder(new, optimum),
        tpe(new, axes(problem), lambda values: configuration(problem.baseline, values), TPE_TRIALS),
        ours("ours, exact bound", new(), exact_bounds(problem, 1.0)),
        ours("ours, bound 1.3 times too optimistic", new(), exact_bounds(problem, 1.3)),
        ours("ours, bound twice too optimistic", new(), exact_bounds(problem, 2.0)),
        ours("ours, with the product's own bounds", new()),
    ]
    print_table(problem, optimum, rows)
    return 0 if targets_met(optimum, rows) else 1


def print_table(problem: Problem, optimum: float, rows: list[Row]) -> None:
    full = rows[0].minutes
    print(
        f"{len(problem.candidates) + len(problem.pruned)} configurations, {len(problem.candidates)} fit; "
        f"the cheapest that keeps the promise takes {optimum:.0f} GPUs\n"
    )
    print(f"{'strategy':<40} {'trials':>7} {'GPU-min':>9} {'of grid':>9}  GPUs found")
    for row in rows:
        share = row.minutes / full
        print(f"{row.name:<40} {row.trials:>7.0f} {row.minutes:>9.0f} {share:>9.4f}  {row.servers} {row.note}")


def targets_met(optimum: float, rows: list[Row]) -> bool:
    """Say how far each target is met."""
    full, by_name, met = rows[0].minutes, {row.name: row for row in rows}, True
    for name, limit in (("ours, exact bound", 1 / 100), ("ours, bound twice too optimistic", 1 / 20)):
        row = by_name[name]
        good = row.minutes / full < limit and row.found == (optimum,)
        print(
            f"\ntarget: {name} finds {optimum:.0f} with under 1/{1 / limit:.0f} of the grid's minutes: "
            f"{'met' if good else 'MISSED'} (1/{full / row.minutes:.0f})",
            end="",
        )
        met = met and good
    print()
    return met


def axes(problem: Problem) -> dict[str, list[Any]]:
    """The space as independent settings."""
    return {
        "kv": ["f16", "q8_0"],
        "variant": sorted({c.variant for c in problem.candidates}),
        "slots": [1, 2, 4, 8, 16, 32],
        "batch": [512, 1024, 2048, 4096],
        "cache": [False, True],
    }


def configuration(baseline: Candidate, values: Mapping[str, Any]) -> Candidate:
    """The configuration that independent settings mean."""
    return replace(
        baseline,
        variant=values["variant"],
        parallel_slots=values["slots"],
        batch_size=values["batch"],
        cache_type_k=values["kv"],
        cache_type_v=values["kv"],
        cache_prompt=values["cache"],
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


if __name__ == "__main__":
    raise SystemExit(main())
