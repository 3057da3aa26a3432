"""One server, one rate, one verdict: idle probe, warm-up, seeded runs, a look at the cache, extension, judgement.

It neither starts nor stops a server, so the same code measures a child process here, a sidecar in
a pod, and any server that ``slotune bench`` is pointed at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from slotune.diagnose.attribution import attribute_runs
from slotune.llama.failures import FailureClass
from slotune.llama.server_http import LlamaServer, NotIdleError, ServerError
from slotune.llama.watchdog import LIMIT_S, Heartbeat, Watchdog
from slotune.load.cache_facts import CacheFacts
from slotune.load.demand import Demand
from slotune.load.device_facts import DeviceFacts
from slotune.load.latency_summary import summarize
from slotune.load.priming import prime_slots
from slotune.load.probe import IdleProbeError, send_probes, summarize_probes
from slotune.load.records import RequestRecord, RunResult
from slotune.load.shards import run_sharded
from slotune.load.summary import Attribution, IdleProbe, Latencies
from slotune.load.target import LoadObserver, Target
from slotune.load.trace import Trace, build_trace
from slotune.sandbox.cache_look import CacheLook, foreign_context
from slotune.sandbox.device import DeviceLook, Looks
from slotune.sandbox.order import run_order
from slotune.sandbox.protocol import Progress, ProgressListener
from slotune.search.problem import Measurement
from slotune.search.rates import requests_per_run
from slotune.search.trial import TrialResult
from slotune.verdict.curtailment import StopRule, Tally
from slotune.verdict.judge import judge
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from slotune.verdict.violations import violation_shares

__all__ = [
    "Findings",
    "Question",
    "ServerWedgedError",
    "measure_server",
    "out_of_time",
    "run_seed",
    "unmeasured",
]

T = TypeVar("T")

TOO_LONG = "exceed_context_size_error"
"""How llama-server refuses a prompt that its slots can't hold (build 11434)."""

IDLE_LIMIT_S = 120.0
"""Longest wait for a server to become idle between two runs: a cancelled request runs on for one decode."""


class ServerWedgedError(Exception):
    """The server holds requests and does nothing any more; /health may well say 200 (llama.cpp#27388)."""

    def __init__(self, reason: str, runs: tuple[RunResult, ...] = ()) -> None:
        super().__init__(reason)
        self.runs = runs
        """Runs that had ended before."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a server."""

    demand: Demand
    promise: Promise
    measurement: Measurement
    rate: float
    """Requests per second."""
    confidence: float
    seed_block: int = 0
    probe_only: bool = False
    deadline_s: float | None = None
    """Seconds from now after which measuring stops; what is undecided by then is Inconclusive."""
    caching_slots: int = 0
    """Slots that keep a prompt cache of their own: each is shown the shared prefixes before a run."""
    wedge_limit_s: float = LIMIT_S
    """Seconds without any sign of life after which the server counts as wedged."""
    lot: str = ""
    """Decides the order of the runs, see :func:`slotune.sandbox.order.run_order`."""
    stops_early: bool = True
    """Whether it ends when no pass is possible any more."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What one server showed."""

    verdict: Verdict
    probe: IdleProbe
    runs: tuple[RunResult, ...] = ()
    latencies: Latencies = field(default_factory=Latencies)
    attribution: Attribution | None = None
    """Over all requests."""
    slowest: Attribution | None = None
    """Over the slowest 5 %, which is what p95 is made of."""
    planned_requests: int = 0
    run_violation_shares: tuple[float, ...] = ()
    cache: CacheFacts | None = None
    device: DeviceFacts | None = None
    warnings: tuple[str, ...] = ()

    def on(self, trial_result: TrialResult) -> TrialResult:
        """``trial_result`` with all of this filled in."""
        foreign = self.cache is not None and self.cache.foreign > 0
        return replace(
            trial_result,
            failure=FailureClass.FOREIGN_CONTEXT if foreign else trial_result.failure,
            failure_knob="cacheRAMMiB" if foreign else trial_result.failure_knob,
            cache=self.cache,
            verdict=self.verdict,
            probe=self.probe,
            latencies=self.latencies,
            attribution=self.attribution,
            slowest=self.slowest,
            planned_requests=self.planned_requests,
            run_violation_shares=self.run_violation_shares,
            trace_hashes=tuple(run.trace_hash for run in self.runs),
            device=self.device,
            warnings=(*trial_result.warnings, *self.warnings),
        )


def run_seed(base: int, seed_block: int, run: int) -> int:
    """A seed that differs for every run of every block: the same for all candidates, which makes them comparable."""
    return int.from_bytes(hashlib.sha256(f"{base}/{seed_block}/{run}".encode()).digest()[:4], "big")


