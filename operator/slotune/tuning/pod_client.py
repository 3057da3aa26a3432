"""One trial from inside its pod: the server beside it was started by kubelet, and is measured over 127.0.0.1.

The counterpart of :mod:`slotune.sandbox.process_sandbox`, with the same ends in the same words. What only the server's
log or kubelet knows (memory, a crash, a fallback) is added by who reads them, :mod:`slotune.sandbox.pod_outcome`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
from pydantic import ValidationError

from slotune.api.quantities import parse_decimal, parse_duration
from slotune.api.v1alpha1.trial import LlamaTrialSpec, TrialPromise
from slotune.llama.effective import check_effective, effective_values
from slotune.llama.failures import classify_failure
from slotune.llama.log_lines import LogFacts
from slotune.llama.server_answers import Props, Slot
from slotune.llama.server_http import EndpointDisabledError, LlamaServer, ServerError
from slotune.llama.watchdog import LIMIT_S
from slotune.load.demand import Demand
from slotune.load.jsonl import InputFileError
from slotune.load.lengths import DemandError
from slotune.load.probe import IdleProbeError
from slotune.load.shards import ShardError
from slotune.load.target import Target
from slotune.load.warm import WARM_REQUESTS
from slotune.quality.limits import BALANCED
from slotune.quality.reference import BrokenReferenceError
from slotune.sandbox.cache_look import CACHE_LOOK_LIMIT_S
from slotune.sandbox.comparison import AnswersQuestion, look_at_answers
from slotune.sandbox.device import watch_gpu
from slotune.sandbox.measurement import Question, ServerWedgedError, measure_server, out_of_time, unmeasured
from slotune.sandbox.outcomes import broken, failed, invalid, mismatched, not_measured
from slotune.sandbox.protocol import Measured, ProgressListener
from slotune.sandbox.reference_check import read_reference
from slotune.search.finalists import measurement_for, stops_early
from slotune.search.problem import Measurement, QualityQuestion
from slotune.search.rates import COMPARISON_S, START_ALLOWANCE_S, requests_per_run, seconds_at
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.quality_question import quality_settings
from slotune.tuning.reading import measurement_from
from slotune.tuning.traffic import demand_of_workload
from slotune.tuning.trial_objects import trial_of
from slotune.verdict.promise import Promise

__all__ = ["TrialFiles", "expected_limit_s", "measure_beside", "measuring_limit_s", "read_trial_files"]

LIMIT_GRACE_S = 5.0
"""Beyond a trial's limit: the load's own stop comes first, and leaves a verdict."""

TRIAL_FILE, PROMPTS_FILE, TRACE_FILE, REFERENCE_FILE = "trial.json", "prompts", "trace", "reference"


@dataclass(frozen=True, slots=True)
class TrialFiles:
    """What kubelet put into the client's directory."""

    spec: LlamaTrialSpec
    prompts: bytes | None = field(default=None, repr=False)
    trace: bytes | None = field(default=None, repr=False)
    reference: bytes | None = field(default=None, repr=False)
    """The recorded answers that a comparison compares with."""


def read_trial_files(directory: Path) -> TrialFiles:
    """What the trial asks, and the traffic that it refers to.

    Raises:
        InvalidInputError: there is no trial, or not one of this version.
    """
    place = directory / TRIAL_FILE
    try:
        spec = LlamaTrialSpec.model_validate_json(place.read_bytes(), by_alias=True, by_name=False)
    except OSError as error:
        raise InvalidInputError(str(place), None, f"can't be read ({error.strerror}): mount the trial there") from error
    except ValidationError as error:
        raise InvalidInputError(
            str(place),
            None,
            f"is no trial of this slotune ({error.error_count()} problems): is the image as new as the operator's?",
        ) from error
    return TrialFiles(spec, *(_held(directory / name) for name in (PROMPTS_FILE, TRACE_FILE, REFERENCE_FILE)))


