"""A world for the search: every candidate has a true capacity, and a verdict without noise.

The search sees only what a sandbox would tell it. Exhaustive truth is one line away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.llama.model_facts import LayerCache, ModelFacts
from slotune.load.demand import Demand, SyntheticPrompts
from slotune.load.summary import IdleProbe, Latencies
from slotune.quality.divergence import Divergence
from slotune.quality.limits import BALANCED
from slotune.search.best_first import next_step
from slotune.search.bounds import Bounds, RooflineBounds, replicas_at_least
from slotune.search.decision import Decision
from slotune.search.options import Preference, unhinted
from slotune.search.pairs import Pair, pair_of
from slotune.search.problem import Budget, Hardware, Measurement, Problem, Pruned, QualityQuestion
from slotune.search.trial import Purpose, Trial, TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome, Verdict

GPU = "l4"
NEXT_TO_NOTHING = 0.01
REFERENCE = "ref"
QUALITY = QualityQuestion(BALANCED, "F16", context="of-answers")
"""Balanced against F16."""


def facts(name: str, *, bits: float = 16.0, gigabytes: float = 16.0) -> ModelFacts:
    """An 8B-like model file."""
    size = int(gigabytes * 1e9)
    return ModelFacts(
        path=f"/models/{name}.gguf",
        file_bytes=size,
        identity=name,
        architecture="llama",
        quantization=name,
        context_length=131072,
        vocabulary=128256,
        embedding=4096,
        heads=32,
        layers=(LayerCache(1024, 1024),) * 32,
        weights_bytes=size,
        active_weights_bytes=size,
        bits_per_weight=bits,
    )


def candidate(variant: str = "F16", gpu_class: str = GPU, slots: int = 1, **settings: object) -> Candidate:
    """A candidate of which only what matters is stated."""
    return Candidate(variant, gpu_class, slots, 4096, **settings)  # type: ignore[arg-type]  # a test's shorthand


def divergence(mean: float, lower: float, upper: float, reference: str = "ref") -> Divergence:
    """A comparison of which only the divergence matters."""
    return Divergence(
        positions=1024,
        prompts=64,
        mean_kld=mean,
        kld_standard_error=0.0,
        kld_lower=lower,
        kld_upper=upper,
        top1=1.0,
        top1_lower=0.99,
        top1_upper=1.0,
        effective_positions=1024.0,
        residual_mass=0.001,
        perplexity_ratio=1.0,
        confidence=0.95,
        reference_digest=reference,
    )


def problem(
    candidates: Sequence[Candidate],
    *,
    peak_rate: float = 6.0,
    replicas_today: int = 1,
    hardware: Mapping[str, Hardware] | None = None,
    budget: Budget | None = None,
    measurement: Measurement | None = None,
    explain: bool = False,
    **rest: object,
) -> Problem:
    """A search over ``candidates``, the first of which is the baseline."""
    models = {c.variant: facts(c.variant) for c in candidates} | {
        "F16": facts("F16"),
        "Q8_0": facts("Q8_0", bits=8.5, gigabytes=8.5),
        "Q4_0": facts("Q4_0", bits=4.5, gigabytes=4.5),
    }
    stated: dict[str, object] = {
        "name": "test",
        "promise": Promise(ttft_s=1.0),
        "demand": Demand(
            peak_rate=peak_rate, output_tokens=250, synthetic=SyntheticPrompts(4000), input_tokens_mean=4000
        ),
        "hardware": hardware or {GPU: Hardware(GPU, Decimal("0.80"), replicas_max=8)},
        "models": models,
        "candidates": tuple(dict.fromkeys(candidates)),
        "baseline": candidates[0],
        "replicas_today": replicas_today,
        "measurement": measurement or Measurement(sentinel_every=0),
        "budget": budget or Budget(gpu_seconds=1e9, trials=10_000),
        "explain": explain,
    }
    return Problem(**(stated | rest))  # type: ignore[arg-type]  # as above


@dataclass
class World:
    """True capacities in requests/s of one server."""

    capacity: Mapping[Candidate, float]
    """A candidate that is not listed (a step of the story outside the space) carries next to nothing."""
    failures: Mapping[Candidate, FailureClass] = field(default_factory=dict)
    verdicts: Callable[[Trial], Outcome | None] = lambda _: None
    """Overrules the truth for one trial, e.g. to make it Inconclusive."""
    seconds: Callable[[Trial], float] = lambda _: 30.0
    divergences: Mapping[Pair, float] = field(default_factory=dict)
    """Mean KLD of each pair against the reference; a pair that is not listed answers alike."""
    weak_below: Mapping[Candidate, float] = field(default_factory=dict)
    """Rate below which a candidate does not hold, as guessed tokens may do."""
    probe: IdleProbe | None = None
    asked: list[Trial] = field(default_factory=list)

    def carries(self, candidate: Candidate) -> float:
        """The truth about any candidate."""
        return self.capacity.get(candidate, NEXT_TO_NOTHING)

    def holds(self, candidate: Candidate, rate: float) -> bool:
        """The truth about a candidate at one rate."""
        return self.weak_below.get(candidate, 0.0) <= rate <= self.carries(candidate) * (1 + 1e-9)

    def _look_at_answers(self, trial: Trial) -> TrialResult:
        """A comparison whose numbers are exact, unless ``verdicts`` says that it was at fault or could not tell."""
        outcome = self.verdicts(trial) or Outcome.PASS
        seconds = min(self.seconds(trial), trial.time_limit_s or float("inf"))
        said = TrialResult(trial, Verdict(outcome, f"it was {outcome}", "Said", trial.confidence), seconds)
        if outcome is Outcome.INVALID or (trial.purpose is Purpose.REFERENCE and outcome is not Outcome.PASS):
            return said
        if trial.purpose is Purpose.REFERENCE:
            return replace(said, reference=REFERENCE)
        true = self.divergences.get(pair_of(trial.candidate), 0.0)
        unsure = (0.0, 1.0) if outcome is Outcome.INCONCLUSIVE else (true, true)
        return replace(said, quality=divergence(true, *unsure))

    def measure(self, trial: Trial) -> TrialResult:
        """What a sandbox without noise would say."""
        self.asked.append(trial)
        if trial.purpose.asks_answers:
            return self._look_at_answers(trial)
        failure = self.failures.get(trial.candidate)
        if failure is not None:
            outcome = Outcome.FAIL
        elif trial.purpose is Purpose.SENTINEL:
            outcome = Outcome.PASS
        else:
            truth = Outcome.PASS if self.holds(trial.candidate, trial.rate) else Outcome.FAIL
            outcome = self.verdicts(trial) or truth
        return TrialResult(
            trial,
            Verdict(
                outcome, f"it was a {outcome}", "Said", trial.confidence, 1000, 0 if outcome is Outcome.PASS else 99
            ),
            min(self.seconds(trial), trial.time_limit_s or float("inf")),
            failure=failure,
            probe=None if failure else self.probe,
            latencies=Latencies(ttft_p95_s=0.5 * trial.rate / max(1e-9, self.carries(trial.candidate))),
        )


@dataclass(frozen=True)
class KnownBounds:
    """Bounds that are the truth times a factor of at least 1."""

    world: World
    optimism: Callable[[Candidate], float] = lambda _: 1.0

    def capacity_at_most(self, candidate: Candidate) -> float:
        return self.world.carries(candidate) * self.optimism(candidate)

    def floor(self, candidate: Candidate) -> Pruned | None:
        return None


def live(
    problem: Problem,
    world: World,
    make_bounds: Callable[[Problem, Iterable[TrialResult]], Bounds] = RooflineBounds.from_results,
    results: Sequence[TrialResult] = (),
    prefer: Callable[[Problem, Sequence[TrialResult]], Preference] = unhinted,
) -> tuple[Decision, list[TrialResult]]:
    """Run the search to its decision."""
    collected = list(results)
    for _ in range(20_000):
        step = next_step(problem, collected, make_bounds, prefer(problem, collected))
        if isinstance(step, Decision):
            return step, collected
        collected.append(world.measure(step))
    raise AssertionError("the search does not end")


def cheapest(problem: Problem, capacity: Mapping[Candidate, float]) -> Decimal | None:
    """Exhaustive truth: the least cost per hour of all candidates, or None when none can."""
    costs = []
    for one in problem.candidates:
        hardware = problem.hardware[one.gpu_class]
        replicas = replicas_at_least(problem.demand.peak_rate, capacity[one]) if capacity[one] > 0 else 10**9
        if replicas <= hardware.replicas_max:
            costs.append(hardware.price_per_hour * replicas)
    return min(costs, default=None)


__all__ = [
    "GPU",
    "QUALITY",
    "REFERENCE",
    "KnownBounds",
    "World",
    "candidate",
    "cheapest",
    "divergence",
    "facts",
    "live",
    "problem",
    "replace",
]
