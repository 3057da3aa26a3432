"""What happens while trials run: plain lines that stay few, and a live line that leaves the terminal clean."""

from __future__ import annotations

import io

from rich.console import Console

from slotune.commands.live import LiveReporter, progress_line, trial_title
from slotune.sandbox.protocol import Progress
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.verdicts import Outcome, Verdict
from tests.search.worlds import QUALITY, candidate, problem

SPACE = problem([candidate(slots=1), candidate(slots=16)], peak_rate=6.0, replicas_today=4)
TRIAL = Trial(candidate(slots=16), 1.5)


def reporter(*, terminal: bool, ticks: list[float] | None = None) -> tuple[LiveReporter, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100, color_system=None)
    clock = iter(ticks).__next__ if ticks else lambda: 0.0
    return LiveReporter(console, SPACE, lambda _: "because", clock), out


def test_a_line_says_how_far_how_many_misses_and_how_long_at_most():
    line = progress_line(Progress("measuring", 1, 5, 62, 200, 1, 4, 30.0, 72.0))
    assert line == "▇▇▇▁▁▁▁▁▁▁  measuring · 62 of 200 requests · 1 broke the promise, 4 may · 30 s, at most 72 s left"


def test_a_trial_is_titled_by_what_differs_and_its_share_of_the_peak():
    assert trial_title(3, TRIAL, SPACE) == "  3  16 slots · 1.5/s ×4"
    sentinel = Trial(candidate(slots=1), 1.5, purpose=Purpose.SENTINEL)
    assert "drifted" in trial_title(4, sentinel, SPACE)


def test_a_look_at_answers_is_titled_by_its_pair_and_counts_steps():
    asked = problem([candidate("F16"), candidate("Q4_0")], quality=QUALITY)
    titles = [
        trial_title(3, Trial(candidate(variant), 0.0, purpose=purpose), asked)
        for variant, purpose in (("F16", Purpose.REFERENCE), ("F16", Purpose.QUALITY), ("Q4_0", Purpose.QUALITY))
    ]
    assert titles == [
        "  3  F16 with KV cache f16 · recording the reference's answers",
        "  3  F16 with KV cache f16 · how far does it differ from itself?",
        "  3  Q4_0 with KV cache f16 · do the answers hold?",
    ]
    line = progress_line(Progress("comparing", requests_done=512, requests_planned=1024, elapsed_s=30.0))
    assert line == "▇▇▇▇▇▁▁▁▁▁  comparing · 512 of 1024 steps · 30 s"


def test_plain_lines_come_on_a_change_of_stage_and_every_ten_seconds():
    live, out = reporter(terminal=False, ticks=[0.0, 1.0, 9.0, 10.5, 11.0])
    live.started(1, TRIAL)
    for stage in ("probing", "probing", "measuring", "measuring", "measuring"):
        live.progressed(Progress(stage, elapsed_s=1.0))
    said = [line.split("·")[0].strip() for line in out.getvalue().splitlines()]
    assert said == ["1  16 slots", "probing", "measuring"]


def test_the_live_line_gives_way_to_the_result_and_stops_on_close():
    live, out = reporter(terminal=True)
    live.started(1, TRIAL)
    live.progressed(Progress("measuring", 1, 5, 62, 200, 1, 4, 30.0, 72.0))
    live.finished(1, TrialResult(TRIAL, Verdict(Outcome.FAIL, "late", "Late", 0.95, 5, 5), 30.0))
    said = out.getvalue()
    assert "62 of 200" in said
    assert "16 slots" in said
    assert "because" in said.lower()
    assert said.count("\x1b[?25h") >= 1, "the cursor was not shown again"
    live.close()


def test_finished_trials_of_an_earlier_process_are_mentioned():
    live, out = reporter(terminal=False)
    live.resumed([TrialResult(TRIAL, Verdict(Outcome.FAIL, "", "", 0.95), 1.0)])
    assert "resuming: 1 finished" in out.getvalue()
