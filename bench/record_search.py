"""Records searches with a real engine, as the files that replays and strategies are judged on.

First the search itself runs, as ``slotune tune`` does. Then the rest of a small space is measured: every candidate at
the peak divided by 1, 2, 3, … servers until a confirmation on fresh seeds passes, since what passes there passes below.
So whatever a later search asks about money has a measured answer.

    python -m bench.record_search smollm2-chat tiny-documents smollm2-bursts

writes ``tests/recorded/NAME.json.gz``. The machine should do nothing else meanwhile: a candidate that shares its cores
with a compiler is recorded as slow, for good.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from slotune import __version__
from slotune.api.manifests import load_manifests
from slotune.commands.live import trial_title
from slotune.commands.writing import write_atomically
from slotune.llama.candidate import Candidate
from slotune.llama.engine import find_engine
from slotune.llama.requantize import requantize
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.sandbox.protocol import Progress, Sandbox
from slotune.search.problem import Problem
from slotune.search.rates import must_hold_half
from slotune.search.replay import RecordedAnswer, RecordedSearch, RecordedTrials, cheapest_recorded
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.ledger import Ledger
from slotune.tuning.loop import tune
from slotune.tuning.machine import this_machine
from slotune.tuning.reading import Reading, read_problem
from slotune.tuning.search_file import SUFFIX, to_bytes
from slotune.verdict.verdicts import Outcome
from tests.tiny_models import Quantization, write_tiny_model

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "bench" / "recordings"
RECORDED = ROOT / "tests" / "recorded"
DEMO_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUANTIZATIONS: tuple[Quantization, ...] = ("F16", "Q8_0", "Q4_0")
SEARCH_ALONE = frozenset({"smollm2-bursts"})
"""Recordings whose space is not measured as a whole: at their rates that would take a quarter of an hour."""
ATTEMPTS = 2
"""A measurement at fault is repeated once."""


def main() -> int:
    """Record what was named; 0 when each has an answer."""
    names = sorted(path.stem for path in MANIFESTS.glob("*.yaml"))
    parser = argparse.ArgumentParser(prog="python -m bench.record_search", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help=f"any of {', '.join(names)}, or a manifest of your own (FILE.yaml)"
    )
    parser.add_argument("--out", type=Path, default=RECORDED, metavar="DIR", help="where the files go (tests/recorded)")
    parser.add_argument("--models-dir", type=Path, default=models_folder(), metavar="DIR", help="(%(default)s)")
    arguments = parser.parse_args()
    make_models(arguments.models_dir)
    failed = []
    for name in arguments.names:
        began = time.monotonic()
        manifest = Path(name) if name.endswith(".yaml") else MANIFESTS / f"{name}.yaml"
        recorded = asyncio.run(record(manifest, arguments.models_dir))
        path = arguments.out / f"{manifest.stem}{SUFFIX}"
        write_atomically(path, to_bytes(recorded, version=__version__, packed=True))
        best = cheapest_recorded(recorded)
        print(
            f"{name}: {len(recorded.results)} trials, {recorded.answer.trials} of them the search's; "
            f"{recorded.answer.kind} {recorded.answer.monthly_cost}, cheapest of all "
            f"{None if best is None else best.monthly_cost}; {path.stat().st_size:,} bytes, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
        if best is None or recorded.answer.monthly_cost != best.monthly_cost:
            failed.append(name)
    if failed:
        print(f"the answer is not the cheapest that was recorded: record again on a quiet machine: {', '.join(failed)}")
    return 1 if failed else 0


def models_folder() -> Path:
    """The project's cache of models, where `make model` puts them."""
    base = os.environ.get("SLOTUNE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "slotune"
    return Path(base).expanduser() / "models"


def make_models(folder: Path) -> None:
    """SmolLM2's variants from the demo's file, and those of a generated model of 33 million parameters."""
    for quantization in QUANTIZATIONS:
        if not (folder / DEMO_MODEL.replace("Q4_1", quantization)).exists():
            requantize(folder / DEMO_MODEL, quantization, folder)
        path = folder / f"tiny-33M.{quantization}.gguf"
        if not path.exists():
            partial = path.with_suffix(".partial")
            write_tiny_model(
                partial,
                layers=8,
                heads=8,
                kv_heads=2,
                embedding=512,
                feed_forward=1536,
                context=4096,
                words=8192,
                quantization=quantization,
            )
            partial.replace(path)


async def record(manifest: Path, models_dir: Path) -> RecordedSearch:
    """The search and then the rest of its space."""
    manifests = load_manifests([str(manifest)], None)
    engine = find_engine("embedded")
    reading = read_problem(manifests, models_dir=models_dir, engine=f"{engine.describe()} on {this_machine()}")
    with tempfile.TemporaryDirectory(prefix="slotune-record-") as folder, Ledger(Path(folder)) as ledger:
        sandbox = ProcessSandbox(
            reading.problem,
            engine,
            reading.model_paths,
            Path(folder) / "servers",
            references=ledger.references,
            threads=reading.baseline.threads,
        )
        lines = _Lines(reading)
        answer = await tune(reading.space, sandbox, ledger, lines, without_what_cannot_fit)
        results = list(answer.results)
        rest = () if manifest.stem in SEARCH_ALONE else answer.problem.candidates
        for candidate in rest:
            results = await measure_all(answer.problem, candidate, results, sandbox, lines)
    return RecordedSearch(reading.space, tuple(results), RecordedAnswer.from_decision(answer.decision))


async def measure_all(
    problem: Problem, candidate: Candidate, results: Sequence[TrialResult], sandbox: Sandbox, lines: _Lines
) -> list[TrialResult]:
    """``results`` and what they lack about ``candidate``: from one server upwards until it is confirmed."""
    known = list(results)
    for replicas in range(1, problem.hardware[candidate.gpu_class].replicas_max + 1):
        outcomes = []
        for trial in questions(problem, candidate, replicas):
            result = await measured(problem, trial, known, sandbox, lines)
            if result.never_ran:
                return known
            outcomes.append(result.passed)
            if not result.passed:
                break
        if all(outcomes):
            break
    return known


async def measured(
    problem: Problem, trial: Trial, known: list[TrialResult], sandbox: Sandbox, lines: _Lines
) -> TrialResult:
    """What is known of ``trial``, or comes to be: ``known`` grows by what is measured."""
    attempt = 0
    while True:
        attempt += 1
        asked = replace(trial, attempt=attempt)
        result = RecordedTrials(problem, known).answer(asked)
        if result is None:
            lines.started(len(known) + 1, asked)
            result = (await sandbox.measure(asked, lines.progressed)).result
            known.append(result)
            lines.finished(len(known), result)
        if attempt >= ATTEMPTS or result.verdict.outcome is not Outcome.INVALID:
            return result


def questions(problem: Problem, candidate: Candidate, replicas: int) -> Iterator[Trial]:
    """What a search asks of ``candidate`` with ``replicas``, each only when those before passed."""
    rate, confidence = problem.demand.peak_rate / replicas, problem.measurement.confidence
    yield Trial(candidate, rate, 0, confidence)
    yield Trial(candidate, rate, 1, confidence, purpose=Purpose.CONFIRM)
    if must_hold_half(candidate, problem.baseline):
        yield Trial(candidate, rate / 2, 2, confidence, purpose=Purpose.PARTIAL)


class _Lines:
    """One line for each trial, on standard error."""

    def __init__(self, reading: Reading) -> None:
        self._problem = reading.problem

    def resumed(self, results: list[TrialResult]) -> None:
        """Nothing is resumed here."""

    def started(self, number: int, trial: Trial) -> None:
        """What is measured."""
        sys.stderr.write(f"{trial_title(number, trial, self._problem)} … ")
        sys.stderr.flush()

    def progressed(self, progress: Progress) -> None:
        """Said by nobody."""

    def finished(self, number: int, result: TrialResult) -> None:
        """What came of it."""
        sys.stderr.write(
            f"{result.verdict.outcome} {result.gpu_seconds:.0f} s, p95 {result.latencies.ttft_p95_s}, "
            f"{result.verdict.reason}\n"
        )


if __name__ == "__main__":
    sys.exit(main())
