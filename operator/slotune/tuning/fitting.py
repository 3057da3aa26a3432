"""Memory first: what can't fit is never started, and every start corrects the prediction for the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slotune.llama.memory import NOTHING_LEARNED, LearnedCompute, fits, predict
from slotune.search.problem import Problem, Pruned
from slotune.search.trial import TrialResult

__all__ = ["learned_from", "without_what_cannot_fit"]


def without_what_cannot_fit(problem: Problem, results: Iterable[TrialResult]) -> Problem:
    """``problem`` with predicted bytes for every candidate, and those that can't fit moved to ``pruned``.

    What runs today stays, whatever the prediction says: it does run. So does what was measured.
    """
    results = list(results)
    learned = learned_from(problem, results)
    measured = {result.trial.candidate for result in results}
    needed, kept, pruned = {}, [], []
    for candidate in problem.candidates:
        hardware = problem.hardware[candidate.gpu_class]
        draft = None if candidate.draft is None else problem.models[candidate.draft]
        estimate = predict(candidate, problem.models[candidate.variant], learned, on_gpu=hardware.is_gpu, draft=draft)
        needed[candidate] = estimate.needed
        verdict = None if hardware.memory_bytes is None else fits(estimate, hardware.memory_bytes)
        if verdict is None or verdict.ok or candidate == problem.baseline or candidate in measured:
            kept.append(candidate)
        else:
            pruned.append(Pruned(candidate, "DoesNotFit", verdict.reason))
    return replace(
        problem,
        candidates=tuple(kept),
        memory_bytes={**problem.memory_bytes, **needed},
        pruned=(*problem.pruned, *pruned),
    )


def learned_from(problem: Problem, results: Iterable[TrialResult]) -> LearnedCompute:
    """What the starts so far say about compute buffers."""
    learned = NOTHING_LEARNED
    for result in results:
        candidate = result.trial.candidate
        if result.compute_buffer_bytes is not None:
            hardware = problem.hardware[candidate.gpu_class]
            facts = problem.models[candidate.variant]
            learned = learned.with_start(candidate, facts, result.compute_buffer_bytes, on_gpu=hardware.is_gpu)
    return learned
