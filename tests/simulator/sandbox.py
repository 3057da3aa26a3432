"""The sandbox protocol without a server: a trial takes milliseconds, and its GPU-seconds are simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slotune.diagnose.attribution import attribute_runs
from slotune.llama.failures import FailureClass
from slotune.load.latency_summary import summarize
from slotune.load.records import RequestRecord, RequestStatus, RunResult
from slotune.load.summary import IdleProbe
from slotune.sandbox.protocol import Measured, ProgressListener
from slotune.search.finalists import measurement_for, stops_early
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.curtailment import StopRule
from slotune.verdict.judge import judge
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict
from slotune.verdict.violations import Violation, violation_of, violation_shares
from tests.simulator.machine import Machine
from tests.simulator.simulate import simulate

__all__ = ["SimulatedSandbox", "machines_for", "measure", "measure_noise_free", "probe"]


def machines_for(problem: Problem) -> dict[str, Machine]:
    """A machine per GPU class: its memory and bandwidth, 10,000 prompt tokens/s, 1.6 TB/s where nothing is said."""
    return {
        name: Machine(
            bandwidth_bytes_per_s=hardware.bandwidth_bytes_per_s or 1.6e12,
            prefill_tokens_per_s=10_000,
            memory_bytes=hardware.memory_bytes or 1 << 50,
        )
        for name, hardware in problem.hardware.items()
    }


@dataclass(frozen=True)
class SimulatedSandbox:
    """Measures with the product's own verdicts, stop rule and seeds."""

    problem: Problem
    machines: Mapping[str, Machine]

    async def measure(self, trial: Trial, listener: ProgressListener) -> Measured:
        """See :class:`slotune.sandbox.protocol.Sandbox`; the listener hears nothing."""
        return Measured(*_measure(trial, self.problem, self.machines))


def measure(trial: Trial, problem: Problem, machines: Mapping[str, Machine] | None = None) -> TrialResult:
    """One trial as a sandbox runs it: start, probe, seeded runs, extension, curtailment, verdict."""
    return _measure(trial, problem, machines or machines_for(problem))[0]


def measure_noise_free(
    trial: Trial, problem: Problem, machines: Mapping[str, Machine] | None = None, requests: int = 600
) -> TrialResult:
    """A trial whose verdict is the share of violations in one fixed trace, at most or above the promised one.

    For search benchmarks: the answer to a question never depends on luck, so the true optimum is well defined. GPU
    time is accounted as usual, curtailment included.
    """
    machine = (machines or machines_for(problem))[trial.candidate.gpu_class]
    facts, promise = problem.models[trial.candidate.variant], problem.promise
    if not machine.fits(facts, trial.candidate):
        return _crash(trial, machine)
    idle = probe(trial, problem, machine)
    begun = machine.start_s + _probe_seconds(idle, problem)
    if trial.purpose is Purpose.SENTINEL:
        return _sentinel(trial, idle, begun)
    warmup = problem.measurement.warmup_requests
    whole = simulate(trial.candidate, facts, machine, problem.demand, trial.rate, 7, requests, warmup)
    allowed = int(promise.violation_share * requests)
    run, seconds, violations = _curtailed(whole, promise, allowed)
    outcome = Outcome.PASS if violations <= allowed else Outcome.FAIL
    verdict = replace(
        judge([run], promise, confidence=trial.confidence, planned_requests=requests),
        outcome=outcome,
        code="PromiseKept" if outcome is Outcome.PASS else "TooManyViolations",
        reason=f"{violations} of {len(run.records)} requests broke the promise; {allowed} of {requests} may",
    )
    return _result(trial, verdict, [run], idle, begun + seconds, requests, promise)


def probe(trial: Trial, problem: Problem, machine: Machine) -> IdleProbe:
    """What a few requests, one at a time, would show."""
    facts, context = problem.models[trial.candidate.variant], problem.demand.input_tokens_mean
    return IdleProbe(
        overhead_s=machine.request_overhead_s,
        prefill_tokens_per_s=machine.prefill_speed(trial.candidate),
        decode_step_s=machine.decode_step_s(facts, trial.candidate, 1, context),
    )


