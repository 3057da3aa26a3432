"""One verdict on a server that already runs, wherever it came from."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from slotune.api.manifests import Manifests
from slotune.llama.candidate import Candidate
from slotune.llama.server_http import LlamaServer, ServerError
from slotune.load.probe import IdleProbeError
from slotune.load.target import Target
from slotune.sandbox.measurement import Question, ServerWedgedError, measure_server, unmeasured
from slotune.search.problem import Hardware, Problem
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.loop import Reporter
from slotune.tuning.reading import measurement_of, promise_of
from slotune.tuning.traffic import demand_of
from slotune.verdict.verdicts import Outcome, Verdict

__all__ = ["measure_url", "problem_of_server"]


async def problem_of_server(manifests: Manifests, url: str, api_key: str | None, replicas: int | None) -> Problem:
    """The question that ``manifests`` ask, with the running server as its only candidate.

    Raises:
        InvalidInputError: nothing at ``url`` answers like a llama-server.
    """
    demand = demand_of(manifests)
    try:
        async with LlamaServer(url, api_key=api_key) as server:
            props, model = await server.props(), await server.model()
    except ServerError as error:
        raise InvalidInputError("--url", url, f"no llama-server answers there ({error})") from error
    gpu_class = next(iter(manifests.gpu_classes.values()))
    name = gpu_class.metadata.name
    candidate = Candidate(model.id or "model", name, max(1, props.total_slots), props.context_per_slot)
    longest = demand.input_tokens_max + demand.longest_answer
    if demand.synthetic is not None and longest > props.context_per_slot:
        raise InvalidInputError(
            "--url",
            url,
            f"its slots hold {props.context_per_slot} tokens, the longest request takes {longest}: start the server "
            "with a larger --ctx-size, or shorten the workload",
        )
    return Problem(
        name=manifests.deployment.metadata.name,
        promise=promise_of(manifests),
        demand=demand,
        hardware={name: Hardware(name, gpu_class.spec.price, currency=gpu_class.spec.currency)},
        models={},
        candidates=(candidate,),
        baseline=candidate,
        replicas_today=replicas or manifests.replicas,
        measurement=measurement_of(manifests),
        explain=False,
    )


async def measure_url(problem: Problem, url: str, api_key: str | None, reporter: Reporter) -> TrialResult:
    """Measure the server at ``url`` at its share of the peak rate. It is neither started nor stopped."""
    m = problem.measurement
    rate = problem.demand.peak_rate / problem.replicas_today
    trial = Trial(problem.baseline, rate, confidence=m.confidence, purpose=Purpose.BASELINE)
    base = TrialResult(
        trial,
        Verdict(Outcome.INVALID, "not measured", "NotMeasured", m.confidence),
        0.0,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    slots = problem.baseline.parallel_slots  # prompts are cached unless a server was told not to
    question = Question(problem.demand, problem.promise, m, rate, m.confidence, caching_slots=slots)
    began = time.monotonic()
    reporter.started(1, trial)
    try:
        async with LlamaServer(url, api_key=api_key) as server:
            target = Target(url, problem.baseline.variant, api_key)
            findings = await measure_server(server, target, question, reporter.progressed)
        result = findings.on(base)
    except ServerWedgedError as error:
        verdict = Verdict(Outcome.FAIL, f"the server stopped working: {error}", "Wedged", m.confidence)
        result = replace(base, verdict=verdict)
    except (ServerError, IdleProbeError) as error:
        result = replace(base, verdict=unmeasured(error, m.confidence))
    return replace(result, gpu_seconds=time.monotonic() - began)
