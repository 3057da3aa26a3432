"""From manifests to a search problem: what runs today, what may be tried, what can't fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from slotune.api.manifests import Manifests
from slotune.api.quantities import parse_decimal, parse_duration
from slotune.api.v1alpha1.measurement import Measurement as MeasurementSpec
from slotune.llama.build_arguments import unsupported
from slotune.llama.candidate import Candidate
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned
from slotune.search.space import SpaceLimits, build_space, context_at_least, context_needed
from slotune.tuning.baseline import Baseline, baseline_of
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.fitting import without_what_cannot_fit
from slotune.tuning.local_limits import check_local
from slotune.tuning.quality_question import quality_question
from slotune.tuning.traffic import demand_of
from slotune.tuning.weights import facts_of, locate
from slotune.verdict.promise import Promise

__all__ = [
    "Reading",
    "Today",
    "check_unseen",
    "measurement_from",
    "measurement_of",
    "promise_of",
    "read_problem",
    "reading_of",
]

FORMAT = 1
"""Part of every trial's context: results of a slotune that measured differently are not reused."""


@dataclass(frozen=True, slots=True)
class Today:
    """What ran when the search began: the baseline still, when production has the answer by now."""

    candidate: Candidate
    replicas: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What the manifests said, ready to be searched."""

    problem: Problem
    """What can fit as far as is known before anything runs."""
    space: Problem
    """The same with everything that may be tried: starts correct what can fit."""
    baseline: Baseline
    model_paths: Mapping[str, Path]
    deployment: str
    """Name of the Deployment that a patch is for."""
    container: str
    """Name of its container that is llama-server."""
    notes: tuple[str, ...]
    """What was ignored or assumed, in words."""


def read_problem(
    manifests: Manifests, *, models_dir: Path | None, engine: str, gpu_class: str | None = None
) -> Reading:
    """Resolve everything that a manifest names; nothing is started.

    Args:
        manifests: checked manifests.
        models_dir: folder with the weights files; None looks where the pod would.
        engine: names the llama.cpp build and the machine, so that results of others are not reused.
        gpu_class: the only one to look at; None takes all that the manifest allows.

    Raises:
        InvalidInputError, InputFileError, UnreadableModelError: what is wrong, and the cure.
    """
    notes = check_local(manifests)
    paths = locate(manifests, models_dir)
    demand = demand_of(manifests)
    return reading_of(
        manifests, demand, facts_of(paths), engine=engine, gpu_class=gpu_class, model_paths=paths, notes=notes
    )


def reading_of(
    manifests: Manifests,
    demand: Demand,
    models: Mapping[str, ModelFacts],
    *,
    engine: str,
    gpu_class: str | None = None,
    model_paths: Mapping[str, Path] = MappingProxyType({}),
    notes: tuple[str, ...] = (),
    today: Today | None = None,
    build: int | None = None,
) -> Reading:
    """The same from what was read already: no I/O.

    Args:
        manifests: checked manifests.
        demand: the traffic in them.
        models: facts of each weights file, by variant.
        engine: names the llama.cpp build and all else that measurements are only comparable within.
        gpu_class: the only one to look at; None takes all that the manifest allows.
        model_paths: where the files lie, for whoever starts servers here.
        notes: what was said before.
        today: what ran before slotune changed it, where the template has an answer of ours already.
        build: of llama.cpp, where the program itself was asked; None goes by the image's tag.

    Raises:
        InvalidInputError: what is wrong, and the cure.
    """
    spec = manifests.deployment.spec
    classes = tuple(manifests.gpu_classes) if gpu_class is None else (gpu_class,)
    baseline, replicas = _what_runs(manifests, models, classes[0], today, build)
    candidates, pruned = build_space(
        baseline.candidate, _limits(manifests, baseline.candidate, classes), demand, models
    )
    _check_context(manifests, demand, models, candidates, pruned)
    candidates, pruned = _for_build(baseline, candidates, pruned)
    measurement = measurement_of(manifests)
    promise = promise_of(manifests)
    problem = Problem(
        name=manifests.deployment.metadata.name,
        promise=promise,
        demand=demand,
        hardware={name: _hardware(manifests, name) for name in classes},
        models=models,
        candidates=candidates,
        baseline=baseline.candidate,
        replicas_today=replicas,
        measurement=measurement,
        budget=Budget(gpu_seconds=60.0 * spec.search.budget.gpu_minutes, trials=spec.search.budget.trials),
        pruned=pruned,
        explain=spec.search.explain == "Measured",
        quality=quality_question(manifests, models, demand, engine),
        context=_context(promise, demand.identity, measurement, models, engine),
    )
    target = spec.target_ref.name if spec.target_ref is not None else problem.name
    fitting = without_what_cannot_fit(problem, ())
    every_note = (*manifests.notes, *notes, *baseline.notes)
    return Reading(fitting, problem, baseline, model_paths, target, manifests.container.name, every_note)


def check_unseen(manifests: Manifests, *, today: Today | None = None, build: int | None = None) -> None:
    """Refuse what :func:`reading_of` refuses whatever the weights are: nobody has looked at them yet.

    Arguments are the same.

    Raises:
        InvalidInputError: what is wrong, and the cure.
    """
    _what_runs(manifests, None, next(iter(manifests.gpu_classes)), today, build)


def _what_runs(
    manifests: Manifests,
    models: Mapping[str, ModelFacts] | None,
    gpu_class: str,
    today: Today | None,
    build: int | None,
) -> tuple[Baseline, int]:
    """The baseline and its replicas. All that needs no fact of the weights is refused in here, before any that does;
    ``models`` is None while they were not looked at."""
    most = manifests.deployment.spec.max_replicas(gpu_class)
    replicas = manifests.replicas if today is None else today.replicas
    if replicas > most:
        raise InvalidInputError(*_too_few_allowed(manifests, gpu_class, most, replicas))
    baseline = baseline_of(manifests, models, gpu_class, build)
    if today is None:
        return baseline, replicas
    # What is not tuned was never changed by slotune: it is what the template says by now.
    candidate = replace(today.candidate, extra_args=baseline.candidate.extra_args)
    return replace(baseline, candidate=candidate), replicas


def _too_few_allowed(manifests: Manifests, gpu_class: str, most: int, replicas: int) -> tuple[str, int, str]:
    """Field, value and cure."""
    spec = manifests.deployment.spec
    index, reference = next((at, one) for at, one in enumerate(spec.gpu_classes) if one.name == gpu_class)
    field = "spec.search.maxReplicas" if reference.max_replicas is None else f"spec.gpuClasses[{index}].maxReplicas"
    said = "spec.replicas" if spec.target_ref is None else f"spec.replicas of Deployment {spec.target_ref.name}"
    return field, most, f"{replicas} pods run today ({said}) on {gpu_class}: allow at least as many"


def _for_build(
    baseline: Baseline, candidates: Sequence[Candidate], pruned: Sequence[Pruned]
) -> tuple[tuple[Candidate, ...], tuple[Pruned, ...]]:
    """Without what the server's build of llama.cpp cannot be brought to; what runs today runs."""
    said = {one: unsupported(one, baseline.defaults) for one in candidates if one != baseline.candidate}
    out = [Pruned(one, "NotInThisBuild", " ".join(reasons)) for one, reasons in said.items() if reasons]
    return tuple(one for one in candidates if not said.get(one)), (*pruned, *out)


