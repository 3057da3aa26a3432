"""Records searches with a real engine, as the files that replays and strategies are judged on.

First the search itself runs, as ``slotune tune`` does. Then the rest of a small space is measured: every candidate at
the peak divided by 1, 2, 3, … servers until a confirmation on fresh seeds passes, since what passes there passes below.
So whatever a later search asks about money has a measured answer.

    python -m bench.record_search smollm2-chat tiny-documents smollm2-bursts

writes ``tests/recorded/NAME.json.gz``. With ``--complete`` such a file is kept: the search goes on from the trials that
it took then, and only what it lacks is measured, which is what the search code of today asks besides. That belongs on
the machine and the llama.cpp of the recording. The machine should do nothing else meanwhile: a candidate that shares
its cores with a compiler is recorded as slow, for good.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.recording import check_same_question, record_space
from slotune import __version__
from slotune.api.manifests import load_manifests
from slotune.commands.live import trial_title
from slotune.commands.writing import write_atomically
from slotune.llama.engine import find_engine
from slotune.llama.requantize import requantize
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.sandbox.protocol import Progress
from slotune.search.problem import Problem
from slotune.search.replay import RecordedSearch, cheapest_recorded
from slotune.search.trial import Trial, TrialResult
from slotune.tuning.ledger import Ledger
from slotune.tuning.machine import this_machine
from slotune.tuning.reading import read_problem
from slotune.tuning.search_file import SUFFIX, read_search, to_bytes
from tests.tiny_models import Quantization, write_tiny_model

ROOT = Path(__file__).resolve().parent.parent
MANIFESTS = ROOT / "bench" / "recordings"
RECORDED = ROOT / "tests" / "recorded"
DEMO_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
QUANTIZATIONS: tuple[Quantization, ...] = ("F16", "Q8_0", "Q4_0")
SEARCH_ALONE = frozenset({"smollm2-bursts", "tiny-conversations"})
"""Recordings whose space is not measured as a whole: at their rates that would take a quarter of an hour."""


def main() -> int:
    """Record what was named; 0 when each has an answer."""
    names = sorted(path.stem for path in MANIFESTS.glob("*.yaml"))
    parser = argparse.ArgumentParser(prog="python -m bench.record_search", description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help=f"any of {', '.join(names)}, or a manifest of your own (FILE.yaml)"
    )
    parser.add_argument(
        "--complete", action="store_true", help="measure only what the recordings lack for today's search code"
    )
    parser.add_argument("--out", type=Path, default=RECORDED, metavar="DIR", help="where the files go (tests/recorded)")
    parser.add_argument("--models-dir", type=Path, default=models_folder(), metavar="DIR", help="(%(default)s)")
    arguments = parser.parse_args()
    make_models(arguments.models_dir)
    failed = []
    for name in arguments.names:
        began = time.monotonic()
        manifest = Path(name) if name.endswith(".yaml") else MANIFESTS / f"{name}.yaml"
        path = arguments.out / f"{manifest.stem}{SUFFIX}"
        known = read_search(path) if arguments.complete else None
        recorded = asyncio.run(record(manifest, arguments.models_dir, known))
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


async def record(manifest: Path, models_dir: Path, known: RecordedSearch | None = None) -> RecordedSearch:
    """The search and then the rest of its space, with a real engine; what is ``known`` is not measured again.

    Raises:
        AnotherQuestionError: ``known`` is an answer to something else.
    """
    manifests = load_manifests([str(manifest)], None)
    engine = find_engine("embedded")
    reading = read_problem(manifests, models_dir=models_dir, engine=f"{engine.describe()} on {this_machine()}")
    if known is not None:
        check_same_question(known.problem, reading.space)
    with tempfile.TemporaryDirectory(prefix="slotune-record-") as folder, Ledger(Path(folder)) as ledger:
        sandbox = ProcessSandbox(
            reading.problem,
            engine,
            reading.model_paths,
            Path(folder) / "servers",
            references=ledger.references,
            threads=reading.baseline.threads,
        )
        whole = manifest.stem not in SEARCH_ALONE
        return await record_space(reading.space, sandbox, ledger, Lines(reading.problem), known, whole=whole)


class Lines:
    """One line for each trial, on standard error."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def resumed(self, results: list[TrialResult]) -> None:
        """How many trials the search has already."""
        sys.stderr.write(f"{len(results)} trials of the search are known\n")

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
