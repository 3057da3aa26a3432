"""``slotune trial``: the load client of a trial's pod. Its standard output is for the operator, line by line.

It ends with 0 as soon as it could say what came of the trial, whatever that is: a Job that failed would mean that
nothing is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import uvloop

from slotune.commands.outcomes import ExitCode
from slotune.sandbox.protocol import Measured, Progress
from slotune.sandbox.report_stream import (
    progress_line,
    record_frames,
    record_of,
    reference_frames,
    result_frames,
    stopped_line,
    summary_of,
)
from slotune.tuning.pod_client import TrialFiles, measure_beside, read_trial_files

__all__ = ["trial"]

HOST: Final = "127.0.0.1"
EVERY_S: Final = 2.0
"""Between two lines of progress of one stage."""
STOPPED: Final = 128 + signal.SIGTERM
"""Exit code of a process that SIGTERM ended."""


def trial(directory: Path, *, port: int, summary_bytes: int, termination_log: Path) -> int:
    """Measure the server on ``port`` of this pod as the files in ``directory`` say, and report.

    Args:
        directory: trial.json, prompts and trace where the workload refers to some, and what a comparison compares with.
        port: of the server, on 127.0.0.1.
        summary_bytes: most that fits into ``termination_log``.
        termination_log: gets the summary where kubelet has made it.
    """
    measured = uvloop.run(_measured(read_trial_files(directory), port))
    if measured is None:
        _say([stopped_line("SIGTERM")])
        return STOPPED
    _say([progress_line(Progress("stopping"))])
    with contextlib.suppress(OSError):  # the log has the same and more
        if termination_log.exists():
            termination_log.write_bytes(summary_of(measured.result, summary_bytes))
    record = record_of(measured.runs)
    _say(record_frames(record) if record else ())
    if measured.reference is not None:
        _say(reference_frames(measured.reference.to_bytes()))
    _say(result_frames(measured.result))
    return ExitCode.FOUND


async def _measured(files: TrialFiles, port: int) -> Measured | None:
    """None: SIGTERM came first."""
    work = asyncio.ensure_future(measure_beside(files, f"http://{HOST}:{port}", _throttled(time.monotonic)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return None


def _throttled(clock: Callable[[], float]) -> Callable[[Progress], None]:
    """A listener that says a new stage at once, and otherwise not more than every two seconds."""
    said: tuple[str, int] | None = None
    said_at = 0.0

    def hear(progress: Progress) -> None:
        nonlocal said, said_at
        now = clock()
        if (progress.stage, progress.run) != said or now - said_at >= EVERY_S:
            said, said_at = (progress.stage, progress.run), now
            _say([progress_line(progress)])

    return hear


def _say(lines: Iterable[bytes]) -> None:
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