def _check_context(
    manifests: Manifests,
    demand: Demand,
    models: Mapping[str, ModelFacts],
    candidates: Sequence[Candidate],
    pruned: Sequence[Pruned],
) -> None:
    """Refuse a workload whose longest request fits nowhere: every trial would only show HTTP 400."""
    longest = context_at_least(demand)
    answer = demand.longest_answer
    request = f"the longest request takes {longest} tokens ({longest - answer} + {answer})"
    room = max(facts.context_length for facts in models.values())
    if room < longest:
        raise InvalidInputError(
            "workload prompts and output",
            None,
            f"{request}, and no model was trained for more than {room}: shorten them, or offer another model",
        )
    allowed = manifests.deployment.spec.search.space.context_size_per_slot
    if allowed and len(candidates) == 1 and any(p.code in {"ContextTooSmall", "ContextAboveTraining"} for p in pruned):
        raise InvalidInputError(
            "spec.search.space.contextSizePerSlot",
            ", ".join(map(str, allowed)),
            f"{request}, and no model was trained for more than {room}: add {context_needed(demand)}"
            if min(allowed) >= longest
            else f"{request}: add {context_needed(demand)}, or shorten the prompts",
        )


def promise_of(manifests: Manifests) -> Promise:
    """The SLO in the units of the statistics."""
    slo = manifests.deployment.spec.slo
    speed = slo.tokens_per_second
    return Promise(float(slo.ttft_p95_seconds), None if speed is None else float(speed))


