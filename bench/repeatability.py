"""Does the same question get the same answer? The demo is tuned three times in a row, on a real engine.

What may differ between them is the machine and not the luck of the draw: all three have the manifest's seed, so they
send the same traffic. Agreed is one winner, or winners that cost the same: candidates that differ in nothing but their
room above the promise may take turns, and no user pays for that. Run it where nothing else computes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.demo_model import demo_model

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "demo" / "slotune.yaml"
SLOTUNE = Path(sys.executable).with_name("slotune")
OUT = ROOT / "slotune-out" / "repeatability"

TIMES = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """What one search came to, as its saved document says."""

    kind: str
    winner: str = "-"
    replicas: int = 0
    monthly_cost: Decimal | None = None
    """None without a winner."""
    confidence: float | None = None
    share_upper: float | None = None
    """Most requests that may break the promise, at that confidence."""
    wait_s: float | None = None
    """p95 TTFT of the confirmation."""
    headroom: float | None = None
    proved: tuple[str, ...] = ()
    not_proved: tuple[str, ...] = ()
    trials: int = 0
    measured_again: int = 0
    """Trials that were at fault."""
    seconds: float = 0.0

    @classmethod
    def from_document(cls, document: dict[str, Any], seconds: float) -> Answer:
        """``decision.json`` of a finished search."""
        decision, choice = document["decision"], document["decision"]["choice"]
        known = cls(
            kind=decision["kind"],
            proved=tuple(decision["proved"]),
            not_proved=tuple(decision["not_proved"]),
            trials=decision["trials"],
            measured_again=sum(trial["attempt"] > 1 for trial in document["trials"]),
            seconds=seconds,
        )
        if choice is None:
            return known
        trial = next(trial for trial in document["trials"] if trial["key"] == choice["trial"])
        return replace(
            known,
            winner=choice["candidate"]["label"],
            replicas=choice["replicas"],
            monthly_cost=Decimal(choice["monthly_cost"]),
            confidence=decision["confidence"],
            share_upper=trial["verdict"]["share_upper"],
            wait_s=trial["latencies"]["ttft_p95_s"],
            headroom=choice["headroom"],
        )


def agreement(answers: Sequence[Answer]) -> tuple[bool, str]:
    """Whether ``answers`` are one answer, and in which sense."""
    costs = {answer.monthly_cost for answer in answers}
    if None in costs:
        missing = sum(answer.monthly_cost is None for answer in answers)
        return False, f"{missing} of {len(answers)} searches ended without a winner"
    if len({(answer.winner, answer.replicas) for answer in answers}) == 1:
        return True, "the same winner every time"
    if len(costs) == 1:
        return True, "winners that differ, at the same cost"
    said = " and ".join(f"{cost:,}" for cost in sorted(cost for cost in costs if cost is not None))
    return False, f"winners at different costs a month: {said}"


def tune_once(number: int, models: Path) -> Answer:
    """One search in a fresh directory, as ``make demo`` runs it."""
    directory = OUT / str(number)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command: list[str | Path] = [
        SLOTUNE,
        "tune",
        "-f",
        DEMO,
        "--models-dir",
        models,
        "--engine",
        "embedded",
        "--out",
        directory,
    ]
    began = time.monotonic()
    with (directory / "progress.txt").open("wb") as log:
        ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    document = directory / "decision.json"
    if not document.is_file():
        raise SystemExit(f"slotune tune ended with {ended.returncode} and no decision: see {log.name}")
    return Answer.from_document(json.loads(document.read_text()), time.monotonic() - began)


def table(answers: Sequence[Answer]) -> Table:
    """A row per search."""
    made = Table(box=None, header_style="bold")
    made.add_column("search", justify="right")
    for name in ("ended", "winner"):
        made.add_column(name)
    for name in ("servers", "a month", "sure", "broken at most", "p95 TTFT", "room", "trials", "again", "took"):
        made.add_column(name, justify="right")
    for number, one in enumerate(answers, start=1):
        made.add_row(
            str(number),
            one.kind,
            one.winner,
            str(one.replicas or "-"),
            "-" if one.monthly_cost is None else f"{one.monthly_cost:,}",
            _share(one.confidence),
            _share(one.share_upper),
            "-" if one.wait_s is None else f"{1000 * one.wait_s:.0f} ms",
            "-" if one.headroom is None else f"{one.headroom:.2f}",
            str(one.trials),
            str(one.measured_again),
            f"{one.seconds / 60:.1f} min",
        )
    return made


def main() -> int:
    """Prints the answers side by side, and how sure each says it is; 1 when they do not agree."""
    console = Console(highlight=False, width=max(140, Console().width))
    model = demo_model()
    weights: list[str | Path] = [SLOTUNE, "engine", "requantize", model, "--to", "F16,Q8_0,Q4_0", "--out", model.parent]
    subprocess.run(weights, stdout=subprocess.DEVNULL, check=True)
    answers = []
    for number in range(1, TIMES + 1):
        answers.append(tune_once(number, model.parent))
        console.print(f"search {number} of {TIMES}: {answers[-1].kind}, {answers[-1].seconds:.0f} s")
    console.print(table(answers))
    for number, one in enumerate(answers, start=1):
        for said in (*one.proved, *(f"not proved: {words}" for words in one.not_proved)):
            console.print(f"{number}  {said}", soft_wrap=True)
    agreed, how = agreement(answers)
    console.print(f"{'agreed' if agreed else 'NOT AGREED'}: {how}; reports in {OUT.relative_to(ROOT)}")
    return 0 if agreed else 1


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3g} %"


if __name__ == "__main__":
    sys.exit(main())
