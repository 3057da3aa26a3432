"""A finished search as plain data: what ``-o json`` and ``-o yaml`` print, and what ``slotune export`` reads again.

Names are those of the facts, with their units. Every key is always there, null when not
measured; money is a string, because a float would lose cents; a trial stands in full once and is
named by its key elsewhere. No prompt, no log line, no secret and no path of this machine gets in:
the document is made to be kept in a ticket.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any

from slotune.diagnose.cache import cache_shortfall
from slotune.llama.candidate import Candidate
from slotune.report.diagnosis import diagnosis_document
from slotune.report.labels import candidate_label
from slotune.report.plan import PlanRow
from slotune.report.redaction import without_secrets
from slotune.report.standing import cost_of, replicas_at
from slotune.report.trials import Findings
from slotune.search.decision import Choice, Decision, Rejection, Step
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult

__all__ = ["SCHEMA", "plan_document", "to_document", "verdict_document"]

SCHEMA = "slotune.dev/report/v1"
"""Changes when a reader of an older document would go wrong: a key renamed or removed, a unit changed."""


def to_document(
    problem: Problem,
    decision: Decision,
    results: Sequence[TrialResult],
    *,
    flags: Sequence[str],
    findings: Findings | None = None,
    generated_at: str = "",
    version: str = "",
) -> dict[str, Any]:
    """JSON-safe and in a fixed order. ``flags`` are the winner's arguments without the program."""
    trials = _all_trials(problem, decision, results)
    said = findings or {}
    return {
        "schema": SCHEMA,
        "name": problem.name,
        "generated_at": generated_at,
        "slotune_version": version,
        "decision": _decision(problem, decision),
        "flags": list(without_secrets(flags)) if decision.choice is not None else [],
        "promise": _plain(problem.promise),
        "demand": _demand(problem),
        "hardware": {name: _plain(hardware) for name, hardware in problem.hardware.items()},
        "models": {
            name: {
                "identity": facts.identity,
                "architecture": facts.architecture,
                "quantization": facts.quantization,
                "bits_per_weight": _plain(facts.bits_per_weight),
                "weights_bytes": facts.weights_bytes,
            }
            for name, facts in problem.models.items()
        },
        "quality": _plain(problem.quality),
        "measurement": _plain(problem.measurement),
        "budget": _plain(problem.budget),
        "replicas_today": problem.replicas_today,
        "baseline": _candidate(problem, problem.baseline),
        "trials": [_trial(problem, result, said) for result in trials.values()],
        "never_started": [
            {"candidate": _candidate(problem, p.candidate), "code": p.code, "reason": p.reason} for p in problem.pruned
        ],
    }


def verdict_document(
    problem: Problem,
    result: TrialResult,
    *,
    findings: Findings | None = None,
    generated_at: str = "",
    version: str = "",
) -> dict[str, Any]:
    """One verdict on one server, for ``slotune bench -o json``."""
    return {
        "schema": SCHEMA,
        "name": problem.name,
        "generated_at": generated_at,
        "slotune_version": version,
        "promise": _plain(problem.promise),
        "demand": _demand(problem),
        "measurement": _plain(problem.measurement),
        "replicas": problem.replicas_today,
        "trial": _trial(problem, result, findings or {}) | {"candidate": _seen(problem)},
    }


def _seen(problem: Problem) -> dict[str, Any]:
    """What a running server says about itself; its other settings are not known, so none is stated."""
    seen = problem.baseline
    known = {"variant": seen.variant, "parallel_slots": seen.parallel_slots, "context_per_slot": seen.context_per_slot}
    return dict.fromkeys(_plain(seen), None) | known


def plan_document(problem: Problem, rows: Sequence[PlanRow]) -> dict[str, Any]:
    """Every candidate before anything ran, for ``slotune plan -o json``."""
    return {
        "schema": SCHEMA,
        "name": problem.name,
        "promise": _plain(problem.promise),
        "demand": _demand(problem),
        "measurement": _plain(problem.measurement),
        "budget": _plain(problem.budget),
        "replicas_today": problem.replicas_today,
        "candidates": [
            {
                "candidate": _candidate(problem, row.candidate),
                "memory_bytes": row.memory_bytes,
                "replicas_lower_bound": row.replicas_lower_bound,
                "monthly_cost_lower_bound": _plain(cost_of(problem, row.candidate, row.replicas_lower_bound)),
                "pruned": row.pruned,
                "code": row.code or None,
            }
            for row in rows
        ],
    }


def _all_trials(problem: Problem, decision: Decision, results: Sequence[TrialResult]) -> dict[str, TrialResult]:
    """By key, in the order in which they ran; those that only the decision knows come last."""
    named = [choice.result for choice in (decision.choice, decision.today) if choice is not None]
    named += [step.result for step in decision.steps if step.result is not None]
    named += [result for result in (decision.baseline_result, decision.nearest) if result is not None]
    trials: dict[str, TrialResult] = {}
    for result in [*results, *named]:
        trials.setdefault(_key(problem, result), result)
    return trials


