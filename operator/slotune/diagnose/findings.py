"""What a measurement says about its cause, and which setting to try.

A table of named checks, tried in order; the order is the order of trust. Failures first, then what no setting can
mend, then the queue, the prompt, the batch and the bytes: taking up bytes while requests stand in a queue would treat
the wrong cause. The reasoning is in docs/how-it-measures.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from slotune.diagnose import catalogue, failure_entries, invalid_entries
from slotune.diagnose import trial_checks as checks
from slotune.diagnose import trial_evidence as numbers
from slotune.diagnose.case import Case
from slotune.diagnose.checkup import FAILING
from slotune.diagnose.entry import Entry
from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.diagnose.failed_trials import FAILURES, entry_of
from slotune.diagnose.finding import Confidence, Cost, Finding, Severity
from slotune.diagnose.rules import batch, load, queue
from slotune.diagnose.rules import reuse_causes as reuse
from slotune.diagnose.rules.decode import ABOVE_ROOFLINE
from slotune.llama.model_facts import ModelFacts
from slotune.load.demand import Demand
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult
from slotune.verdict.promise import Promise
from slotune.verdict.verdicts import Outcome

__all__ = [
    "ENTRIES",
    "TABLE",
    "Row",
    "cited",
    "explain_result",
    "findings",
    "first_cause",
    "noticed_findings",
    "said_of",
    "trial_findings",
]

LEAST_STEP_S: Final = 0.002
"""A floor (seconds a token) below this says nothing: launching kernels takes as long as reading a small model."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    entry: Entry
    check: Callable[[Case], str | None]
    """The finding's sentence, or None when the case is another."""
    seen: Callable[[Case], str]
    """The numbers that it rests on."""
    cost: Callable[[Case], Cost] = lambda _: numbers.NOTHING_COUNTED
    confidence: Confidence = Confidence.CERTAIN
    severity: Severity = Severity.WARNING

    def finding(self, case: Case) -> Finding | None:
        """What it says of the case."""
        sentence = self.check(case)
        if sentence is None:
            return None
        evidence = Evidence(Source.TRIAL, self.seen(case)[:LONGEST])
        return Finding(self.entry, sentence, (evidence,), self.severity, self.confidence, self.cost(case))


TABLE: Final[tuple[Row, ...]] = (
    Row(batch.PROMPT_ALONE_TOO_SLOW, checks.prompt_alone_too_slow, numbers.probe_seen, numbers.wait("prefill_s")),
    Row(load.ONE_USER_TOO_SLOW, checks.one_user_too_slow, numbers.probe_seen),
    Row(queue.STATIC_BATCH, checks.static_batch, numbers.parts_seen, numbers.wait("queue_s")),
    Row(
        queue.SLOTS_IDLE_WHILE_QUEUEING,
        checks.slots_idle_while_queueing,
        numbers.parts_seen,
        numbers.wait("queue_s"),
        Confidence.LIKELY,
    ),
    Row(queue.TOO_FEW_SLOTS, checks.too_few_slots, numbers.parts_seen, numbers.wait("queue_s"), Confidence.LIKELY),
    Row(load.SATURATED, checks.saturated, numbers.parts_seen, numbers.wait("queue_s"), Confidence.LIKELY),
    Row(
        reuse.PROMPT_COMPUTED_AGAIN,
        checks.prompt_computed_again,
        numbers.parts_seen,
        numbers.wait("prefill_s", "contention_s"),
    ),
    Row(batch.PREFILL_BOUND, checks.prefill_bound, numbers.parts_seen, numbers.wait("prefill_s")),
    Row(batch.CONTENTION, checks.contention, numbers.parts_seen, numbers.wait("contention_s")),
    Row(queue.SCATTERED_SLOTS, checks.scattered_slots, numbers.speed_seen, numbers.lost_to_others, Confidence.LIKELY),
    Row(load.BYTES_PER_STEP, checks.bytes_per_step, numbers.speed_seen, numbers.lost_to_others, Confidence.LIKELY),
    Row(batch.NEIGHBOURS_STALL, checks.neighbours_stall, numbers.gaps_seen, confidence=Confidence.LIKELY),
    Row(reuse.PROMPT_CACHE_OFF, checks.short_by("PromptCacheOff"), numbers.cache_seen),
    Row(reuse.TEMPLATE_CHANGES_PREFIX, checks.short_by("TemplateChangesPrefix"), numbers.cache_seen),
    Row(reuse.SLOT_SIMILARITY, checks.short_by("SlotSimilarity"), numbers.cache_seen, confidence=Confidence.LIKELY),
    Row(reuse.SLIDING_WINDOW, checks.short_by("SlidingWindow"), numbers.cache_seen, confidence=Confidence.LIKELY),
    Row(reuse.SLOTS_FEWER_THAN_PREFIXES, checks.short_by("SlotsFewerThanPrefixes"), numbers.cache_seen),
    Row(reuse.CACHE_RAM_CHURN, checks.short_by("CacheRAMChurn"), numbers.cache_seen, confidence=Confidence.LIKELY),
    Row(reuse.CACHE_WITHOUT_EFFECT, checks.cache_without_effect, numbers.cache_seen, confidence=Confidence.POSSIBLE),
    Row(reuse.CACHED_TOO_MUCH, checks.cached_too_much, numbers.cache_seen, confidence=Confidence.POSSIBLE),
    Row(reuse.CANARY_UNSTEADY, checks.unsteady, numbers.canaries_seen, severity=Severity.INFO),
    Row(ABOVE_ROOFLINE, checks.above_roofline, numbers.probe_seen, numbers.lost_to_floor, Confidence.POSSIBLE),
)
"""Every check, first cause first. A test locks the order."""

