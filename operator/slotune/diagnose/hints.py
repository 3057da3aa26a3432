"""Which of equals a search should ask first, from what was found of the trials so far.

An order among equals is all that it is. The search looks at it after cost, known passes and what answers lose
(:func:`slotune.search.options.best_options`), so it rules nothing out, and nothing counts as proved for it.

A finding names settings and, as a rule, the way to move them: more slots where requests stand in a queue, fewer where
they wait in the batch. A candidate is held against the trial that it is most like, its own if it was asked before (at a
faster rate, as a search does). Setting by setting, in the order of findings and of what each names: moved the right way
comes before left alone, and that before moved the wrong way. Where nothing moved it stands where that trial does, by
how narrowly it missed. Without directions 4 slots would be tried because 16 were too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from slotune.diagnose.finding import Finding
from slotune.diagnose.findings import trial_findings
from slotune.llama.candidate import Candidate
from slotune.llama.kv_types import bytes_per_element
from slotune.search.drift import without_drifted
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = ["hints"]

MOST_MISSES: Final = 32
"""Trials that a candidate is compared with, the newest: an order needs no more, and a space may be large."""

_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "variant": "variant",
        "gpuClass": "gpu_class",
        "parallelSlots": "parallel_slots",
        "contextSizePerSlot": "context_per_slot",
        "kvUnified": "kv_unified",
        "batchSize": "batch_size",
        "uBatchSize": "ubatch_size",
        "cacheTypeK": "cache_type_k",
        "cacheTypeV": "cache_type_v",
        "flashAttention": "flash_attention",
        "cachePrompt": "cache_prompt",
        "cacheRAMMiB": "cache_ram_mib",
        "cacheIdleSlots": "cache_idle_slots",
        "cacheReuse": "cache_reuse",
        "gpuLayers": "gpu_layers",
        "speculation": "speculation",
        "draft": "draft",
        "extraArgs": "extra_args",
    }
)
"""Setting as findings name it to field of a candidate. ``replicas`` is no field: the search asks for more by itself."""

_LESS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "Contention": frozenset({"parallelSlots"}),
        "ScatteredSlots": frozenset({"parallelSlots"}),
        "BytesPerStep": frozenset({"variant", "cacheTypeK", "cacheTypeV", "parallelSlots"}),
        "NeighboursStall": frozenset({"batchSize"}),
        "CachedTooMuch": frozenset({"cacheRAMMiB"}),
        "ForeignContext": frozenset({"cacheRAMMiB", "cacheReuse"}),
        "OneUserTooSlow": frozenset({"variant"}),
        "PromptAloneTooSlow": frozenset({"variant"}),
        "Saturated": frozenset({"variant", "cacheTypeK", "cacheTypeV"}),
        "TooFewSlots": frozenset({"cacheTypeK", "cacheTypeV"}),
        "OutOfMemoryWeights": frozenset({"variant"}),
        "OutOfMemoryKV": frozenset({"contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV"}),
        "OutOfMemoryCompute": frozenset({"uBatchSize"}),
        "OutOfMemoryRuntime": frozenset({"uBatchSize", "contextSizePerSlot"}),
        "OutOfMemoryHost": frozenset({"cacheRAMMiB"}),
    }
)
"""Settings of a finding that should become less, by its code; others should become more, or merely others."""

_Rank = tuple[tuple[int, ...], float, float]
_RIGHT_WAY, _LEFT_ALONE, _WRONG_WAY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Miss:
    """A trial that did not pass."""

    result: TrialResult
    findings: tuple[Finding, ...]
    values: tuple[Any, ...]
    """Of the candidate's fields, in their order."""

    @property
    def narrowness(self) -> tuple[float, float]:
        """How far it was from passing, the least first: share of requests that broke the promise, then p95 TTFT."""
        verdict = self.result.verdict
        if self.result.failure is not None or not verdict.requests:
            return 1.0, float("inf")
        late = verdict.ttft_p95_s
        return verdict.violations / verdict.requests, float("inf") if late is None else late


