"""``slotune bench``: one verdict on a server that already runs."""

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
from slotune.commands.writing import print_document
from slotune.diagnose.findings import explain_result, said_of
from slotune.gathering.address import base_address
from slotune.report.document import verdict_document
from slotune.report.text import bench_text
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.one_server import measure_url, problem_of_server

__all__ = ["bench"]


def bench(
    files: Sequence[str],
    name: str | None,
    *,
    url: str,
    replicas: int | None,
    api_key_file: Path | None,
    output: str,
) -> int:
    """Measure the server at ``url`` at its share of the peak rate."""
    url = base_address(url)
    if replicas is not None and replicas < 1:
        raise InvalidInputError("--replicas", replicas, "must be 1 or more")
    key = None if api_key_file is None else _key(api_key_file)
    manifests = load_manifests(files, name)
    problem = uvloop.run(problem_of_server(manifests, url, key, replicas))
    console = Console(stderr=True, highlight=False)
    reporter = LiveReporter(console, problem, lambda r: explain_result(r, problem.promise, problem.demand))
    try:
        result = uvloop.run(measure_url(problem, url, key, reporter))
    finally:
        reporter.close()
    said = said_of(result, problem.promise, problem.demand)
    findings = {problem.key(result.trial): said} if said else {}
    if output == "table":
        out = Console(highlight=False)
        out.print(bench_text(problem, result, findings=findings, width=out.width))
    else:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        document = verdict_document(problem, result, findings=findings, generated_at=now, version=__version__)
        print_document(document, output, stream=sys.stdout)
    return exit_code_of(result.verdict.outcome)


def _key(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError("--api-key-file", path, "can't be read: name a text file with the key") from error