def measuring_limit_s(spec: LlamaTrialSpec) -> float:
    """Seconds after which a client that measures ``spec`` has long ended by itself."""
    trial, measurement = _asked(spec)
    if trial.purpose.asks_answers:
        limit = START_ALLOWANCE_S + COMPARISON_S if trial.time_limit_s is None else trial.time_limit_s
        return limit + 10 * LIMIT_GRACE_S
    looks = 1 + measurement.extensions
    per_run = requests_per_run(measurement, _promise(spec.promise), trial.confidence)
    # Each run may wait for its last request, then for the server to become idle, and primes its slots before.
    runs = looks * measurement.runs
    worst = seconds_at(trial.rate, measurement, looks=looks, per_run=per_run)
    worst += (runs + 1) * (3 * measurement.request_timeout_s + 120) + measurement.probe_requests * 60
    worst += (runs + 1) * CACHE_LOOK_LIMIT_S + (1 + WARM_REQUESTS) * 60
    return worst if trial.time_limit_s is None else min(worst, trial.time_limit_s + 10 * LIMIT_GRACE_S)


def expected_limit_s(spec: LlamaTrialSpec) -> float:
    """Seconds that a client takes at most while the server goes on answering: every run of every look.

    What a wedged server may cost beside that is in :func:`measuring_limit_s`.
    """
    trial, measurement = _asked(spec)
    if trial.purpose.asks_answers:
        return min(measuring_limit_s(spec), START_ALLOWANCE_S + COMPARISON_S)
    per_run = requests_per_run(measurement, _promise(spec.promise), trial.confidence)
    load = seconds_at(trial.rate, measurement, looks=1 + measurement.extensions, per_run=per_run)
    return min(measuring_limit_s(spec), START_ALLOWANCE_S + load + measurement.request_timeout_s)