def measurement_of(manifests: Manifests) -> Measurement:
    """The measurement settings as plain numbers."""
    return measurement_from(manifests.deployment.spec.measurement)


def measurement_from(stated: MeasurementSpec) -> Measurement:
    """The measurement settings of a LlamaDeployment or a LlamaTrial as plain numbers."""
    field = "spec.measurement"
    return Measurement(
        confidence=float(parse_decimal(stated.confidence, f"{field}.confidence")),
        requests_per_run=stated.requests_per_run,
        runs=stated.runs,
        warmup_requests=stated.warmup_requests,
        extensions=stated.extensions,
        base_seed=stated.seed,
        request_timeout_s=float(parse_duration(stated.request_timeout, f"{field}.requestTimeout")),
        startup_timeout_s=float(parse_duration(stated.startup_timeout, f"{field}.startupTimeout")),
        drift_limit=float(parse_decimal(stated.drift_percent, f"{field}.driftPercent")) / 100,
        sentinel_every=stated.sentinel_every,
        probe_requests=stated.probe_requests,
    )


def _hardware(manifests: Manifests, name: str) -> Hardware:
    spec = manifests.gpu_classes[name].spec
    bandwidth = spec.bandwidth_bytes_per_second
    return Hardware(
        name=name,
        price_per_hour=spec.price,
        currency=spec.currency,
        memory_bytes=spec.memory_bytes,
        bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth),
        replicas_max=manifests.deployment.spec.max_replicas(name),
        is_gpu=spec.resource_name is not None,
    )


def _limits(manifests: Manifests, baseline: Candidate, classes: tuple[str, ...]) -> SpaceLimits:
    """The user's bounds. Without a word about quality, nothing that changes answers is tried."""
    spec = manifests.deployment.spec
    space = spec.search.space
    bound = spec.slo.quality is None
    drafts = {variant.name: variant.draft for variant in spec.models if variant.draft is not None}
    answering = tuple(variant.name for variant in spec.models if variant.name not in drafts.values())
    names = space.models or answering
    return SpaceLimits(
        variants=(baseline.variant,) if bound else names,
        gpu_classes=classes,
        parallel_slots=space.parallel_slots,
        context_per_slot=space.context_size_per_slot,
        kv_unified=space.kv_unified,
        batch_size=space.batch_size,
        ubatch_size=space.u_batch_size,
        cache_types=(baseline.cache_type_k,) if bound and not space.cache_types else space.cache_types,
        cache_ram_mib=space.cache_ram_mib,
        cache_reuse=space.cache_reuse,
        cache_idle_slots=space.cache_idle_slots,
        speculation=space.speculation,
        speculation_tokens=space.speculation_tokens,
        speculation_match=space.speculation_match,
        backend_sampling=space.backend_sampling,
        drafts=drafts,
    )


def _context(
    promise: Promise, demand: str, measurement: Measurement, models: Mapping[str, ModelFacts], engine: str
) -> str:
    """Digest of all that is equal for every trial: when any of it changes, no earlier result answers the question."""
    said = {
        "format": FORMAT,
        "promise": asdict(promise),
        "demand": demand,
        "measurement": asdict(measurement),
        "models": {name: facts.identity for name, facts in sorted(models.items())},
        "engine": engine,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
