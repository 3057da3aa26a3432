"""How the numbers came about, and every measurement setting that was lowered, said in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from slotune.report.cache import cache_lines
from slotune.report.figures import count, duration, finite, percent, plural, price, rate, sentence, significant, size
from slotune.search.decision import Decision
from slotune.search.problem import Measurement, Problem
from slotune.search.trial import Purpose, TrialResult

__all__ = ["headroom_sentence", "how_measured", "lowered_in_short", "lowered_settings", "warnings_of"]

_ENGINE_KEYS = ("build", "build_info")
"""Names under which an effective configuration states the engine's build, best first."""


LEAST_HEADROOM = 1.05


def how_measured(
    problem: Problem, decision: Decision, results: Sequence[TrialResult], environment: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """(term, sentence) pairs. ``environment`` holds what only the caller knows, by term, e.g. ``Engine``."""
    settings = problem.measurement
    confidence = decision.confidence if decision.confidence is not None else settings.confidence
    fresh = decision.choice is not None and decision.choice.result.trial.purpose is Purpose.CONFIRM
    confirmed = " The winner was measured again with fresh seeds on a fresh start." if fresh else ""
    facts = {
        "Confidence": f"{percent(confidence)}: a Pass or a Fail is only said when it is shown at least this surely.",
        "Traffic": _traffic(problem),
        "Requests": (
            f"{plural(settings.runs, 'run')} of {plural(settings.requests_per_run, 'request')} for each trial, each "
            f"after {plural(settings.warmup_requests, 'request')} of warm-up that {_are(settings.warmup_requests)} "
            "discarded. A trial stops early once a Pass has become impossible."
        ),
        "Seeds": f"Base seed {settings.base_seed}; each run has its own, the same for every candidate." + confirmed,
        "Clock": "Every wait counts from the moment a request was due, not from when it was sent.",
        "Machine": _machines(problem),
        "Spent": (
            f"{duration(decision.gpu_seconds)} of GPU time in {plural(decision.trials, 'trial')}; the budget was "
            f"{duration(problem.budget.gpu_seconds)} and {plural(problem.budget.trials, 'trial')}."
        ),
    }
    if decision.choice is not None and decision.choice.result.memory_bytes is not None:
        facts["Memory"] = f"{size(decision.choice.result.memory_bytes)} for the winner, as its log states it."
    if decision.choice is not None and (lines := cache_lines(problem, decision.choice.result)):
        facts["Prompt cache"] = " ".join(sentence(line) for line in lines)
    if (build := _engine_build(results)) is not None:
        facts["Engine"] = f"llama.cpp, build {build}."
    facts.update(environment)
    if traces := len({trace for r in results for trace in r.trace_hashes}):
        facts["Traces"] = f"{plural(traces, 'recorded trace')}; the digests are in the saved data."
    return tuple(facts.items())


def lowered_settings(measurement: Measurement) -> tuple[str, ...]:
    """One sentence for each setting that gives less evidence than the defaults, and what that means."""
    full = Measurement()
    sentences = []
    if measurement.confidence < full.confidence:
        luck = 1 - measurement.confidence
        sentences.append(
            f"Confidence was lowered to {percent(measurement.confidence)} (a production decision deserves "
            f"{percent(full.confidence)}): of configurations that just miss the promise, up to {percent(luck)} "
            "would pass by luck."
        )
    if measurement.runs < full.runs:
        sentences.append(
            f"{plural(measurement.runs, 'run')} for each trial instead of {full.runs}: less is known about how much "
            "the answer varies from run to run."
        )
    if measurement.requests_per_run < full.requests_per_run:
        sentences.append(
            f"{plural(measurement.requests_per_run, 'request')} for each run instead of {full.requests_per_run}: "
            "only a configuration with a clear margin can be told from one without."
        )
    if measurement.warmup_requests < full.warmup_requests:
        sentences.append(
            f"{plural(measurement.warmup_requests, 'request')} of warm-up instead of {full.warmup_requests}: "
            "queues and caches may not have reached their usual level."
        )
    if measurement.drift_limit > full.drift_limit:
        sentences.append(
            f"The machine may have drifted by {percent(measurement.drift_limit)} between trials before they were "
            f"thrown away, instead of {percent(full.drift_limit)}."
        )
    if measurement.sentinel_every == 0:
        sentences.append("Nothing watched whether the machine became faster or slower between trials.")
    return tuple(sentences)


def lowered_in_short(measurement: Measurement) -> str:
    """All lowered settings in one line for the terminal; empty when none was lowered."""
    full = Measurement()
    parts = []
    if measurement.confidence < full.confidence:
        parts.append(f"confidence {percent(measurement.confidence)} (else {percent(full.confidence)})")
    for now, usual, name in (
        (measurement.runs, full.runs, "runs"),
        (measurement.requests_per_run, full.requests_per_run, "requests a run"),
        (measurement.warmup_requests, full.warmup_requests, "to warm up"),
    ):
        if now < usual:
            parts.append(f"{now} {name} (else {usual})")
    if measurement.sentinel_every == 0:
        parts.append("no look at whether the machine drifts")
    elif measurement.drift_limit > full.drift_limit:
        parts.append(f"a drift of {percent(measurement.drift_limit)} allowed (else {percent(full.drift_limit)})")
    return f"Lowered for this run: {', '.join(parts)}." if parts else ""


def headroom_sentence(decision: Decision) -> str:
    """How far above the owed rate the winner was shown to hold; empty when not by at least 5 %."""
    headroom = finite(decision.choice.headroom) if decision.choice is not None else None
    if headroom is None or headroom < LEAST_HEADROOM:
        return ""
    return f"The winner kept the promise at {significant(headroom)} times the rate that it is owed."


def warnings_of(results: Sequence[TrialResult]) -> tuple[str, ...]:
    """Each warning once, the most frequent first, with how many trials raised it."""
    counted = Counter(warning for result in results for warning in result.warnings)
    return tuple(
        text if times == 1 else f"{text} ({plural(times, 'trial')})"
        for text, times in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    )


def _traffic(problem: Problem) -> str:
    demand = problem.demand
    kind = {
        "poisson": "arriving at random (Poisson)",
        "constant": "evenly spaced",
        "gamma": f"arriving in bursts (gamma, {demand.arrivals.burstiness:g})",
        "replay": "spaced as recorded",
    }[demand.arrivals.process]
    what = "recorded prompts" if demand.prompts else "synthetic prompts"
    text = f"Open loop: {rate(demand.peak_rate)} at the peak, {kind}, whether or not the server keeps up; {what}"
    if demand.input_tokens_mean > 0:
        text += f", about {count(demand.input_tokens_mean)} tokens in"
    text += f", {'' if demand.ignore_eos else 'at most '}{count(demand.output_tokens)} out"
    if demand.reusable_tokens > 0:
        text += f"; about {count(demand.reusable_tokens)} tokens of a prompt were seen before"
    return text + "."


def _machines(problem: Problem) -> str:
    used = {c.gpu_class for c in problem.candidates} | {problem.baseline.gpu_class}
    parts = []
    for name, hardware in problem.hardware.items():
        if name in used:
            memory = f", {size(hardware.memory_bytes)}" if hardware.memory_bytes is not None else ""
            parts.append(f"{hardware.name} at {price(hardware.price_per_hour, hardware.currency)} an hour{memory}")
    return "; ".join(parts) + "." if parts else "Not stated."


def _engine_build(results: Sequence[TrialResult]) -> str | None:
    for key in _ENGINE_KEYS:
        builds = {value for r in results for name, value in r.effective if name == key}
        if builds:
            return ", ".join(sorted(builds))
    return None


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
