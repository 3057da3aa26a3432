"""What each change bought, measured: the way from what runs today to the winner in three steps.

Queue (slots, batches, context), then cache, then bytes (weights, KV type), each on top of the
one before. The order is that of the explanation, not of the search: a search that moved in this
order would get stuck (slots need memory that only fewer bytes free).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from slotune.llama.candidate import Candidate
from slotune.llama.memory import predict
from slotune.search.decision import Step
from slotune.search.evidence import Evidence
from slotune.search.standing import Standing
from slotune.search.trial import TrialResult

__all__ = ["GROUPS", "SAID_ALOUD", "StoryStep", "story_steps", "told_steps"]

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "queue",
        (
            "parallel_slots",
            "context_per_slot",
            "kv_unified",
            "batch_size",
            "ubatch_size",
            "threads",
            "gpu_layers",
            "flash_attention",
            "backend_sampling",
            "extra_args",
        ),
    ),
    ("cache", ("cache_prompt", "cache_ram_mib", "cache_idle_slots", "cache_reuse")),
    (
        "bytes",
        ("variant", "cache_type_k", "cache_type_v", "speculation", "speculation_tokens", "speculation_match", "draft"),
    ),
    ("hardware", ("gpu_class",)),
)
"""Every field of a candidate belongs to exactly one group; a test holds that."""


SAID_ALOUD = frozenset({("flash_attention", "auto", "on"), ("gpu_layers", "auto", "all")})
"""Changes that only state what the server would have chosen by itself: no step of the story."""


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One step with what is known of it."""

    name: str
    candidate: Candidate
    changed: tuple[str, ...]
    replicas: int | None
    """Fewest replicas that passed so far."""
    open_replicas: int | None
    """The N to ask next; None when the step is told."""
    result: TrialResult | None
    note: str = ""


def story_steps(evidence: Evidence, winner: Candidate, winner_replicas: int) -> list[StoryStep]:
    """Steps between baseline and winner (without both), those that change nothing left out."""
    steps: list[StoryStep] = []
    current = evidence.problem.baseline
    today = evidence.knowledge.standing(current)
    if current != winner and today.passes(evidence.problem.demand.peak_rate / evidence.problem.replicas_today):
        # What keeps the promise today may do so with fewer: no change of settings may take credit for that.
        fewer = _step(
            evidence, "replicas", current, (), winner_replicas if current.gpu_class == winner.gpu_class else 1
        )
        if fewer.replicas != evidence.problem.replicas_today:
            steps.append(fewer)
    for name, names in GROUPS:
        changed = tuple(n for n in winner.changed_from(current) if n in names)
        if not changed:
            continue
        before = current
        current = replace(current, **{n: getattr(winner, n) for n in changed})
        if current == winner:
            break
        if all((n, getattr(before, n), getattr(current, n)) in SAID_ALOUD for n in changed):
            continue
        # Nothing on the same hardware needs fewer replicas than the cheapest answer.
        least = winner_replicas if current.gpu_class == winner.gpu_class else 1
        steps.append(_step(evidence, name, current, changed, least))
    return steps


def told_steps(evidence: Evidence, winner: Candidate, winner_replicas: int) -> tuple[Step, ...]:
    """The story for the decision: what runs today, the steps between, the winner."""
    problem, knowledge = evidence.problem, evidence.knowledge
    today = knowledge.standing(problem.baseline)
    kept = today.passes(problem.demand.peak_rate / problem.replicas_today)
    told = [
        Step(
            "baseline",
            problem.baseline,
            problem.replicas_today,
            evidence.cost(problem.baseline, problem.replicas_today),
            today.passed if kept else (today.refused or _last(today)),
            kept=kept,
            note="" if today.results else "not measured",
        )
    ]
    if winner == problem.baseline:
        if winner_replicas != problem.replicas_today:
            result = today.confirmed or today.passed
            told.append(Step("replicas", winner, winner_replicas, evidence.cost(winner, winner_replicas), result))
        return tuple(told)
    last = problem.baseline
    for step in story_steps(evidence, winner, winner_replicas):
        cost = None if step.replicas is None else evidence.cost(step.candidate, step.replicas)
        kept = step.replicas is not None
        told.append(Step(step.name, step.candidate, step.replicas, cost, step.result, step.changed, kept, step.note))
        last = step.candidate
    standing = knowledge.standing(winner)
    changed = winner.changed_from(last)
    telling = [n for n in changed if (n, getattr(last, n), getattr(winner, n)) not in SAID_ALOUD] or changed
    name = next(group for group, names in GROUPS if telling[0] in names)
    result = standing.confirmed or standing.passed
    told.append(Step(name, winner, winner_replicas, evidence.cost(winner, winner_replicas), result, changed))
    return tuple(told)


def _step(evidence: Evidence, name: str, candidate: Candidate, changed: tuple[str, ...], least: int) -> StoryStep:
    """Ask upwards from ``least``: a Fail is short, and more replicas than today are not worth a trial."""
    problem = evidence.problem
    standing = evidence.knowledge.standing(candidate)
    hardware = problem.hardware[candidate.gpu_class]
    needed = problem.memory_bytes.get(candidate)
    if needed is None:  # a step between lies outside the space as a rule
        draft = None if candidate.draft is None else problem.models[candidate.draft]
        facts = problem.models[candidate.variant]
        needed = predict(candidate, facts, on_gpu=hardware.is_gpu, draft=draft).needed
    limit = hardware.memory_bytes
    if standing.out is not None:
        return StoryStep(name, candidate, changed, None, None, _last(standing), standing.out.reason)
    if needed is not None and limit is not None and needed > limit:
        return StoryStep(name, candidate, changed, None, None, None, "does not fit without the changes after it")
    most = max(problem.replicas_today, least)
    for replicas in range(max(least, evidence.least_replicas(candidate)), most + 1):
        owed = problem.demand.peak_rate / replicas
        if standing.passes(owed):
            return StoryStep(name, candidate, changed, replicas, None, standing.passed)
        if not standing.is_closed(owed):
            return StoryStep(name, candidate, changed, None, replicas, _last(standing), "not measured")
    return StoryStep(name, candidate, changed, None, None, standing.refused, f"not kept with {most} either")


def _last(standing: Standing) -> TrialResult | None:
    return standing.results[-1] if standing.results else None