async def measure_beside(
    files: TrialFiles,
    base_url: str,
    listener: ProgressListener,
    *,
    wedge_limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Measure the llama-server at ``base_url``, which kubelet has seen ready. Whatever happens to it is a result."""
    began = clock()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    trial = trial_of(files.spec)
    base = not_measured(trial)
    try:
        demand = _demand(files)
    except (InputFileError, InvalidInputError, DemandError) as error:
        measured = Measured(invalid(base, "WorkloadUnreadable", str(error)))
    else:
        wanted = files.spec.workload_digest
        if wanted is not None and wanted != demand.identity:
            sentence = "the prompts or the trace are not those that the trial was made for: somebody changed them"
            measured = Measured(invalid(base, "WorkloadChanged", sentence))
        elif trial.purpose.asks_answers:
            measured = await _about_answers(files, demand, base_url, listener)
        else:
            question = _question(files.spec, demand, wedge_limit_s)
            measured = await _within_limit(trial, base_url, _load(question, listener))
    result = replace(measured.result, gpu_seconds=clock() - began, started_at=started_at)
    return replace(measured, result=result)


_Work = Callable[[LlamaServer, Target, TrialResult], Awaitable[Measured]]
"""What is done with a server that is what was asked for."""


async def _about_answers(files: TrialFiles, demand: Demand, base_url: str, listener: ProgressListener) -> Measured:
    trial, wanted = trial_of(files.spec), files.spec.reference
    try:
        reference = None
        if trial.purpose is Purpose.QUALITY and wanted is not None and files.reference is not None:
            reference = read_reference(files.reference, wanted.digest)
    except BrokenReferenceError as error:
        return Measured(invalid(not_measured(trial), "ReferenceChanged", str(error)))
    # Whoever reads the numbers judges them; only probabilities that are none fail here, by any limit.
    limits, context = replace(BALANCED, name="a quality limit"), files.spec.context_digest
    question = AnswersQuestion(
        demand,
        QualityQuestion(limits, trial.candidate.variant, quality_settings(files.spec.measurement), context),
        context,
        reference,
    )

    async def look(server: LlamaServer, target: Target, base: TrialResult) -> Measured:
        return await look_at_answers(server, target, base, question, listener)

    return await _within_limit(trial, base_url, look)


def _load(question: Question, listener: ProgressListener) -> _Work:
    async def measure(server: LlamaServer, target: Target, base: TrialResult) -> Measured:
        # A pod's GPU belongs to the server's container: it shows here only where the runtime shows it to all of them,
        # and then so do those of others. Neither the server's PIDs nor its environment are known on this side.
        with watch_gpu() as device:
            findings = await measure_server(server, target, question, listener, device=device)
        return Measured(findings.on(base), findings.runs)

    return measure


def _asked(spec: LlamaTrialSpec) -> tuple[Trial, Measurement]:
    trial = trial_of(spec)
    return trial, measurement_for(trial, measurement_from(spec.measurement))


def _question(spec: LlamaTrialSpec, demand: Demand, wedge_limit_s: float) -> Question:
    trial, measurement = _asked(spec)
    return Question(
        demand,
        _promise(spec.promise),
        measurement,
        trial.rate,
        trial.confidence,
        trial.seed_block,
        trial.purpose is Purpose.SENTINEL,
        trial.time_limit_s,
        trial.candidate.parallel_slots if trial.candidate.cache_prompt else 0,
        wedge_limit_s,
        lot=trial.key(spec.context_digest),
        stops_early=stops_early(trial),
    )


async def _within_limit(trial: Trial, base_url: str, work: _Work) -> Measured:
    limit = None if trial.time_limit_s is None else trial.time_limit_s + LIMIT_GRACE_S
    clock = asyncio.timeout(limit)
    try:
        async with clock, LlamaServer(base_url) as server:
            return await _measure(server, base_url, not_measured(trial), work)
    except TimeoutError as error:
        verdict = out_of_time(trial.confidence) if clock.expired() else broken(error, trial.confidence)
        return Measured(TrialResult(trial, verdict, 0.0))
    except (ShardError, DemandError, aiohttp.ClientError) as error:
        return Measured(TrialResult(trial, broken(error, trial.confidence), 0.0))


async def _measure(server: LlamaServer, base_url: str, base: TrialResult, work: _Work) -> Measured:
    """Check what was started, then measure it."""
    try:
        props, slots = await server.props(), await _slots(server)
        base = replace(base, effective=effective_values(props, slots, LogFacts()))
        if mismatches := check_effective(base.trial.candidate, props, slots, LogFacts(), gpu_expected=False):
            return Measured(mismatched(base, mismatches))
        return await work(server, _target(base_url, props), base)
    except ServerWedgedError as error:
        return Measured(failed(base, classify_failure(None, "", wedged=True), detail=str(error)), error.runs)
    except (ServerError, IdleProbeError) as error:
        return Measured(replace(base, verdict=unmeasured(error, base.trial.confidence)))


async def _slots(server: LlamaServer) -> tuple[Slot, ...]:
    try:
        return await server.slots()
    except EndpointDisabledError:
        return ()


def _target(base_url: str, props: Props) -> Target:
    return Target(base_url, props.model_alias)


def _demand(files: TrialFiles) -> Demand:
    workload = files.spec.workload
    named = workload.prompts.config_map_key_ref or workload.prompts.secret_key_ref
    trace = workload.load.trace
    for field_name, reference, held in (
        ("workload.prompts", named, files.prompts),
        ("workload.load.trace", None if trace is None else trace.config_map_key_ref, files.trace),
    ):
        if reference is not None and held is None:
            raise InvalidInputError(field_name, f"{reference.name} {reference.key}", "is not mounted in the pod")
    return demand_of_workload(workload, seed=files.spec.measurement.seed, prompts=files.prompts, trace=files.trace)


def _promise(promise: TrialPromise) -> Promise:
    speed = promise.tokens_per_second_per_user
    return Promise(
        float(parse_duration(promise.ttft_p95, "spec.promise.ttftP95")),
        None if speed is None else float(parse_decimal(speed, "spec.promise.tokensPerSecondPerUser")),
    )


def _held(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
