"""Between a search's trials and the objects of the cluster that hold them: both ways, without loss.

A LlamaTrial is the operator's memory of a search, so what is read back must be what was measured: the same key, and
every number that a decision rests on to its last digit. Only what people read is shortened (log lines, very long
sentences, more warnings than a status holds), and a number that is none is left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from slotune.api.kubernetes_types import Condition
from slotune.api.quantities import parse_decimal, parse_duration
from slotune.api.v1alpha1.candidate import CandidateSettings, Environment, FlashAttention, KVCacheType, Measured
from slotune.api.v1alpha1.measurement import Measurement
from slotune.api.v1alpha1.slo import SLO
from slotune.api.v1alpha1.trial import LlamaTrial, LlamaTrialSpec, TrialPromise, TrialReference
from slotune.api.v1alpha1.trial_status import LlamaTrialStatus
from slotune.api.v1alpha1.workload import LlamaWorkloadSpec
from slotune.diagnose.finding import Finding
from slotune.llama.candidate import Candidate
from slotune.report.redaction import said_in_public
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning import status_values as values
from slotune.tuning.cache_status import cache_of, cache_status
from slotune.tuning.device_status import device_of, device_status
from slotune.tuning.finding_status import findings_status, noticed_of
from slotune.tuning.trial_numbers import (
    attribution_of,
    attribution_status,
    failure_of,
    failure_status,
    latencies_of,
    latencies_status,
    memory_status,
    probe_of,
    probe_status,
    quality_of,
    quality_status,
    run_shares,
    verdict_of,
    verdict_status,
)

__all__ = [
    "SETTING_NAMES",
    "candidate_hash",
    "candidate_of",
    "completed_status",
    "measured_of",
    "result_of",
    "settings_of",
    "trial_name",
    "trial_of",
    "trial_spec",
]

SETTING_NAMES: Final = MappingProxyType(
    {
        "variant": "model",
        "gpu_class": "gpu_class",
        "parallel_slots": "parallel_slots",
        "context_per_slot": "context_size_per_slot",
        "kv_unified": "kv_unified",
        "batch_size": "batch_size",
        "ubatch_size": "u_batch_size",
        "cache_type_k": "cache_type_k",
        "cache_type_v": "cache_type_v",
        "flash_attention": "flash_attention",
        "cache_prompt": "cache_prompt",
        "cache_ram_mib": "cache_ram_mib",
        "cache_idle_slots": "cache_idle_slots",
        "cache_reuse": "cache_reuse",
        "gpu_layers": "gpu_layers",
        "threads": "threads",
        "speculation": "speculation",
        "extra_args": "extra_args",
        "speculation_tokens": "speculation_tokens",
        "speculation_match": "speculation_match",
        "draft": "draft",
        "backend_sampling": "backend_sampling",
    }
)
"""Field of a Candidate to field of CandidateSettings; a test holds that every field of either is here."""

_FLASH_ATTENTION: Final[dict[str, FlashAttention]] = {"on": "Enabled", "off": "Disabled", "auto": "Auto"}
_FLASH_FLAG: Final = {written: flag for flag, written in _FLASH_ATTENTION.items()}
_MOST_EFFECTIVE, _MOST_WARNINGS, _MOST_TRACES = 64, 32, 500
_LONGEST_WARNING = 1024


def settings_of(candidate: Candidate) -> CandidateSettings:
    """``candidate`` as the API writes it.

    Raises:
        pydantic.ValidationError: a value lies outside of what llama-server takes; no space and no reading has one.
    """
    stated = {name: getattr(candidate, own) for own, name in SETTING_NAMES.items()}
    stated["flash_attention"] = _FLASH_ATTENTION[candidate.flash_attention]
    stated["cache_type_k"] = cast("KVCacheType", candidate.cache_type_k)
    stated["cache_type_v"] = cast("KVCacheType", candidate.cache_type_v)
    return CandidateSettings(**stated)


def candidate_of(settings: CandidateSettings) -> Candidate:
    """The candidate that these settings are; :func:`settings_of` turned round."""
    stated: dict[str, Any] = {own: getattr(settings, name) for own, name in SETTING_NAMES.items()}
    stated["flash_attention"] = _FLASH_FLAG[settings.flash_attention]
    return Candidate(**stated)


def candidate_hash(candidate: Candidate) -> str:
    """Ten hex digits that name a candidate, whatever was measured of it: what ``approvedCandidate`` takes."""
    return hashlib.sha256(json.dumps(candidate.as_said(), sort_keys=True).encode()).hexdigest()[:10]


def trial_name(deployment_name: str, key: str) -> str:
    """Name of the LlamaTrial that measures what ``key`` names, and of its Job."""
    return f"{deployment_name}-{key}"


def trial_spec(
    trial: Trial,
    problem: Problem,
    *,
    deployment_name: str,
    model_path: str,
    draft_path: str | None = None,
    workload: LlamaWorkloadSpec,
    slo: SLO,
    measurement: Measurement,
    pod_template_digest: str | None,
    workload_digest: str | None,
    reference: TrialReference | None = None,
) -> LlamaTrialSpec:
    """What is measured, with all that the result depends on.

    ``model_path`` is the weights file's inside the server's container, ``draft_path`` that of the candidate's draft
    model, ``reference`` what a comparison compares with.
    :func:`trial_of` gives back an equal trial.

    Raises:
        pydantic.ValidationError: a setting or a rate that no search asks for, e.g. a rate of 0.
    """
    return LlamaTrialSpec(
        candidate=settings_of(trial.candidate),
        model_path=model_path,
        draft_path=draft_path,
        request_rate=values.positional(trial.rate),
        seed_block=trial.seed_block,
        confidence=values.positional(trial.confidence),
        attempt=trial.attempt,
        purpose=cast("Any", trial.purpose.name.capitalize()),
        time_limit=None if trial.time_limit_s is None else f"{values.positional(trial.time_limit_s)}s",
        reference=reference,
        promise=TrialPromise(ttft_p95=slo.ttft_p95, tokens_per_second_per_user=slo.tokens_per_second_per_user),
        workload=workload,
        workload_digest=workload_digest,
        measurement=measurement,
        context_digest=problem.context_of(trial),
        pod_template_digest=pod_template_digest,
        llama_deployment=deployment_name,
    )


def trial_of(spec: LlamaTrialSpec) -> Trial:
    """The trial that the object asks for; its key is that of the trial that the object was made from."""
    limit = spec.time_limit
    return Trial(
        candidate=candidate_of(spec.candidate),
        rate=float(parse_decimal(spec.request_rate, "spec.requestRate")),
        seed_block=spec.seed_block,
        confidence=float(parse_decimal(spec.confidence, "spec.confidence")),
        attempt=spec.attempt,
        purpose=Purpose[spec.purpose.upper()],
        time_limit_s=None if limit is None else float(parse_duration(limit, "spec.timeLimit")),
    )


def completed_status(
    result: TrialResult,
    *,
    completed_at: str,
    generation: int | None = None,
    environment: Environment | None = None,
    job_name: str | None = None,
    record_config_map: str | None = None,
    findings: Sequence[Finding] = (),
    reference_config_map: str | None = None,
    reference_secret: str | None = None,
) -> LlamaTrialStatus:
    """The end of a trial. Never invalid, whatever was measured: see :mod:`slotune.tuning.status_values`.

    ``completed_at`` is RFC 3339, ``findings`` are what a diagnosis says of ``result``, the first cause first; what was
    noticed of its server is among them, and nowhere else.
    """
    reason = values.word(result.verdict.code)
    message = values.sentence(said_in_public(result.verdict.reason))
    ready = Condition(
        type="Ready",
        status="True",
        observed_generation=generation,
        last_transition_time=completed_at,
        reason=reason,
        message=f"{result.verdict.outcome.value}: {message}"[: values.LONGEST_SENTENCE],
    )
    return LlamaTrialStatus(
        observed_generation=generation,
        conditions=(ready,),
        phase="Complete",
        outcome=result.verdict.outcome.value,
        reason=reason,
        message=message,
        measured=measured_of(result),
        verdict=verdict_status(result),
        failure=failure_status(result),
        findings=findings_status(findings),
        probe=probe_status(result.probe),
        latencies=latencies_status(result.latencies),
        attribution=attribution_status(result.attribution),
        slowest=attribution_status(result.slowest),
        quality=quality_status(result),
        cache=cache_status(result.cache),
        memory=memory_status(result),
        device=device_status(result.device),
        gpu_seconds=values.exact(result.gpu_seconds),
        started_at=values.instant(result.started_at),
        completed_at=completed_at,
        environment=environment or _environment(result),
        effective=_effective(result),
        warnings=tuple(
            values.line(said_in_public(warning), _LONGEST_WARNING) for warning in result.warnings[:_MOST_WARNINGS]
        ),
        trace_hashes=tuple(values.digest(text) for text in result.trace_hashes[:_MOST_TRACES]),
        job_name=job_name,
        record_config_map=record_config_map,
        reference_config_map=reference_config_map,
        reference_secret=reference_secret,
    )


def measured_of(result: TrialResult) -> Measured:
    """What users saw, rounded for people."""
    verdict, shape = result.verdict, result.latencies
    late = verdict.ttft_p95_s if verdict.ttft_p95_s is not None else shape.ttft_p95_s
    pace = verdict.tokens_per_second_p5 if verdict.tokens_per_second_p5 is not None else shape.tokens_per_second_p5
    return Measured(
        ttft_p95=values.wait(late),
        ttft_p95_upper=values.wait(verdict.ttft_p95_upper_s),
        tokens_per_second_p5=values.figure(pace),
        request_rate=values.figure(result.trial.rate),
        requests=values.count(verdict.requests),
        violations=values.count(verdict.violations),
        confidence=values.figure(verdict.confidence),
    )


def result_of(trial: LlamaTrial) -> TrialResult | None:
    """What the search remembers of a trial; None while it is not complete.

    Equal to the result that :func:`completed_status` wrote down, but for what people read: ``effective`` comes back in
    the order of its names (the API server sorts keys), the log only where the server failed, both cut to the status'
    bounds. A status that somebody emptied reads as Invalid, so that the question is asked again.
    """
    status = trial.status
    if status is None or status.phase != "Complete":
        return None
    asked = trial_of(trial.spec)
    failure, knob, log_tail = failure_of(status.failure)
    memory = status.memory
    return TrialResult(
        trial=asked,
        verdict=verdict_of(status, asked),
        gpu_seconds=0.0 if status.gpu_seconds is None else float(status.gpu_seconds),
        failure=failure,
        failure_knob=knob,
        probe=probe_of(status.probe),
        latencies=latencies_of(status.latencies),
        attribution=attribution_of(status.attribution),
        slowest=attribution_of(status.slowest),
        planned_requests=0 if status.verdict is None else status.verdict.planned_requests,
        run_violation_shares=run_shares(status),
        memory_bytes=None if memory is None else memory.device_bytes,
        compute_buffer_bytes=None if memory is None else memory.compute_buffer_bytes,
        host_memory_peak_bytes=None if memory is None else memory.host_peak_bytes,
        effective=tuple(sorted(status.effective.items())),
        warnings=status.warnings,
        log_tail=log_tail,
        trace_hashes=status.trace_hashes,
        started_at=status.started_at or "",
        quality=quality_of(status.quality),
        cache=cache_of(status.cache),
        reference="" if status.quality is None else status.quality.reference_digest,
        device=device_of(status.device),
        node=(status.environment.node if status.environment is not None else None) or "",
        noticed=noticed_of(status.findings, failure, knob, status.message),
    )


def _environment(result: TrialResult) -> Environment | None:
    """What is left to say of it where the pod said no more."""
    node = values.name(result.node)
    return None if node is None else Environment(node=node)


def _effective(result: TrialResult) -> dict[str, str]:
    return {values.line(name): values.line(said_in_public(value)) for name, value in result.effective[:_MOST_EFFECTIVE]}
