"""``slotune plan``: what a search would do, without doing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from slotune.api.manifests import load_manifests
from slotune.commands.outcomes import ExitCode
from slotune.commands.writing import print_document
from slotune.report.document import plan_document
from slotune.report.plan import plan_line, plan_table
from slotune.report.text import header_text
from slotune.tuning.planning import plan_rows
from slotune.tuning.reading import read_problem

__all__ = ["plan"]


def plan(files: Sequence[str], name: str | None, models_dir: Path | None, output: str) -> int:
    """Print every candidate."""
    reading = read_problem(load_manifests(files, name), models_dir=models_dir, engine="")
    problem = reading.problem
    rows = plan_rows(problem)
    if output != "table":
        print_document(plan_document(problem, rows), output, stream=sys.stdout)
        return ExitCode.FOUND
    console = Console(highlight=False)
    for note in reading.notes:
        console.print(f"note: {note}", style="dim", soft_wrap=True)
    console.print(header_text(problem, width=console.width))
    console.print(plan_line(problem, rows), soft_wrap=True)
    console.print()
    console.print(plan_table(problem, rows, width=console.width))
    return ExitCode.FOUND