def hints(problem: Problem, results: Sequence[TrialResult]) -> Mapping[Candidate, int]:
    """Candidate to its place among equals, the least first; empty before anything missed.

    Args:
        problem: the search.
        results: everything that was measured for it, oldest first.
    """
    misses = _misses(problem, results)
    if not misses:
        return MappingProxyType({})
    own = {miss.result.trial.candidate: miss for miss in misses}
    ranks = {candidate: _rank(problem, candidate, own, misses) for candidate in problem.candidates}
    places = {rank: place for place, rank in enumerate(sorted(set(ranks.values())))}
    return MappingProxyType({candidate: places[rank] for candidate, rank in ranks.items()})


def _misses(problem: Problem, results: Sequence[TrialResult]) -> list[_Miss]:
    """Those whose measurement can be trusted, oldest first; of a candidate the one at the slowest rate counts."""
    found: dict[Candidate, TrialResult] = {}
    for result in without_drifted(problem, results):
        trial = result.trial
        if not trial.purpose.puts_load or trial.purpose in {Purpose.FINALIST, Purpose.PARTIAL}:
            continue
        if result.verdict.outcome not in {Outcome.FAIL, Outcome.INCONCLUSIVE}:
            continue
        known = found.get(trial.candidate)
        if known is None or trial.rate <= known.trial.rate:
            found.pop(trial.candidate, None)
            found[trial.candidate] = result
    return [_Miss(result, trial_findings(problem, result), _values(candidate)) for candidate, result in found.items()]


def _rank(problem: Problem, candidate: Candidate, own: Mapping[Candidate, _Miss], misses: Sequence[_Miss]) -> _Rank:
    like = own.get(candidate) or _most_like(candidate, misses[-MOST_MISSES:])
    return (_moves(problem, like, candidate), *like.narrowness)


def _most_like(candidate: Candidate, misses: Sequence[_Miss]) -> _Miss:
    """The trial whose settings differ in the fewest fields; of several the newest."""
    values = _values(candidate)
    return min(
        reversed(misses),
        key=lambda miss: sum(one != other for one, other in zip(values, miss.values, strict=True)),
    )


def _moves(problem: Problem, miss: _Miss, candidate: Candidate) -> tuple[int, ...]:
    """How each setting that was named moved, the first named first; filled up, so that any two can be compared."""
    ways: dict[str, bool] = {}
    """Setting to whether less of it is asked for. Whoever names it first says so."""
    for found in miss.findings:
        for knob in found.knobs:
            if knob in _FIELDS:
                ways.setdefault(knob, knob in _LESS.get(found.code, ()))
    moves = [_move(problem, miss.result.trial.candidate, candidate, _FIELDS[knob], less) for knob, less in ways.items()]
    return (*moves, *(_LEFT_ALONE,) * (len(_FIELDS) - len(moves)))


def _move(problem: Problem, tried: Candidate, candidate: Candidate, field: str, less: bool) -> int:
    if getattr(tried, field) == getattr(candidate, field):
        return _LEFT_ALONE
    before, after = _size(problem, tried, field), _size(problem, candidate, field)
    if before is None or after is None or (after < before) == less:
        return _RIGHT_WAY
    return _WRONG_WAY


def _size(problem: Problem, candidate: Candidate, field: str) -> float | None:
    """How much a setting is, where more and less mean something."""
    value = getattr(candidate, field)
    if field == "variant":
        return problem.models[value].bits_per_weight if value in problem.models else None
    if field in {"cache_type_k", "cache_type_v"}:
        return bytes_per_element(value)
    if field == "cache_ram_mib" and value < 0:
        return float("inf")
    return float(value) if isinstance(value, int) else None


def _values(candidate: Candidate) -> tuple[Any, ...]:
    return tuple(getattr(candidate, name) for name in _NAMES)


_NAMES: Final = tuple(field.name for field in fields(Candidate))
