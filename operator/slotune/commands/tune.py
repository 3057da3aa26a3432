"""``slotune tune``: measure until the cheapest configuration that keeps the promise is known."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console

from slotune import __version__
from slotune.api.manifests import load_manifests
from slotune.commands.live import LiveReporter
from slotune.commands.outcomes import exit_code_of
from slotune.commands.writing import print_document, write_atomically
from slotune.diagnose.binding import with_binding
from slotune.diagnose.findings import explain_result, said_of
from slotune.llama.engine import find_engine
from slotune.report.document import to_document
from slotune.report.html import render_html
from slotune.report.plan import plan_line
from slotune.report.text import ending_text, header_text
from slotune.sandbox.process_sandbox import ProcessSandbox
from slotune.search.problem import Problem
from slotune.search.replay import RecordedAnswer, RecordedSearch
from slotune.search.trial import TrialResult
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.ledger import Ledger
from slotune.tuning.loop import Answer
from slotune.tuning.loop import tune as search_and_measure
from slotune.tuning.machine import check_engine, one_class, this_machine
from slotune.tuning.planning import plan_rows
from slotune.tuning.reading import Reading, read_problem
from slotune.tuning.search_file import to_bytes

__all__ = ["DOCUMENT_FILE", "REPORT_FILE", "SEARCH_FILE", "tune"]

REPORT_FILE = "report.html"
DOCUMENT_FILE = "decision.json"
SEARCH_FILE = "search.json.gz"


def tune(
    files: Sequence[str],
    name: str | None,
    *,
    models_dir: Path | None,
    engine_choice: str,
    gpu_class: str | None,
    out: Path | None,
    output: str,
) -> int:
    """Run the search, write the report, tell the story."""
    manifests = load_manifests(files, name)
    engine = find_engine(engine_choice)
    reading = read_problem(
        manifests,
        models_dir=models_dir,
        engine=f"{engine.describe()} on {this_machine()}",
        gpu_class=one_class(manifests, gpu_class),
    )
    check_engine(engine, reading)
    directory = out or Path("slotune-out") / reading.problem.name
    progress = Console(stderr=True, highlight=False)
    _say_what_comes(progress, reading)
    with Ledger(directory) as ledger:
        sandbox = ProcessSandbox(
            reading.problem,
            engine,
            reading.model_paths,
            directory / "servers",
            references=ledger.references,
            threads=reading.baseline.threads,
        )
        reporter = LiveReporter(progress, reading.problem, lambda result: _why(reading.problem, result))
        try:
            answer = uvloop.run(search_and_measure(reading.space, sandbox, ledger, reporter, without_what_cannot_fit))
        finally:
            reporter.close()
        _tell(answer, reading, directory, output)
    return exit_code_of(answer.decision)


def _say_what_comes(console: Console, reading: Reading) -> None:
    problem = reading.problem
    for note in reading.notes:
        console.print(f"note: {note}", style="dim", soft_wrap=True)
    console.print(header_text(problem, width=console.width))
    console.print(plan_line(problem, plan_rows(problem)), soft_wrap=True)


def _why(problem: Problem, result: TrialResult) -> str:
    return explain_result(result, problem.promise, problem.demand)


def _tell(answer: Answer, reading: Reading, directory: Path, output: str) -> None:
    """Write the report and the document, then print the end of the story."""
    problem = answer.problem
    decision = with_binding(problem, answer.results, answer.decision)
    said = ((r, said_of(r, problem.promise, problem.demand)) for r in answer.results)
    findings = {problem.key(r.trial): sentences for r, sentences in said if sentences}
    flags = [] if decision.choice is None else reading.baseline.flags_for(decision.choice.candidate)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    html = render_html(
        problem,
        decision,
        answer.results,
        findings=findings,
        generated_at=now,
        version=__version__,
        flags=flags,
    )
    document = to_document(
        problem, decision, answer.results, flags=flags, findings=findings, generated_at=now, version=__version__
    )
    document["target"] = {"deployment": reading.deployment, "container": reading.container}
    write_atomically(directory / REPORT_FILE, html.encode())
    print_document(document, "json", into=directory / DOCUMENT_FILE)
    recorded = RecordedSearch(reading.space, answer.results, RecordedAnswer.from_decision(decision))
    write_atomically(directory / SEARCH_FILE, to_bytes(recorded, version=__version__, packed=True))
    if output == "table":
        console = Console(highlight=False)
        console.print(
            ending_text(problem, decision, flags=flags, findings=findings, width=console.width, out=str(directory))
        )
    else:
        print_document(document, output, stream=sys.stdout)
