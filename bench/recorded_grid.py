"""What several ways to search cost, and what they lose, on spaces that were measured as a whole with a real engine.

The spaces are the files of ``tests/recorded`` (made by ``bench.record_search``), so nothing here shares its physics
with a bound. A question is answered by the recorded trial that asked the same, or by one that implies it; peers, which
have no early stop, pay for each trial as if it had run to its end, unless its server did not. Regret is in money a
month: what the answer costs above the cheapest configuration that was confirmed. A strategy that answers fewer servers
than that breaks the promise.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.strategies import Row, auto_tune, coordinate_moves, grid_of_counts, ours, random_ladder, tpe
from slotune.diagnose.hints import hints
from slotune.llama.candidate import Candidate
from slotune.search.decision import monthly_cost
from slotune.search.problem import Problem
from slotune.search.rates import seconds_at
from slotune.search.replay import Passing, RecordedSearch, RecordedTrials, cheapest_recorded
from slotune.search.story import GROUPS
from slotune.search.trial import Trial, TrialResult
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.search_file import SUFFIX, read_search

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "recorded"
CONFIGURATIONS = 12
"""What Optuna may try at most; never more than there are."""
OURS = "ours"
"""With this the names of our own rows begin."""


class NotRecordedError(Exception):
    """A strategy asked what nobody measured."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(f"nobody measured {trial.candidate} at {trial.rate:g} requests/s")


class RecordedLaboratory:
    """Answers from a recording. ``curtailed``: a trial stops at the violation that decides it, as ours do."""

    def __init__(self, recorded: RecordedSearch, *, curtailed: bool = False) -> None:
        self.problem = without_what_cannot_fit(recorded.problem, recorded.results)
        self.most = max(hardware.replicas_max for hardware in self.problem.hardware.values())
        self.gpu_seconds, self.trials = 0.0, 0
        self._trials = RecordedTrials(recorded.problem, recorded.results)
        self._curtailed, self._start_s = curtailed, start_seconds(recorded)

    def ask(self, trial: Trial) -> TrialResult:
        """One trial; a repeated question is paid for again."""
        result = self._trials.answer(trial)
        if result is None:
            raise NotRecordedError(trial)
        if not self._curtailed and result.failure is None:
            whole = self._start_s + seconds_at(trial.rate, self.problem.measurement)
            result = replace(result, gpu_seconds=max(result.gpu_seconds, whole))
        self.gpu_seconds += result.gpu_seconds
        self.trials += 1
        return result