def _measure(
    trial: Trial, problem: Problem, machines: Mapping[str, Machine]
) -> tuple[TrialResult, tuple[RunResult, ...]]:
    machine, facts = machines[trial.candidate.gpu_class], problem.models[trial.candidate.variant]
    if not machine.fits(facts, trial.candidate):
        return _crash(trial, machine), ()
    settings, promise = measurement_for(trial, problem.measurement), problem.promise
    idle = probe(trial, problem, machine)
    seconds = machine.start_s + _probe_seconds(idle, problem)
    if trial.purpose is Purpose.SENTINEL:
        return _sentinel(trial, idle, seconds), ()
    looks = 1 + settings.extensions
    per_look = settings.runs * settings.requests_per_run
    limit = StopRule(per_look * looks, promise, trial.confidence, looks).limit
    if not stops_early(trial):
        limit = per_look * looks
    runs: list[RunResult] = []
    violations = 0
    verdict: Verdict | None = None
    for look in range(1, looks + 1):
        for _ in range(settings.runs):
            seed = settings.base_seed + 1000 * trial.seed_block + len(runs)
            whole = simulate(
                trial.candidate,
                facts,
                machine,
                problem.demand,
                trial.rate,
                seed,
                settings.requests_per_run,
                settings.warmup_requests,
            )
            run, run_seconds, found = _curtailed(whole, promise, limit - violations)
            runs.append(run)
            violations += found
            seconds += run_seconds
            if run.stopped_early:
                break
        verdict = judge(runs, promise, confidence=trial.confidence, planned_requests=look * per_look, looks=looks)
        if verdict.outcome is not Outcome.INCONCLUSIVE or runs[-1].stopped_early:
            break
    assert verdict is not None
    return _result(trial, verdict, runs, idle, seconds, per_look, promise), tuple(runs)


def _curtailed(run: RunResult, promise: Promise, allowed: int) -> tuple[RunResult, float, int]:
    """(the run as far as it went, its seconds from the first warm-up request on, its violations).

    It is stopped when violation ``allowed`` + 1 is known: a late request is known to be late when its time is up.
    """
    known = sorted(
        (_known_at(record, violation, promise), record.index)
        for record in run.records
        if (violation := violation_of(record, promise)) is not None
    )
    if len(known) <= allowed:
        return run, max((r.finished_s or 0.0) for r in run.records), len(known)
    end = known[allowed][0]
    records = [record for whole in run.records if (record := _as_known_at(whole, end, promise)) is not None]
    samples = [sample for sample in run.busy_samples if sample[0] <= end]
    return replace(run, records=records, busy_samples=samples, stopped_early=True), end, allowed + 1


def _known_at(record: RequestRecord, violation: Violation, promise: Promise) -> float:
    """When the client knows of a violation."""
    if violation is Violation.LATE:
        return record.scheduled_s + promise.ttft_s
    assert record.finished_s is not None
    return record.finished_s


def _as_known_at(record: RequestRecord, end: float, promise: Promise) -> RequestRecord | None:
    """The record as the load client keeps it when it is stopped at ``end``: None while its fate is open."""
    if record.finished_s is not None and record.finished_s <= end:
        return record
    first = record.first_token_s if record.first_token_s is not None and record.first_token_s <= end else None
    if record.scheduled_s + promise.ttft_s > end or (
        first is not None and first <= record.scheduled_s + promise.ttft_s
    ):
        return None
    return replace(
        record,
        status=RequestStatus.UNFINISHED,
        headers_s=record.headers_s if record.headers_s is not None and record.headers_s <= end else None,
        first_token_s=first,
        first_content_s=first,
        last_token_s=None,
        finished_s=None,
        prompt_tokens=None,
        cached_tokens=None,
        prompt_ms=None,
        output_tokens=None,
        predicted_ms=None,
    )


def _result(
    trial: Trial,
    verdict: Verdict,
    runs: Sequence[RunResult],
    idle: IdleProbe,
    seconds: float,
    planned: int,
    promise: Promise,
) -> TrialResult:
    mean, tail = attribute_runs(runs, idle)
    return TrialResult(
        trial=trial,
        verdict=verdict,
        gpu_seconds=seconds,
        probe=idle,
        latencies=summarize(runs),
        attribution=mean,
        slowest=tail,
        planned_requests=planned,
        run_violation_shares=violation_shares(runs, promise),
        trace_hashes=tuple(run.trace_hash for run in runs),
    )


def _crash(trial: Trial, machine: Machine) -> TrialResult:
    reason = "the KV cache does not fit in memory"
    verdict = Verdict(Outcome.FAIL, reason, FailureClass.OUT_OF_MEMORY_KV.value, trial.confidence)
    return TrialResult(
        trial,
        verdict,
        machine.start_s,
        failure=FailureClass.OUT_OF_MEMORY_KV,
        failure_knob="contextSizePerSlot",
    )


def _sentinel(trial: Trial, idle: IdleProbe, seconds: float) -> TrialResult:
    return TrialResult(trial, Verdict(Outcome.PASS, "probed", "Probed", trial.confidence), seconds, probe=idle)


def _probe_seconds(idle: IdleProbe, problem: Problem) -> float:
    demand = problem.demand
    prefill = demand.input_tokens_mean / idle.prefill_tokens_per_s
    decode = demand.output_tokens * idle.decode_step_s
    return problem.measurement.probe_requests * (idle.overhead_s + prefill + decode)