def _decision(problem: Problem, decision: Decision) -> dict[str, Any]:
    return {
        "kind": decision.kind.value,
        "reason": decision.reason,
        "choice": _choice(problem, decision.choice),
        "today": _choice(problem, decision.today),
        "baseline_trial": _key_or_none(problem, decision.baseline_result),
        "steps": [_step(problem, step) for step in decision.steps],
        "binding_constraint": decision.binding_constraint,
        "binding_reason": decision.binding_reason,
        "binding_finding": decision.binding_finding,
        "nearest_trial": _key_or_none(problem, decision.nearest),
        "cost_gap": _plain(decision.cost_gap),
        "considered": decision.considered,
        "confidence": _plain(decision.confidence),
        "gpu_seconds": _plain(decision.gpu_seconds),
        "trials": decision.trials,
        "proved": list(decision.proved),
        "not_proved": list(decision.not_proved),
        "answers": [_plain(finding) for finding in decision.answers],
        "noise_floor": _plain(decision.noise_floor),
        "rejections": [_rejection(problem, rejection) for rejection in decision.rejections],
    }


def _choice(problem: Problem, choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "candidate": _candidate(problem, choice.candidate),
        "replicas": choice.replicas,
        "monthly_cost": _plain(choice.monthly_cost),
        "cost_per_million_output_tokens": _plain(choice.cost_per_million_output_tokens),
        "headroom": _plain(choice.headroom),
        "trial": _key(problem, choice.result),
    }


def _step(problem: Problem, step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "candidate": _candidate(problem, step.candidate),
        "changed": list(step.changed),
        "replicas": step.replicas,
        "monthly_cost": _plain(step.monthly_cost),
        "kept": step.kept,
        "note": step.note,
        "trial": _key_or_none(problem, step.result),
    }


def _rejection(problem: Problem, rejection: Rejection) -> dict[str, Any]:
    return {
        "candidate": _candidate(problem, rejection.candidate),
        "code": rejection.code,
        "reason": rejection.reason,
        "rate": _plain(rejection.rate),
        "undecided": rejection.undecided,
    }


def _trial(problem: Problem, result: TrialResult, findings: Findings) -> dict[str, Any]:
    key, trial = _key(problem, result), result.trial
    return {
        "key": key,
        "candidate": _candidate(problem, trial.candidate),
        "rate": _plain(trial.rate),
        "replicas": replicas_at(problem, trial.rate) if trial.purpose.puts_load else None,
        "purpose": trial.purpose.value,
        "seed_block": trial.seed_block,
        "attempt": trial.attempt,
        "started_at": result.started_at or None,
        "gpu_seconds": _plain(result.gpu_seconds),
        "planned_requests": result.planned_requests,
        "verdict": _plain(result.verdict),
        "failure": _plain(result.failure),
        "failure_knob": result.failure_knob,
        "latencies": _plain(result.latencies),
        "attribution": _plain(result.attribution),
        "slowest": _plain(result.slowest),
        "probe": _plain(result.probe),
        "cache": _cache(problem, result),
        "quality": _plain(result.quality),
        "reference": result.reference or None,
        "run_violation_shares": _plain(result.run_violation_shares),
        "memory_bytes": result.memory_bytes,
        "compute_buffer_bytes": result.compute_buffer_bytes,
        "host_memory_peak_bytes": result.host_memory_peak_bytes,
        "effective": dict(result.effective),
        "trace_hashes": list(result.trace_hashes),
        "warnings": list(result.warnings),
        "device": _plain(result.device),
        "node": result.node,
        "findings": list(findings.get(key, ())),
        "diagnosis": diagnosis_document(problem, result),
    }


def _cache(problem: Problem, result: TrialResult) -> dict[str, Any] | None:
    """What was seen of the prompt cache, with the code of what was found (None: nothing, or no cause is known)."""
    if result.cache is None:
        return None
    found = cache_shortfall(result, problem.models.get(result.trial.candidate.variant)) if problem.models else None
    return {**_plain(result.cache), "finding": None if found is None else found.code}


def _demand(problem: Problem) -> dict[str, Any]:
    """The traffic's shape. Prompts are counted and digested, never copied."""
    demand = problem.demand
    return {
        "identity": demand.identity,
        "peak_rate": _plain(demand.peak_rate),
        "arrivals": {"process": demand.arrivals.process, "burstiness": _plain(demand.arrivals.burstiness)},
        "output_tokens": demand.output_tokens,
        "ignore_eos": demand.ignore_eos,
        "input_tokens_mean": _plain(demand.input_tokens_mean),
        "input_tokens_p95": _plain(demand.input_tokens_p95),
        "input_tokens_max": demand.input_tokens_max,
        "reusable_tokens": _plain(demand.reusable_tokens),
        "recorded_prompts": len(demand.prompts),
        "synthetic": _plain(demand.synthetic),
    }


def _candidate(problem: Problem, candidate: Candidate) -> dict[str, Any]:
    values = _plain(candidate)
    values["extra_args"] = list(without_secrets(candidate.extra_args))
    return {"label": candidate_label(candidate, problem.baseline), **values}


def _key(problem: Problem, result: TrialResult) -> str:
    return problem.key(result.trial)


def _key_or_none(problem: Problem, result: TrialResult | None) -> str | None:
    return None if result is None else _key(problem, result)


def _plain(value: Any) -> Any:
    """Facts as JSON values: decimals and enums as strings, numbers that are none as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> str | int | float | None:
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"{type(value).__name__} has no plain form: give it one in {__name__}")
