"""Trials on this machine: each on a fresh child process, measured over loopback."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from slotune.diagnose.trial_server import notice
from slotune.llama.candidate import Candidate
from slotune.llama.effective import Mismatch, check_effective, effective_values
from slotune.llama.engine import Engine
from slotune.llama.failures import Failure
from slotune.llama.flags import to_args
from slotune.llama.server_http import ServerError, UnexpectedAnswerError
from slotune.llama.watchdog import LIMIT_S
from slotune.load.lengths import DemandError
from slotune.load.probe import IdleProbeError
from slotune.load.shards import ShardError
from slotune.load.target import Target
from slotune.sandbox.comparison import AnswersQuestion, look_at_answers
from slotune.sandbox.cpu_quota import quota_counts, quota_warning
from slotune.sandbox.device import watch_gpu
from slotune.sandbox.measurement import Question, ServerWedgedError, measure_server, out_of_time, unmeasured
from slotune.sandbox.outcomes import LOG_TAIL_LINES, broken, failed, invalid, mismatched, not_measured
from slotune.sandbox.process import HOST, LlamaProcess, LlamaStartError, ProcessStuckError, new_alias
from slotune.sandbox.process_tree import descendants
from slotune.sandbox.protocol import Measured, Progress, ProgressListener
from slotune.sandbox.reference_files import ReferenceFiles
from slotune.sandbox.server_log import read_story
from slotune.search.finalists import measurement_for, stops_early
from slotune.search.noticed import Noticed
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult

__all__ = ["ProcessSandbox"]

LIMIT_GRACE_S = 5.0
"""Beyond a trial's limit: the load's own stop comes first, and leaves a verdict."""


class ProcessSandbox:
    """Runs trials of one problem as child processes of this one.

    Args:
        problem: what is owed, and how it is measured.
        engine: which llama-server runs the candidates.
        model_paths: weights file on this machine, by variant.
        directory: gets one directory per trial, with the server's log.
        references: where recorded references are kept; None keeps them in ``directory``.
        threads: for candidates that state none; None takes every core that this process may use.
        wedge_limit_s: seconds without any sign of life after which a server is given up.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        problem: Problem,
        engine: Engine,
        model_paths: Mapping[str, Path],
        directory: Path,
        *,
        references: ReferenceFiles | None = None,
        threads: int | None = None,
        wedge_limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._problem, self._engine, self._model_paths = problem, engine, model_paths
        self._directory, self._clock = directory, clock
        self._references = references or ReferenceFiles(directory)
        self._threads, self._wedge_limit_s = threads, wedge_limit_s

    async def measure(self, trial: Trial, listener: ProgressListener) -> Measured:
        """See :class:`slotune.sandbox.protocol.Sandbox`."""
        began = self._clock()
        home = self._directory / self._problem.key(trial)
        shutil.rmtree(home, ignore_errors=True)
        alias = new_alias()
        process = LlamaProcess(
            self._engine,
            self._arguments(trial.candidate, alias),
            directory=home,
            alias=alias,
            startup_limit_s=self._problem.measurement.startup_timeout_s,
        )
        listener(Progress("starting"))
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            # What the load itself does not notice: start, probe, priming, waits. It stops the server on the way out.
            limit = None if trial.time_limit_s is None else trial.time_limit_s + LIMIT_GRACE_S
            async with asyncio.timeout(limit) as clock:
                measured = await self._on(process, trial, alias, listener, began)
        except TimeoutError as error:
            verdict = out_of_time(trial.confidence) if clock.expired() else broken(error, trial.confidence)
            measured = Measured(TrialResult(trial, verdict, 0.0))
        except (ShardError, DemandError, aiohttp.ClientError) as error:
            measured = Measured(TrialResult(trial, broken(error, trial.confidence), 0.0))
        result = replace(measured.result, gpu_seconds=self._clock() - began, started_at=started_at)
        # Its log is whole now, and may be megabytes: reading it must not hold up whoever waits in this loop.
        noticed = await asyncio.to_thread(self._notice, result, process)
        return replace(measured, result=replace(result, noticed=noticed))

    def _notice(self, result: TrialResult, process: LlamaProcess) -> tuple[Noticed, ...]:
        """What is found of the server by its log and its arguments."""
        candidate = result.trial.candidate
        return notice(
            result,
            read_story(process.log_path),
            is_gpu=self._problem.hardware[candidate.gpu_class].is_gpu,
            is_generated=self._problem.demand.synthetic is not None,
            flags=process.arguments,
            model=self._problem.models.get(candidate.variant),
        )

    def _arguments(self, candidate: Candidate, alias: str) -> list[str]:
        return to_args(
            candidate,
            model_path=str(self._model_paths[candidate.variant]),
            host=HOST,
            port=0,
            alias=alias,
            threads=candidate.threads or self._threads or len(os.sched_getaffinity(0)),
            draft_path=None if candidate.draft is None else str(self._model_paths[candidate.draft]),
        )

    async def _on(
        self, process: LlamaProcess, trial: Trial, alias: str, listener: ProgressListener, began: float
    ) -> Measured:
        """Start ``process``, measure on it and say what became of it; it is stopped on return."""
        base = not_measured(trial)
        try:
            async with process:
                measured = await self._use(base, process, alias, listener, began)
                listener(Progress("stopping"))
                return measured
        except LlamaStartError as error:
            return Measured(failed(base, error.failure, log_tail=error.log_tail))
        except (UnexpectedAnswerError, ProcessStuckError) as error:
            return Measured(invalid(base, "SandboxBroken", str(error)))

    async def _use(
        self, base: TrialResult, process: LlamaProcess, alias: str, listener: ProgressListener, began: float
    ) -> Measured:
        """Check what was started, then measure it. A server that dies or wedges is the candidate's failure."""
        try:
            base, mismatches = await self._inspect(base, process)
            if mismatches:
                return Measured(mismatched(base, mismatches))
            target = Target(process.base_url, alias)
            if base.trial.purpose.asks_answers:
                measured = await self._look_at_answers(base, process, target, listener)
            else:
                measured = await self._measure(base, process, target, self._question(base.trial, began), listener)
        except ServerWedgedError as error:
            return Measured(_failed(base, process.failure(wedged=True), process, str(error)), error.runs)
        except (ServerError, IdleProbeError) as error:
            if process.alive:
                return Measured(replace(base, verdict=unmeasured(error, base.trial.confidence)))
            return Measured(_failed(base, process.failure(), process))
        if not process.alive:
            return Measured(_failed(base, process.failure(), process), measured.runs)
        return replace(measured, result=replace(measured.result, host_memory_peak_bytes=process.memory_peak_bytes))

    async def _measure(
        self, base: TrialResult, process: LlamaProcess, target: Target, question: Question, listener: ProgressListener
    ) -> Measured:
        """Measure it, with an eye on its GPU, or on its share of the CPU."""
        if self._problem.hardware[base.trial.candidate.gpu_class].is_gpu:
            with watch_gpu({process.pid, *descendants(process.pid)}, environ=os.environ) as device:
                findings = await measure_server(process.server, target, question, listener, device=device)
            return Measured(findings.on(base), findings.runs)
        before = quota_counts(process.pid)
        findings = await measure_server(process.server, target, question, listener)
        warning = quota_warning(before, quota_counts(process.pid))
        result = findings.on(base)
        if warning is not None:
            result = replace(result, warnings=(*result.warnings, warning))
        return Measured(result, findings.runs)

    async def _look_at_answers(
        self, base: TrialResult, process: LlamaProcess, target: Target, listener: ProgressListener
    ) -> Measured:
        quality = self._problem.quality
        if quality is None:
            return Measured(invalid(base, "NotAsked", "nobody asks about answers here"))
        kept = self._references.current(self._problem)
        question = AnswersQuestion(
            self._problem.demand, quality, self._problem.models[base.trial.candidate.variant].identity, kept
        )
        measured = await look_at_answers(process.server, target, base, question, listener, clock=self._clock)
        if measured.reference is not None:
            self._references.keep(self._problem, measured.reference)
        return measured

    def _question(self, trial: Trial, began: float) -> Question:
        limit = trial.time_limit_s
        return Question(
            self._problem.demand,
            self._problem.promise,
            measurement_for(trial, self._problem.measurement),
            trial.rate,
            trial.confidence,
            trial.seed_block,
            trial.purpose is Purpose.SENTINEL,
            None if limit is None else max(0.0, limit - (self._clock() - began)),
            trial.candidate.parallel_slots if trial.candidate.cache_prompt else 0,
            self._wedge_limit_s,
            lot=self._problem.key(trial),
            stops_early=stops_early(trial),
        )

    async def _inspect(self, base: TrialResult, process: LlamaProcess) -> tuple[TrialResult, list[Mismatch]]:
        """What the server says about itself before any load."""
        props, slots = await process.server.props(), await process.server.slots()
        facts, candidate = process.log_facts(), base.trial.candidate
        known = replace(
            base,
            memory_bytes=facts.memory_bytes,
            compute_buffer_bytes=facts.device_compute_bytes,
            effective=effective_values(props, slots, facts),
        )
        return known, check_effective(
            candidate, props, slots, facts, self._problem.hardware[candidate.gpu_class].is_gpu
        )


def _failed(base: TrialResult, failure: Failure, process: LlamaProcess, detail: str = "") -> TrialResult:
    return failed(
        base,
        failure,
        detail=detail,
        log_tail=process.log_tail(LOG_TAIL_LINES),
        memory_peak_bytes=process.memory_peak_bytes,
    )
