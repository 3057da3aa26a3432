"""What a search, its end and its way to production mean for the conditions and the phase of a LlamaDeployment.

Each condition answers one question, and is decided by one function below:

- TargetResolved: is everything that the spec names known? (whoever reads it says so; here only that it is)
- BaselineMeasured: was what runs today measured at today's replicas?
- SearchCompleted: is nothing left to measure?
- SLOMet: was what serves production now measured to keep the promise at its replicas? It speaks of measurements, not of
  Prometheus. True for an answer that was rolled out, and for a baseline that keeps the promise by itself. Infeasible is
  False. A better answer that nobody rolled out changes nothing for users: False, while what serves misses the promise.
- Ready: is all done that the spec asks of slotune? Under Recommend the recommendation is all of it.
- Reconciling: does slotune work towards that? Stalled: does it take a change by somebody? Never both; neither while
  a person is asked for an approval, or while everything is suspended.

A search without an answer is Stalled, and production is untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from slotune.api.kubernetes_types import Condition
from slotune.api.v1alpha1.deployment_status import LlamaDeploymentStatus, Phase
from slotune.controller.conditions import Claim
from slotune.controller.reasons import BAD_NEWS, REASONS_OF, ConditionType, Reason
from slotune.controller.rollout_story import WENT_BACK, RolloutNews
from slotune.controller.serving_story import Serving, baseline_measured, failed_start, read_on, slo_met
from slotune.controller.status_answer import belonging, binding_of
from slotune.report.answer import answer_of
from slotune.report.figures import duration, plural, sentence
from slotune.report.redaction import said_in_public
from slotune.search.decision import Decision, DecisionKind
from slotune.search.problem import Problem
from slotune.search.trial import Purpose, TrialResult
from slotune.verdict.verdicts import Outcome

__all__ = [
    "kept_claims",
    "phase_of",
    "refusal_claims",
    "search_claims",
    "without_rollout",
]

T: Final = ConditionType


def without_rollout(problem: Problem, decision: Decision | None, serving: Serving | None) -> RolloutNews:
    """Where nobody plans a rollout: nothing is written, and an answer that serves already counts as rolled out."""
    if decision is None or decision.choice is None:
        words = "There is no answer yet" if decision is None else "There is no answer: production stays as it is"
        return RolloutNews("Settled", Claim.false(T.ROLLED_OUT, Reason.NO_RECOMMENDATION, words), "Pending")
    choice = decision.choice
    if serving == Serving(choice.candidate, choice.replicas):
        claim = Claim.true(T.ROLLED_OUT, Reason.ALREADY_SERVING, "The answer is what serves already")
        return RolloutNews("Settled", claim, "Tuned")
    claim = Claim.false(T.ROLLED_OUT, Reason.RECOMMEND_ONLY, "rollout.mode is Recommend: nothing is written")
    return RolloutNews("Settled", claim, "Recommended")


def search_claims(
    problem: Problem,
    decision: Decision | None,
    results: Sequence[TrialResult],
    *,
    purpose: Purpose | None = None,
    doing: str = "",
    serving: Serving | None = None,
    rollout: RolloutNews | None = None,
    suspended: bool = False,
    why_unknown: str = "",
) -> tuple[Claim, ...]:
    """Every condition but TargetResolved, from a search that runs (``decision`` is None) or has ended.

    Args:
        problem: the search.
        decision: its end.
        results: every trial that ended.
        purpose: of the trial that runs or comes next; None when none does.
        doing: what happens now, in words.
        serving: what serves production now; None: it is not known to this search.
        rollout: where the way to production stands; None: rollout.mode asks for a recommendation only.
        suspended: spec.suspend.
        why_unknown: why it is not known what serves, as a sentence.
    """
    news = rollout or without_rollout(problem, decision, serving)
    claims = (
        baseline_measured(problem, decision, results),
        _search_completed(problem, decision, purpose, doing),
        slo_met(problem, decision, results, serving, why_unknown),
        news.claim,
    )
    answered = decision is not None and decision.choice is not None
    if suspended and not (answered and news.state == "Settled"):
        return (*claims, *_pausing(Reason.SUSPENDED, "spec.suspend is true: nothing is started, production stays"))
    if decision is None:
        return (*claims, *_working(_stage(purpose), doing or "The next trial is chosen"))
    if not answered:
        return (*claims, *_stalled(*_without_answer(problem, decision, results)))
    return (*claims, *_on_the_way(news, answer_of(problem, decision).headline))


def kept_claims(status: LlamaDeploymentStatus, news: RolloutNews | None) -> tuple[tuple[Claim, ...], Phase]:
    """What is said of an answer that stays as it is, and its phase: the search has ended, and nothing is worked on.

    ``news``: of its way to production; None: nothing happens there, and what was said of it stays said.
    """
    completed = status.condition(T.SEARCH_COMPLETED)
    assert completed is not None
    if status.recommendation is None:
        infeasible = completed.reason == Reason.INFEASIBLE
        return _stalled(completed.reason, completed.message), "Infeasible" if infeasible else "Inconclusive"
    if news is None:  # what was said of it stays said; it is not claimed anew
        news = _known_news(status.condition(T.ROLLED_OUT))
        return _on_the_way(news, completed.message), news.phase
    return (news.claim, *_on_the_way(news, completed.message)), news.phase


def _known_news(known: Condition | None) -> RolloutNews:
    if known is None:
        return RolloutNews("Settled", Claim.unknown(T.ROLLED_OUT, Reason.PENDING), "Recommended")
    claim = Claim(T.ROLLED_OUT, known.status, known.reason, known.message)
    if known.status == "True":
        return RolloutNews("Settled", claim, "Tuned")
    if known.reason in {Reason.RECOMMEND_ONLY, Reason.SAVES_TOO_LITTLE, Reason.NO_RECOMMENDATION}:
        return RolloutNews("Settled", claim, "Recommended")
    if known.reason in BAD_NEWS:
        return RolloutNews("Refused", claim, "RolledBack" if known.reason in WENT_BACK else "Failed")
    return RolloutNews(
        "Waiting", claim, "AwaitingApproval" if known.reason == Reason.AWAITING_APPROVAL else "Recommended"
    )


def refusal_claims(reason: Reason, message: str) -> tuple[Claim, ...]:
    """That no search can begin, or go on: the message names the field and the cure. What was known before stays."""
    unresolved = (Claim.false(T.TARGET_RESOLVED, reason, message),) if reason in REASONS_OF[T.TARGET_RESOLVED] else ()
    return (*unresolved, *_stalled(reason, message))


def phase_of(
    decision: Decision | None,
    *,
    purpose: Purpose | None = None,
    rollout: RolloutNews | None = None,
    refused: bool = False,
    suspended: bool = False,
) -> Phase:
    """Where it stands, for people: derived from the facts behind the conditions, and never read back.

    ``refused``: no search could begin. The others are as for :func:`search_claims`.
    """
    if suspended:
        return "Suspended"
    if refused:
        return "Failed"
    if decision is None:
        phases: dict[Purpose | None, Phase] = {
            None: "Pending",
            Purpose.BASELINE: "Baselining",
            Purpose.CONFIRM: "Confirming",
            Purpose.PARTIAL: "Confirming",
            Purpose.FINALIST: "Confirming",
            Purpose.EXPLAIN: "Explaining",
        }
        return phases.get(purpose, "Searching")
    if decision.choice is None:
        return "Infeasible" if decision.kind is DecisionKind.INFEASIBLE else "Inconclusive"
    return "Recommended" if rollout is None else rollout.phase


def _on_the_way(news: RolloutNews, headline: str) -> tuple[Claim, ...]:
    """Ready, Reconciling and Stalled once there is an answer."""
    reason, message = news.claim.reason, news.claim.message
    if news.state == "Working":
        return _working(news.doing or reason, message)
    if news.state == "Refused":
        return _stalled(reason, message)
    if news.state == "Waiting":
        return _pausing(reason, message)
    rolled_out = news.claim.status == "True"
    return (
        Claim.false(T.RECONCILING, reason),
        Claim.false(T.STALLED, reason),
        Claim.true(T.READY, reason if rolled_out else Reason.RECOMMENDED, headline),
    )


def _search_completed(problem: Problem, decision: Decision | None, purpose: Purpose | None, doing: str) -> Claim:
    if decision is None:
        return Claim.false(T.SEARCH_COMPLETED, _stage(purpose), doing or "Trials are under way")
    reason = {
        DecisionKind.FOUND: Reason.FOUND,
        DecisionKind.INFEASIBLE: Reason.INFEASIBLE,
        DecisionKind.BUDGET_EXHAUSTED: Reason.BUDGET_EXHAUSTED,
        DecisionKind.INCONCLUSIVE: Reason.INCONCLUSIVE,
        DecisionKind.INVALID: Reason.MEASUREMENTS_INVALID,
    }[decision.kind]
    spent = f"{plural(decision.trials, 'trial')}, {duration(decision.gpu_seconds)} of GPU time"
    return Claim.true(T.SEARCH_COMPLETED, reason, f"{answer_of(problem, decision).headline} ({spent})")


def _without_answer(problem: Problem, decision: Decision, results: Sequence[TrialResult]) -> tuple[Reason, str]:
    """Why there is no answer, with what it would take."""
    trials = [r for r in belonging(problem, results) if r.trial.purpose.puts_load]
    started = any(result.failure is None for result in trials)
    failed = failed_start(problem, results, problem.baseline)
    if failed is not None and not started:
        why = sentence(said_in_public(failed.verdict.reason))
        return Reason.BASELINE_DOES_NOT_START, (
            f"What runs today did not start in a trial, nor did anything else. {why} Check what a trial's pod lacks "
            "that production's has. Production stays as it is."
        )
    headline = answer_of(problem, decision).headline
    if decision.kind is DecisionKind.INFEASIBLE:
        binding = binding_of(problem, decision, results)
        why = sentence(decision.reason) if binding is None else f"{binding.code}: {sentence(binding.message)}"
        more = read_on(None if binding is None else binding.finding)
        said = (headline, why, more and f"{more}.", "Production stays as it is.")
        return Reason.INFEASIBLE, " ".join(part for part in said if part)
    if decision.kind is DecisionKind.BUDGET_EXHAUSTED:
        minutes = problem.budget.gpu_seconds / 60
        return Reason.BUDGET_EXHAUSTED, (
            f"{headline} Raise search.budget (now {minutes:,.0f} gpuMinutes, {problem.budget.trials:,} trials), or "
            "narrow search.space."
        )
    if decision.kind is DecisionKind.INVALID:
        fault = next((r.verdict for r in reversed(trials) if r.verdict.outcome is Outcome.INVALID), None)
        why = "" if fault is None else f" The last one, {fault.code}: {sentence(said_in_public(fault.reason))}"
        return Reason.MEASUREMENTS_INVALID, f"{headline}{why}"
    return Reason.INCONCLUSIVE, f"{headline} Raise measurement.requestsPerRun or measurement.runs."


def _stage(purpose: Purpose | None) -> Reason:
    return {
        None: Reason.PROGRESSING,
        Purpose.BASELINE: Reason.MEASURING,
        Purpose.CONFIRM: Reason.CONFIRMING,
        Purpose.PARTIAL: Reason.CONFIRMING,
        Purpose.FINALIST: Reason.CONFIRMING,
        Purpose.EXPLAIN: Reason.EXPLAINING,
    }.get(purpose, Reason.SEARCHING)


def _working(reason: str, message: str) -> tuple[Claim, ...]:
    return (
        Claim.true(T.RECONCILING, reason, message),
        Claim.false(T.STALLED, reason),
        Claim.false(T.READY, reason, message),
    )


def _stalled(reason: str, message: str) -> tuple[Claim, ...]:
    return (
        Claim.true(T.STALLED, reason, message),
        Claim.false(T.RECONCILING, reason),
        Claim.false(T.READY, reason, message),
    )


def _pausing(reason: str, message: str) -> tuple[Claim, ...]:
    return (Claim.false(T.RECONCILING, reason), Claim.false(T.STALLED, reason), Claim.false(T.READY, reason, message))
