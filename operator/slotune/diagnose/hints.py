"""Which of equals a search should ask first, from what was found of the trials so far.

An order among equals is all that it is. The search looks at it after cost, known passes and what answers lose
(:func:`slotune.search.options.best_options`), so it rules nothing out, and nothing counts as proved for it.

A trial that missed makes it likely that others miss for the same reason: those that are most like it and move none of
the settings that its findings name. Before them come those that move one, the first named first: more slots where
requests stood in a queue, fewer where they waited in the batch. Those that move it the other way come last. All else
stays as it is, most capacity first. A finding counts where the rate was no faster than what is asked by now. At a
faster one most candidates miss, the best of them among the first.

In one place those come first that held out longest: at the slowest rate at which they missed, or else the one that they
are most like, more requests came before as many broke the promise. A miss is cut short at the violation that decides
it, so the share of violations at its end is near what may be; how soon it came is not. Here faster rates count as well:
what missed there by little is asked first at the next slower one. Why not before the findings: few violations decide a
short trial, and then luck says how soon they come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final, TypeVar

from slotune.diagnose.checkup import FAILING
from slotune.diagnose.entry import Item
from slotune.diagnose.failure_entries import OF_FAILURES
from slotune.diagnose.findings import trial_findings
from slotune.llama.candidate import Candidate
from slotune.llama.failures import FailureClass
from slotune.llama.kv_types import bytes_per_element
from slotune.search.drift import without_drifted
from slotune.search.options import NO_PREFERENCE
from slotune.search.problem import Problem
from slotune.search.standing import same_rate
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
        "ContextTooSmall": frozenset({"parallelSlots", "cacheTypeK", "cacheTypeV"}),
        "KVPoolFull": frozenset({"parallelSlots", "cacheTypeK", "cacheTypeV"}),
        "IdleSlotsSaved": frozenset({"cacheIdleSlots", "cacheRAMMiB"}),
        "HostCacheCopies": frozenset({"cacheRAMMiB"}),
        "LayersOnCPU": frozenset({"variant", "cacheTypeK", "cacheTypeV", "contextSizePerSlot"}),
        "FitSpilled": frozenset({"variant", "cacheTypeK", "cacheTypeV", "contextSizePerSlot"}),
        "OutOfMemoryWeights": frozenset({"variant"}),
        "OutOfMemoryKV": frozenset({"contextSizePerSlot", "parallelSlots", "cacheTypeK", "cacheTypeV"}),
        "OutOfMemoryCompute": frozenset({"uBatchSize"}),
        "OutOfMemoryRuntime": frozenset({"uBatchSize", "contextSizePerSlot"}),
        "OutOfMemoryHost": frozenset(OF_FAILURES[FailureClass.OUT_OF_MEMORY_HOST].knobs) | {"uBatchSize"},
    }
)
"""Settings of a finding that should become less, by its code; others should become more, or merely others."""

_ALIKE: Final = len(_FIELDS)
"""Place of what is likely to miss as another did; places before it are those of settings in the order of findings."""
_WRONG_WAY: Final = _ALIKE + 1
"""Place of what moves away from what was found."""


@dataclass(frozen=True, slots=True)
class _Miss:
    """A trial that did not pass."""

    candidate: Candidate
    ways: Mapping[str, bool]
    """Field that its findings name, the first named first, to whether less of it is asked for."""
    values: tuple[Any, ...]
    """Of the candidate's fields, in their order."""


@dataclass(frozen=True, slots=True)
class _Held:
    """How long a candidate held out at the slowest rate at which it missed."""

    candidate: Candidate
    rate: float
    """Requests/s."""
    requests: float
    """That were judged for each that broke the promise."""
    values: tuple[Any, ...]
    """As of :class:`_Miss`."""


_Tried = TypeVar("_Tried", _Miss, _Held)


def hints(problem: Problem, results: Sequence[TrialResult]) -> Mapping[Candidate, int]:
    """Candidate to its place among equals, the least first; who is not named has 0: nothing speaks for or against it.

    Args:
        problem: the search.
        results: everything that was measured for it, oldest first.
    """
    loads = _loads(problem, results)
    misses, held = _misses(problem, loads), _held(loads)
    if not misses and not held:
        return NO_PREFERENCE
    keys = {one: (_place(problem, one, misses), -_requests_held(one, held)) for one in problem.candidates}
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys.values())))}
    return MappingProxyType({one: ranks[key] for one, key in keys.items() if ranks[key]})


def _loads(problem: Problem, results: Sequence[TrialResult]) -> list[TrialResult]:
    """What was held against the promise at a full load, oldest first."""
    return [
        result
        for result in without_drifted(problem, results)
        if result.trial.purpose.puts_load and result.trial.purpose not in {Purpose.FINALIST, Purpose.PARTIAL}
    ]