ENTRIES: Final[tuple[Entry, ...]] = (
    *(row.entry for row in TABLE),
    *failure_entries.ENTRIES,
    *(entry for entry in FAILURES.values() if entry not in failure_entries.ENTRIES),
    *invalid_entries.ENTRIES,
    *(entry for entry in invalid_entries.INVALID.values() if entry not in invalid_entries.ENTRIES),
)
"""All that its numbers and its end say of a trial; :mod:`slotune.diagnose.trial_server` finds more by its log."""


def findings(
    result: TrialResult,
    promise: Promise,
    demand: Demand,
    *,
    roofline_step_s: float | None = None,
    model: ModelFacts | None = None,
) -> tuple[Finding, ...]:
    """All that is known of a trial, the first cause first; empty when nothing stands out.

    What was measured under load goes before what was noticed of the server, but for requests that it refused or lost:
    who gets no answer is not served by speed. An entry that both find is told as it was measured.
    """
    if result.failure is not None or result.verdict.outcome is Outcome.INVALID:
        measured: tuple[Finding, ...] = (_not_measured(result),)
        return (*measured, *noticed_findings(result, measured))
    case = Case(result, promise, demand, roofline_step_s, model)
    measured = tuple(found for row in TABLE if (found := row.finding(case)) is not None)
    noticed = noticed_findings(result, measured)
    failing = tuple(one for one in noticed if one.id in FAILING)
    return (*failing, *measured, *(one for one in noticed if one not in failing))


def noticed_findings(result: TrialResult, measured: tuple[Finding, ...] = ()) -> tuple[Finding, ...]:
    """What was noticed of the server and not measured; entries of another version of slotune are left out."""
    told = {one.id for one in measured}
    return tuple(
        Finding(
            catalogue.ENTRIES[one.id],
            one.sentence,
            (Evidence.parse(one.evidence) or Evidence(Source.TRIAL, one.sentence[:LONGEST]),),
            Severity(one.severity),
            Confidence(one.confidence),
        )
        for one in result.noticed
        if one.id in catalogue.ENTRIES and one.id not in told
    )


def trial_findings(problem: Problem, result: TrialResult) -> tuple[Finding, ...]:
    """The same with all that a search knows of the model and the device.

    Of a server whose settings nobody stated (a problem without models) only what stands in the way of the promise is
    said: the rest would accuse settings that nobody saw.
    """
    candidate = result.trial.candidate
    model = problem.models.get(candidate.variant)
    said = findings(result, problem.promise, problem.demand, roofline_step_s=_floor(problem, result), model=model)
    if problem.models or result.failure is not None or result.verdict.outcome is Outcome.INVALID:
        return said
    return tuple(finding for finding in said if finding.binds is not None or finding.id in FAILING)


def explain_result(result: TrialResult, promise: Promise, demand: Demand) -> str:
    """The one line "why" of a table: empty for a Pass, else the first cause, else the verdict's own reason.

    A cause of the catalogue is cited with its identifier: ``queue 2.4 s of 2.8: 8 slots, all busy (SLT050)``.
    """
    if result.verdict.outcome is Outcome.PASS:
        return ""
    cause = first_cause(result, promise, demand)
    return result.verdict.reason if cause is None else cited(cause)


def said_of(result: TrialResult, promise: Promise, demand: Demand) -> list[str]:
    """All that a report says of a trial: why it did not pass, then what was noticed of its server beside."""
    why = explain_result(result, promise, demand)
    told = [cited(one) for one in noticed_findings(result)]
    if told and not why:
        why = result.verdict.reason
    return [why, *(words for words in told if words != why)] if why else []


def first_cause(result: TrialResult, promise: Promise, demand: Demand) -> Finding | None:
    """What stands in the way of the promise, or why there was no measurement; None where nothing of it is known."""
    if result.failure is not None or result.verdict.outcome is Outcome.INVALID:
        return _not_measured(result)
    return next((one for one in findings(result, promise, demand) if one.binds is not None or one.id in FAILING), None)


def cited(finding: Finding) -> str:
    """Its sentence with the identifier under which the catalogue says more."""
    return f"{finding.sentence} ({finding.id})"


def _not_measured(result: TrialResult) -> Finding:
    """Of a server that could not be measured, or of a measurement that was at fault: the verdict says all of it."""
    verdict = result.verdict
    if result.failure is not None:
        entry = entry_of(result.failure, result.failure_knob, verdict.reason)
        if result.failure_knob is not None:
            entry = replace(entry, knobs=(result.failure_knob,))
        severity = Severity.CRITICAL
    else:
        entry = _fault(verdict.code)
        severity = Severity.WARNING
    evidence = Evidence(Source.TRIAL, f"{verdict.outcome.value} ({verdict.code})"[:LONGEST])
    return Finding(entry, verdict.reason, (evidence,), severity)


def _fault(code: str) -> Entry:
    """The entry of a measurement that was at fault. A server that is not as it was asked to be is a failure's."""
    failed = next((entry for one, entry in FAILURES.items() if one.value == code), None)
    return invalid_entries.INVALID.get(code) or failed or replace(invalid_entries.OTHER, code=code)


def _floor(problem: Problem, result: TrialResult) -> float | None:
    """Fewest seconds of a token of one sequence: all weights that it takes are read once."""
    candidate = result.trial.candidate
    hardware, model = problem.hardware.get(candidate.gpu_class), problem.models.get(candidate.variant)
    if hardware is None or model is None or not hardware.is_gpu or not hardware.bandwidth_bytes_per_s:
        return None
    floor = model.active_weights_bytes / hardware.bandwidth_bytes_per_s
    return floor if floor >= LEAST_STEP_S else None
