"""What is known of production: what serves it, and whether that was measured to keep the promise.

A measurement speaks for a candidate at a rate, so it speaks for a number of replicas. Nothing here looks at what
Prometheus saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotune.controller.conditions import Claim
from slotune.controller.reasons import ConditionType, Reason
from slotune.controller.status_answer import belonging, binding_of
from slotune.diagnose.entry import PAGE
from slotune.diagnose.findings import explain_result, first_cause
from slotune.llama.candidate import Candidate
from slotune.report.figures import seconds, sentence, speed, target_percentile
from slotune.report.labels import settings_label
from slotune.report.redaction import said_in_public
from slotune.report.standing import machines, owed_wait, pace_of
from slotune.search.decision import Decision, DecisionKind
from slotune.search.knowledge import Knowledge
from slotune.search.problem import Problem
from slotune.search.standing import Standing
from slotune.search.trial import TrialResult
from slotune.tuning.trial_objects import candidate_hash
from slotune.verdict.verdicts import Outcome

__all__ = ["Serving", "baseline_measured", "failed_start", "keeps_promise", "read_on", "serving_of", "slo_met"]


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves production now."""

    candidate: Candidate
    replicas: int


def serving_of(problem: Problem, decision: Decision | None, applied_hash: str | None, replicas: int) -> Serving | None:
    """What serves, by the hash that slotune rolled out; None for the hash means what ran before.

    None when the hash is of no candidate of this search: what serves was measured for another question, if at all.
    """
    if applied_hash is None:
        return Serving(problem.baseline, replicas)
    chosen = () if decision is None or decision.choice is None else (decision.choice.candidate,)
    known = (*chosen, problem.baseline, *problem.candidates)
    found = next((candidate for candidate in known if candidate_hash(candidate) == applied_hash), None)
    return None if found is None else Serving(found, replicas)


def keeps_promise(problem: Problem, results: Sequence[TrialResult], serving: Serving | None) -> bool | None:
    """Whether what serves was measured to keep the promise at its replicas; None when neither was shown."""
    if serving is None or serving.replicas < 1:
        return None
    return _keeps(_standing(problem, results, serving.candidate), problem.demand.peak_rate / serving.replicas)


def baseline_measured(problem: Problem, decision: Decision | None, results: Sequence[TrialResult]) -> Claim:
    """BaselineMeasured: whether there is a verdict on what runs today, at today's replicas."""
    kind, today = ConditionType.BASELINE_MEASURED, machines(problem.replicas_today, problem.baseline)
    standing = _standing(problem, results, problem.baseline)
    owed = problem.demand.peak_rate / problem.replicas_today
    if (failed := _start_that_failed(standing)) is not None:
        words = f"What runs today did not start in a trial: {said_in_public(failed.verdict.reason)}"
        return Claim.false(kind, Reason.BASELINE_DOES_NOT_START, words)
    if (result := _verdict_at(standing, owed)) is not None:
        return Claim.true(kind, Reason.MEASURED, f"What runs today, {today}, {_verdict_words(problem, result)}")
    if standing.set_aside:
        words = f"Its measurements were at fault: {said_in_public(standing.set_aside[-1].verdict.reason)}"
        return Claim.false(kind, Reason.MEASUREMENT_AT_FAULT, words)
    if decision is None and problem.baseline in problem.candidates:
        return Claim.unknown(kind, Reason.MEASURING, f"What runs today, {today}, is measured first")
    ruled_out = next((p.reason for p in problem.pruned if p.candidate == problem.baseline), "")
    words = ruled_out or "the search ended before it was measured at today's replicas"
    return Claim.false(kind, Reason.NOT_MEASURED, f"What runs today was not measured: {words}")


def slo_met(
    problem: Problem,
    decision: Decision | None,
    results: Sequence[TrialResult],
    serving: Serving | None,
    why_unknown: str = "",
) -> Claim:
    """SLOMet: whether what serves was measured to keep the promise; False where nothing can.

    ``why_unknown``: why ``serving`` is None, as a sentence.
    """
    if decision is not None and decision.kind is DecisionKind.INFEASIBLE:
        binding = binding_of(problem, decision, results)
        words = decision.reason if binding is None else binding.message
        said = (words, read_on(None if binding is None else binding.finding))
        return Claim.false(ConditionType.SLO_MET, Reason.INFEASIBLE, " ".join(sentence(one) for one in said if one))
    if serving is None or serving.replicas < 1:
        unmeasured = why_unknown or "What serves was not measured against this promise"
        words = unmeasured if serving is None else "Nothing serves"
        return Claim.unknown(ConditionType.SLO_MET, Reason.NOT_MEASURED, words)
    return _judged(problem, decision, results, serving)