def _misses(problem: Problem, loads: Sequence[TrialResult]) -> list[_Miss]:
    """What missed at a rate that is no faster than what is asked by now, the newest first."""
    asked: dict[str, float] = {}
    for result in loads:
        if result.trial.purpose is Purpose.SEARCH:
            kind = result.trial.candidate.gpu_class
            asked[kind] = min(result.trial.rate, asked.get(kind, result.trial.rate))
    found: dict[Candidate, _Miss] = {}
    for result in reversed(loads):
        candidate, rate = result.trial.candidate, result.trial.rate
        now = asked.get(candidate.gpu_class, problem.demand.peak_rate)
        if _missed(result) and candidate not in found and (rate <= now or same_rate(rate, now)):
            found[candidate] = _Miss(candidate, _ways(problem, result), _values(candidate))
        if len(found) == MOST_MISSES:
            break
    return list(found.values())


def _missed(result: TrialResult) -> bool:
    return result.verdict.outcome in {Outcome.FAIL, Outcome.INCONCLUSIVE}


def _held(loads: Sequence[TrialResult]) -> Mapping[Candidate, _Held]:
    """Of each candidate that missed under load, those that did so last first."""
    found: dict[Candidate, _Held] = {}
    for result in reversed(loads):
        candidate, rate, verdict = result.trial.candidate, result.trial.rate, result.verdict
        if not _missed(result) or result.failure is not None or not verdict.violations:
            continue
        if candidate not in found or rate < found[candidate].rate:
            found[candidate] = _Held(candidate, rate, verdict.requests / verdict.violations, _values(candidate))
    return found


def _requests_held(candidate: Candidate, held: Mapping[Candidate, _Held]) -> float:
    """Its own; of one that was never asked those of the one that it is most like, of several the newest."""
    if candidate in held:
        return held[candidate].requests
    like = _most_like(candidate, tuple(held.values())[:MOST_MISSES])
    return math.inf if like is None else like.requests


def _ways(problem: Problem, result: TrialResult) -> Mapping[str, bool]:
    """Of causes, of requests that were refused, and of prompts that are read again: that is work, whatever the wait is
    made of. The first to name a setting says which way."""
    ways: dict[str, bool] = {}
    for found in trial_findings(problem, result):
        tells = found.binds is not None or found.entry.item is Item.REUSE or found.id in FAILING
        if not tells and result.failure is None:
            continue
        for knob in _of_host(result) if result.failure is FailureClass.OUT_OF_MEMORY_HOST else found.knobs:
            if knob in _FIELDS:
                ways.setdefault(_FIELDS[knob], knob in _LESS.get(found.code, ()))
    return ways


def _of_host(result: TrialResult) -> tuple[str, ...]:
    """Settings that fill host memory. The prompt cache is none of them before the first prompt, or where it is off."""
    knobs = OF_FAILURES[FailureClass.OUT_OF_MEMORY_HOST].knobs
    is_kept = result.trial.candidate.cache_ram_mib != 0 and not result.never_ran
    return knobs if is_kept else tuple(knob for knob in knobs if knob != "cacheRAMMiB")


def _place(problem: Problem, candidate: Candidate, misses: Sequence[_Miss]) -> int:
    """Held against the miss that it is most like; of several the newest."""
    like = _most_like(candidate, misses)
    if like is None or not like.ways:
        return 0
    for place, (field, less) in enumerate(like.ways.items()):
        if getattr(like.candidate, field) != getattr(candidate, field):
            before, after = _size(problem, like.candidate, field), _size(problem, candidate, field)
            right = before is None or after is None or (after < before) == less
            return place if right else _WRONG_WAY
    return _ALIKE


def _most_like(candidate: Candidate, tried: Sequence[_Tried]) -> _Tried | None:
    """The first of those that differ from it in the fewest settings; None where none is to be compared with it."""
    values = _values(candidate)
    others = [one for one in tried if one.candidate != candidate and _are_comparable(one.candidate, candidate)]
    return min(others, key=lambda one: sum(a != b for a, b in zip(values, one.values, strict=True)), default=None)


def _are_comparable(tried: Candidate, candidate: Candidate) -> bool:
    """Whether an order between such two can matter: what is cheaper or less lossy is asked first in any case."""
    return (tried.variant, tried.gpu_class, tried.cache_type_k, tried.cache_type_v) == (
        candidate.variant,
        candidate.gpu_class,
        candidate.cache_type_k,
        candidate.cache_type_v,
    )


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