def out_of_time(confidence: float) -> Verdict:
    """The verdict on a server whose time was up before anything was measured."""
    return Verdict(
        Outcome.INCONCLUSIVE, "the trial's time was up before anything was measured", "TimeLimit", confidence
    )


def unmeasured(error: ServerError | IdleProbeError, confidence: float) -> Verdict:
    """The verdict on a running server of which nothing could be measured: its own fault only when it says so."""
    if isinstance(error, IdleProbeError) and any(TOO_LONG in (record.error or "") for record in error.records):
        return Verdict(
            Outcome.FAIL, f"prompts are longer than a slot's context ({error})", "ContextTooSmall", confidence
        )
    return Verdict(Outcome.INVALID, str(error), "ServerUnreachable", confidence)


async def measure_server(
    server: LlamaServer,
    target: Target,
    question: Question,
    listener: ProgressListener,
    *,
    clock: Callable[[], float] = time.monotonic,
    device: Looks | None = None,
) -> Findings:
    """Measure a running, idle server, whose GPU ``device`` watches.

    Raises:
        ServerWedgedError: it stopped working with requests in flight.
        ServerError: it does not answer control calls.
    """
    return await _Session(server, target, question, listener, clock, device=DeviceLook(device)).run()


class _Session:
    """The state of one measurement."""

    def __init__(
        self,
        server: LlamaServer,
        target: Target,
        question: Question,
        listener: ProgressListener,
        clock: Callable[[], float],
        *,
        device: DeviceLook,
    ) -> None:
        self.server, self.target, self.question, self.listener, self.clock = server, target, question, listener, clock
        self.device = device
        self.began = clock()
        m = question.measurement
        self.looks = 1 + m.extensions
        self.per_run = requests_per_run(m, question.promise, question.confidence)
        self.planned = m.runs * self.per_run
        rule = StopRule(
            self.planned * self.looks, question.promise, question.confidence, self.looks, question.stops_early
        )
        self.tally = Tally(rule)
        self.runs: list[RunResult] = []
        self.stage = "probing"
        self.run_began = self.window_opened = self.began
        self.beat = Heartbeat(0, 0)
        self.out_of_time = False

    async def run(self) -> Findings:
        vocabulary = (await self.server.model()).vocabulary
        self.say("probing")
        m, demand = self.question.measurement, self.question.demand
        await self.become_idle()
        self.beat = Heartbeat(1, 0)  # a probe is always waiting: the server's own counters must move
        probes = await self.guarded(send_probes(self.target, demand, m.probe_requests, vocabulary=vocabulary))
        probe = summarize_probes(probes)
        if self.question.probe_only:
            verdict = Verdict(Outcome.PASS, "the idle server was probed", "Probed", self.question.confidence)
            verdict = self.device.after_probe(verdict, self.began)
            return Findings(verdict, probe, device=self.device.facts, warnings=self.device.warnings)
        cache = CacheLook(
            self.server,
            self.target,
            demand,
            self.question.caching_slots,
            vocabulary=vocabulary,
            request_timeout_s=m.request_timeout_s,
        )
        await self.become_idle()
        await self.looking(cache.before(probes))
        verdict = await self.looks_at(vocabulary, cache)
        await self.looking(cache.finish())
        facts = cache.facts()
        if facts is not None and facts.foreign:
            verdict = foreign_context(verdict, facts)
        overall, slowest = attribute_runs(self.runs, probe)
        return Findings(
            verdict,
            probe,
            tuple(self.runs),
            summarize(self.runs),
            overall,
            slowest,
            self.planned,
            violation_shares(self.runs, self.question.promise),
            facts,
            device=self.device.facts,
            warnings=self.device.warnings,
        )

    async def looks_at(self, vocabulary: int | None, cache: CacheLook) -> Verdict:
        """Planned runs, then extensions while the verdict is Inconclusive and a pass still possible."""
        verdict = None
        sound = True
        for look in range(1, self.looks + 1):
            for number in run_order(look, self.question.measurement.runs, self.question.lot):
                trace = await self.one_run(number, vocabulary, extending=look > 1)
                cache.ran(trace, self.runs[-1])
                # A run that was stopped leaves a server at work, and a verdict that a look can't better.
                if not self.runs[-1].stopped_early:
                    await self.become_idle()
                    await self.looking(cache.look())
                sound = cache.sound
                if self.tally.must_stop or self.out_of_time or self.runs[-1].invalid_reasons or not sound:
                    break
            verdict = judge(
                self.runs,
                self.question.promise,
                confidence=self.question.confidence,
                planned_requests=self.planned * look,
                looks=self.looks,
                demand=self.question.demand,
            )
            if verdict.outcome is not Outcome.INCONCLUSIVE or self.tally.must_stop or self.out_of_time or not sound:
                break
        assert verdict is not None
        if self.out_of_time and not verdict.requests:
            return out_of_time(self.question.confidence)
        return verdict

    def seed(self, run: int) -> int:
        """Of the run with this number, from 0."""
        return run_seed(self.question.measurement.base_seed, self.question.seed_block, run)

    async def one_run(self, number: int, vocabulary: int | None, *, extending: bool) -> Trace:
        q = self.question
        self.tally.next_run()
        await self.become_idle()
        self.run_began = self.clock()
        self.stage = "extending" if extending else "measuring"
        place = len(self.runs) + 1
        self.say("warming up", place)
        trace = build_trace(
            q.demand,
            rate=q.rate,
            seed=self.seed(number),
            requests=self.per_run,
            warmup_requests=q.measurement.warmup_requests,
        )
        if q.caching_slots:
            await self.guarded(
                prime_slots(
                    self.target,
                    trace,
                    q.demand,
                    q.caching_slots,
                    vocabulary=vocabulary,
                    request_timeout_s=q.measurement.request_timeout_s,
                )
            )
            await self.become_idle()
            self.run_began = self.clock()
        self.window_opened = self.clock()
        observer = _Observer(self, place, self.stage)
        run = await self.guarded(
            run_sharded(
                self.target,
                trace,
                q.demand,
                request_timeout_s=q.measurement.request_timeout_s,
                vocabulary=vocabulary,
                deadline_s=q.promise.ttft_s,
                observer=observer,
            )
        )
        self.device.after(run, self.window_opened)
        self.runs.append(run)
        return trace

    async def looking(self, look: Coroutine[Any, Any, None]) -> None:
        """Let a look at the cache take what is left of the trial's time; what it has not seen by then stays unknown."""
        limit = self.question.deadline_s
        left = None if limit is None else max(0.0, limit - (self.clock() - self.began))
        self.beat = Heartbeat(1, self.beat.token_events)  # a prompt is always waiting
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self.guarded(look)

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of ``work``, unless the server wedges first."""
        job = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(
            Watchdog(self.server, lambda: self.beat, limit_s=self.question.wedge_limit_s).run()
        )
        try:
            await asyncio.wait({job, watch}, return_when=asyncio.FIRST_COMPLETED)
            if job.done():
                return job.result()
            raise ServerWedgedError(watch.result(), tuple(self.runs))
        finally:
            for task in (job, watch):
                task.cancel()
            await asyncio.gather(job, watch, return_exceptions=True)
            self.beat = Heartbeat(0, self.beat.token_events)

    async def become_idle(self) -> None:
        """Wait until nothing of before is left on the server: done for the client is not yet idle (sglang#33663)."""
        try:
            await self.server.wait_idle(IDLE_LIMIT_S)
        except NotIdleError as error:
            raise ServerWedgedError(str(error), tuple(self.runs)) from error

    def time_is_up(self) -> bool:
        """Whether the trial has used up its time."""
        limit = self.question.deadline_s
        self.out_of_time = limit is not None and self.clock() - self.began >= limit
        return self.out_of_time

    def say(self, stage: str, run: int = 0) -> None:
        """Tell the listener where the measurement stands."""
        looks = max(1, math.ceil(run / self.question.measurement.runs))
        self.listener(
            Progress(
                stage,
                run,
                looks * self.question.measurement.runs,
                self.tally.requests,
                looks * self.planned,
                self.tally.violations,
                self.tally.limit,
                self.clock() - self.began,
                self.remaining_worst_s(),
            )
        )

    def remaining_worst_s(self) -> float:
        """Seconds until the last request of the last extension would be sent."""
        m = self.question.measurement
        left = m.runs * self.looks - len(self.runs)
        seconds = left * (self.per_run + m.warmup_requests) / self.question.rate
        return max(0.0, seconds - (self.clock() - self.run_began))


class _Observer(LoadObserver):
    """Counts violations while they happen, and ends a run that can no longer pass or has no time left."""

    def __init__(self, session: _Session, run: int, stage: str) -> None:
        self.session, self.run, self.stage = session, run, stage
        self.ended = 0

    def window_opened(self) -> None:
        self.session.window_opened = self.session.clock()
        self.session.say(self.stage, self.run)

    def overdue(self, record: RequestRecord) -> bool:
        return self.session.tally.overdue(record.index)

    def finished(self, record: RequestRecord) -> bool:
        self.ended += 1
        return self.session.tally.ended(record)

    def heartbeat(self, token_events: int, in_flight: int) -> bool:
        self.session.beat = Heartbeat(in_flight, token_events + self.ended)
        self.session.say(self.session.stage, self.run)
        return self.session.time_is_up()
