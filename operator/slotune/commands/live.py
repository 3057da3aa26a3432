"""What happens while trials run: one live line on a terminal, plain lines elsewhere.

Plain lines come on a change of stage and at most every ten seconds, so that a CI log stays short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from slotune.report.figures import duration, rate
from slotune.report.text import trial_header, trial_line
from slotune.report.trials import trial_name
from slotune.sandbox.protocol import Progress
from slotune.search.pairs import pair_of, reference_pair
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult

__all__ = ["LiveReporter", "progress_line", "trial_title"]

PLAIN_EVERY_S = 10.0
BAR_WIDTH = 10

_PURPOSE = {
    Purpose.BASELINE: "",
    Purpose.SEARCH: "",
    Purpose.CONFIRM: "again, fresh start and seeds",
    Purpose.EXPLAIN: "for the story",
    Purpose.PARTIAL: "again at half its load",
    Purpose.FINALIST: "compared in turns with its equal",
    Purpose.SENTINEL: "has the machine drifted?",
    Purpose.REFERENCE: "recording the reference's answers",
    Purpose.QUALITY: "do the answers hold?",
}


def trial_title(number: int, trial: Trial, problem: Problem) -> str:
    """``3  16 slots, prefix cache · 1.5/s ×4``: what is measured."""
    label = trial_name(problem, trial)
    if trial.purpose is Purpose.QUALITY and pair_of(trial.candidate) == reference_pair(problem):
        return f"{number:3d}  {label} · how far does it differ from itself?"
    if trial.purpose.asks_answers:
        return f"{number:3d}  {label} · {_PURPOSE[trial.purpose]}"
    if trial.purpose is Purpose.SENTINEL:
        return f"{number:3d}  {label} · idle · {_PURPOSE[trial.purpose]}"
    replicas = problem.demand.peak_rate / trial.rate
    load = f"{rate(trial.rate)} ×{replicas:.3g}"
    purpose = f" · {_PURPOSE[trial.purpose]}" if _PURPOSE[trial.purpose] else ""
    return f"{number:3d}  {label} · {load}{purpose}"


def progress_line(progress: Progress) -> str:
    """``▇▇▇▁▁  62 of 200 requests · 1 late of 4 allowed · 12 s, at most 1 min 12 s left``."""
    parts = [progress.stage]
    if progress.requests_planned:
        share = min(1.0, progress.requests_done / progress.requests_planned)
        bar = "▇" * round(share * BAR_WIDTH) + "▁" * (BAR_WIDTH - round(share * BAR_WIDTH))
        things = "steps" if progress.stage == "comparing" else "requests"
        parts = [f"{bar}  {progress.stage}", f"{progress.requests_done} of {progress.requests_planned} {things}"]
    if progress.requests_planned and progress.stage != "comparing":
        parts.append(f"{progress.violations} broke the promise, {max(0, progress.violation_limit)} may")
    time_words = duration(progress.elapsed_s)
    if progress.remaining_worst_s is not None:
        time_words += f", at most {duration(progress.remaining_worst_s)} left"
    return " · ".join([*parts, time_words])


class LiveReporter:
    """Tells a person what is measured. ``console`` decides whether that is a live line or plain ones."""

    def __init__(
        self,
        console: Console,
        problem: Problem,
        explain: Callable[[TrialResult], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._problem, self._explain, self._clock = console, problem, explain, clock
        self._live: Live | None = None
        self._titled = False
        self._title = ""
        self._said: tuple[str, float] = ("", -PLAIN_EVERY_S)

    def resumed(self, results: Sequence[TrialResult]) -> None:
        """Say what need not be measured again."""
        self._console.print(f"resuming: {len(results)} finished trials are kept", style="dim", highlight=False)

    def started(self, number: int, trial: Trial) -> None:
        """A trial begins."""
        if not self._titled and self._console.is_terminal:
            self._console.print(trial_header(self._problem, width=self._console.width))
            self._titled = True
        self._title = trial_title(number, trial, self._problem)
        self._said = ("", -PLAIN_EVERY_S)
        if not self._console.is_terminal:
            self._console.print(Text(self._title), soft_wrap=True)
        else:
            self._live = Live(Text(self._title), console=self._console, transient=True, refresh_per_second=4)
            self._live.start()

    def progressed(self, progress: Progress) -> None:
        """Redraw the live line, or print a plain one when it is time."""
        line = progress_line(progress)
        if self._live is not None:
            self._live.update(Text(f"{self._title}\n     {line}", overflow="fold"))
            return
        stage, at = self._said
        now = self._clock()
        if progress.stage != stage or now - at >= PLAIN_EVERY_S:
            self._said = (progress.stage, now)
            self._console.print(Text(f"     {line}"), soft_wrap=True)

    def finished(self, number: int, result: TrialResult) -> None:
        """The live line gives way to the result."""
        self.close()
        width = self._console.width
        if not self._titled:
            self._console.print(trial_header(self._problem, width=width))
            self._titled = True
        findings = {self._problem.key(result.trial): [self._explain(result)]}
        self._console.print(trial_line(self._problem, result, number, findings=findings, width=width))

    def close(self) -> None:
        """Leave the terminal as it was; harmless when nothing is live."""
        if self._live is not None:
            self._live.stop()
            self._live = None