def read_on(finding: str | None) -> str:
    """``See docs/diagnosis.md#slt050``: where the catalogue says more of what decided; empty where nothing did."""
    return "" if finding is None else f"See {PAGE}#{finding.lower()}"


def failed_start(problem: Problem, results: Sequence[TrialResult], candidate: Candidate) -> TrialResult | None:
    """The trial in which the candidate did not come up; None when it did, or was never tried."""
    return _start_that_failed(_standing(problem, results, candidate))


def _judged(problem: Problem, decision: Decision | None, results: Sequence[TrialResult], serving: Serving) -> Claim:
    kind, label = ConditionType.SLO_MET, settings_label(serving.candidate, problem.baseline)
    what = f"What serves, {machines(serving.replicas, serving.candidate)} with {label}"
    if serving.candidate == problem.baseline:
        what = f"What serves, {machines(serving.replicas, serving.candidate)} as before"
    standing, owed = _standing(problem, results, serving.candidate), problem.demand.peak_rate / serving.replicas
    keeps, seen = _keeps(standing, owed), _verdict_at(standing, owed)
    if keeps:
        return Claim.true(kind, Reason.SERVING_KEEPS_SLO, f"{what}, {_verdict_words(problem, seen)}")
    if keeps is False:
        words, more = f"{what}, {_verdict_words(problem, seen)}", _cause(problem, seen)
        if decision is None or decision.choice is None:
            return Claim.false(kind, Reason.SERVING_MISSES_SLO, _joined(words, more))
        choice = decision.choice
        better = f"{machines(choice.replicas, choice.candidate)} with {_label(problem, choice.candidate)}"
        return Claim.false(
            kind, Reason.NOT_ROLLED_OUT, _joined(words, f"{better} keeps it and does not serve yet", more)
        )
    if (failed := _start_that_failed(standing)) is not None:
        words = f"{what}, did not start in a trial: {said_in_public(failed.verdict.reason)}"
        return Claim.unknown(kind, Reason.BASELINE_DOES_NOT_START, words)
    if seen is not None:
        return Claim.unknown(kind, Reason.INCONCLUSIVE, f"{what}, {_verdict_words(problem, seen)}")
    return Claim.unknown(kind, Reason.NOT_MEASURED, f"{what}, is not measured at these replicas")


def _joined(*parts: str) -> str:
    return ". ".join(part for part in parts if part)


def _cause(problem: Problem, result: TrialResult | None) -> str:
    cause = None if result is None else first_cause(result, problem.promise, problem.demand)
    return read_on(None if cause is None else cause.id)


def _standing(problem: Problem, results: Sequence[TrialResult], candidate: Candidate) -> Standing:
    return Knowledge.from_results(problem, belonging(problem, results)).standing(candidate)


def _keeps(standing: Standing, owed: float) -> bool | None:
    if standing.passes(owed) or standing.is_confirmed(owed):
        return True
    broken = standing.is_failed(owed) or (standing.out is not None and _start_that_failed(standing) is None)
    return False if broken and standing.results else None


def _verdict_at(standing: Standing, owed: float) -> TrialResult | None:
    """The trial that speaks for the rate: its pass, else what refused it, else what put it out at every rate."""
    if standing.is_confirmed(owed):
        return standing.confirmed
    if standing.passes(owed):
        return standing.passed
    if standing.is_refused(owed):
        return standing.refused
    return standing.results[-1] if standing.out is not None and standing.results else None


def _start_that_failed(standing: Standing) -> TrialResult | None:
    if standing.out is None:
        return None
    return next((result for result in reversed(standing.results) if result.failure is not None), None)


def _label(problem: Problem, candidate: Candidate) -> str:
    return "today's settings" if candidate == problem.baseline else settings_label(candidate, problem.baseline)


def _verdict_words(problem: Problem, result: TrialResult | None) -> str:
    """``misses the promise: p95 TTFT 2.8 s, 98 tok/s per user at 1.2 requests/s; queue 2.4 s of 2.8``."""
    if result is None:
        return "was measured"
    verb = {
        Outcome.PASS: "keeps the promise",
        Outcome.FAIL: "misses the promise",
        Outcome.INCONCLUSIVE: "could be shown neither to keep the promise nor to break it",
        Outcome.INVALID: "could not be measured",
    }[result.verdict.outcome]
    numbers = []
    if (late := owed_wait(problem, result)) is not None:
        numbers.append(f"{target_percentile(problem.promise.violation_share)} TTFT {seconds(late)}")
    if (pace := pace_of(result)) is not None:
        numbers.append(f"{speed(pace)} tok/s per user")
    why = said_in_public(explain_result(result, problem.promise, problem.demand))
    seen = f"{', '.join(numbers)} at {result.trial.rate:.3g} requests/s" if numbers else ""
    rest = "; ".join(part for part in (seen, why) if part)
    return f"{verb}: {rest}" if rest else verb