def main() -> int:
    """Print a table for each recording; 0 when ours loses nothing on any and no other that loses nothing takes less.

    A recording that had to be left out counts for neither; when all were, that is a 1.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.recorded_grid", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings (all of tests/recorded)")
    arguments = parser.parse_args(sys.argv[1:] if __name__ == "__main__" else [])
    good = [compare(path) for path in arguments.files or sorted(RECORDED.glob(f"*{SUFFIX}"))]
    compared = [one for one in good if one is not None]
    print(f"\n{len(compared)} of {len(good)} recordings compared")
    return 0 if compared and all(compared) else 1


def compare(path: Path) -> bool | None:
    """Print one table; whether ours loses nothing and is the cheapest that does not. None where it was left out."""
    recorded = read_search(path)
    best = cheapest_recorded(recorded)
    print(f"\n{path.name.removesuffix(SUFFIX)}: ", end="")
    if best is None:
        print("nothing keeps the promise: nothing to compare")
        return None
    if len(recorded.problem.hardware) > 1:
        print("left out, servers of several GPUClasses cost differently, and strategies count servers")
        return None
    try:
        rows = strategies(recorded, best.replicas)
    except NotRecordedError as error:
        print(f"left out, its space was not measured as a whole ({error})")
        return None
    lab = RecordedLaboratory(recorded)
    print(
        f"{len(lab.problem.candidates)} configurations, up to {lab.most} servers each; {len(recorded.results)} trials "
        f"recorded; the cheapest takes {best.replicas} ({best.monthly_cost} a month)\n"
    )
    print(f"{'strategy':<48} {'trials':>7} {'GPU-min':>8} {'of grid':>8}  {'servers':<10} regret a month")
    for row in rows:
        print(
            f"{row.name:<48} {row.trials:>7.0f} {row.minutes:>8.1f} {row.minutes / rows[0].minutes:>8.3f}  "
            f"{row.servers:<10} {regret(lab.problem, best, row)} {row.note}"
        )
    return is_cheapest(rows, best.replicas)


def is_cheapest(rows: Sequence[Row], optimum: int) -> bool:
    """Whether the last of ``rows`` always finds ``optimum``, and no peer that does so takes fewer minutes."""
    last, peers = rows[-1], [row for row in rows[:-1] if not row.name.startswith(OURS)]
    finders = [row for row in peers if set(row.found) == {optimum}]
    return set(last.found) == {optimum} and all(last.minutes <= row.minutes for row in finders)


def strategies(recorded: RecordedSearch, optimum: int) -> list[Row]:
    """Peers first, ours last."""

    def new() -> RecordedLaboratory:
        return RecordedLaboratory(recorded)

    problem = new().problem
    tries = min(CONFIGURATIONS, len(problem.candidates))
    return [
        grid_of_counts(new()),
        replace(grid_of_counts(RecordedLaboratory(recorded, curtailed=True)), note="(with our early stop)"),
        auto_tune(new()),
        coordinate_moves(new(), moves(problem)),
        *random_ladder(new, optimum),
        tpe(new, varying(problem), lambda values: configuration(problem.baseline, values), tries),
        ours(f"{OURS}, without hints", RecordedLaboratory(recorded, curtailed=True), refine=without_what_cannot_fit),
        ours(OURS, RecordedLaboratory(recorded, curtailed=True), refine=without_what_cannot_fit, prefer=hints),
    ]


def start_seconds(recorded: RecordedSearch) -> float:
    """Median seconds of a passed trial that were not load: start, probe, priming."""
    measurement = recorded.problem.measurement
    spare = [
        max(0.0, result.gpu_seconds - seconds_at(result.trial.rate, measurement))
        for result in recorded.results
        if result.passed and result.trial.purpose.puts_load
    ]
    return statistics.median(spare) if spare else 0.0


def varying(problem: Problem) -> dict[str, list[Any]]:
    """The settings in which candidates differ, with their values; K and V types are one setting."""
    axes = {
        name: sorted({getattr(c, name) for c in problem.candidates}, key=lambda value: (str(type(value)), value))
        for _, names in GROUPS
        for name in names
        if name != "cache_type_v"
    }
    return {name: values for name, values in axes.items() if len(values) > 1}


def configuration(baseline: Candidate, values: Mapping[str, Any]) -> Candidate:
    """``baseline`` with other settings."""
    both = {"cache_type_v": values["cache_type_k"]} if "cache_type_k" in values else {}
    return replace(baseline, **values, **both)


def moves(problem: Problem) -> list[tuple[str, list[dict[str, Any]]]]:
    """Queue, cache, bytes: one setting at a time, its values in order."""
    axes = varying(problem)
    return [
        (name, [dict(configuration_changes(name, value)) for value in axes[name]])
        for _, names in GROUPS
        for name in names
        if name in axes
    ]


def configuration_changes(name: str, value: Any) -> Mapping[str, Any]:
    """What one value of one setting changes."""
    return {name: value} | ({"cache_type_v": value} if name == "cache_type_k" else {})


def regret(problem: Problem, best: Passing, row: Row) -> str:
    """``0.00``, ``29.20``, or that the promise is broken; the worst and the mean of repetitions."""
    hardware = problem.hardware[best.candidate.gpu_class]
    lost: Sequence[float] = [
        math.inf if math.isinf(found) else float(monthly_cost(int(found), hardware.price_per_hour) - best.monthly_cost)
        for found in row.found
    ]
    if min(lost) < 0:
        return "breaks the promise"
    if math.isinf(max(lost)):
        return "no answer"
    return f"{statistics.fmean(lost):.2f}" + (f" (up to {max(lost):.2f})" if max(lost) > min(lost) else "")


if __name__ == "__main__":
    sys.exit(main())
