"""The answer in one sentence, then the three figures that a manager asks for: cost, wait and speed, before and after.

The words are made here once; the terminal and the HTML report only place them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from slotune.report.figures import MISSING, money, rate, seconds, sentence, significant, speed, target_percentile
from slotune.report.labels import settings_label
from slotune.report.standing import Today, currency_of, machines, owed_wait, pace_of, today_of
from slotune.search.decision import Choice, Decision, DecisionKind
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult

__all__ = ["Answer", "Figure", "answer_of", "owed_sentence", "owed_short"]

MONTHS = 12


@dataclass(frozen=True, slots=True)
class Figure:
    """One number before and after; a dash stands for what was not measured."""

    name: str
    before: str
    after: str
    owed: str = ""
    """The target in words, empty where nothing is owed."""
    before_misses: bool = False
    after_misses: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The first thing to read."""

    headline: str
    lead: str
    figures: tuple[Figure, ...]
    after_name: str
    """What the second number of each figure belongs to: ``after``, ``nearest``, or empty when there is none."""


def answer_of(problem: Problem, decision: Decision) -> Answer:
    """The answer to ``problem`` in plain words, whatever the kind of decision."""
    today = today_of(problem, decision)
    after = decision.choice.result if decision.choice else decision.nearest
    if decision.choice is None and after is not None and today.result is not None and after.trial == today.result.trial:
        after = None  # what runs today came nearest: there is no second number
    return Answer(
        headline=_headline(problem, decision, today),
        lead=_lead(problem, decision, today),
        figures=_figures(problem, decision, today, after),
        after_name="after" if decision.choice else "nearest" if after else "",
    )


def owed_sentence(problem: Problem) -> str:
    """What is owed, for a person who has never heard of percentiles."""
    promise, peak = problem.promise, rate(problem.demand.peak_rate)
    share = significant((1 - promise.violation_share) * 100, 4)
    pace = promise.tokens_per_second_per_user
    then = f" and then write at least {speed(pace)} tokens/s" if pace is not None else ""
    return f"At a peak of {peak}, {share} of 100 requests start to answer within {seconds(promise.ttft_s)}{then}."


def owed_short(problem: Problem) -> str:
    """``p95 TTFT ≤ 1 s and ≥ 30 tok/s per user at 6/s``."""
    promise = problem.promise
    pace = promise.tokens_per_second_per_user
    owed = f"{target_percentile(promise.violation_share)} TTFT ≤ {seconds(promise.ttft_s)}"
    if pace is not None:
        owed += f" and ≥ {speed(pace)} tok/s per user"
    return f"{owed} at {rate(problem.demand.peak_rate)}"


def _headline(problem: Problem, decision: Decision, today: Today) -> str:
    if decision.choice is not None:
        return _found(problem, decision.choice, today, best_so_far=decision.kind is DecisionKind.BUDGET_EXHAUSTED)
    return {
        DecisionKind.INFEASIBLE: "No configuration on this hardware can keep the promise.",
        DecisionKind.BUDGET_EXHAUSTED: "The budget ended before any configuration was shown to keep the promise.",
        DecisionKind.INCONCLUSIVE: "The measurements show neither that the promise is kept nor that it is broken.",
        DecisionKind.INVALID: "The measurements were at fault, so nothing was decided.",
        DecisionKind.FOUND: "A configuration was found.",
    }[decision.kind]


def _found(problem: Problem, choice: Choice, today: Today, *, best_so_far: bool) -> str:
    currency = currency_of(problem, choice.candidate)
    cost, before = money(choice.monthly_cost, currency), money(today.cost, currency_of(problem, today.candidate))
    comparable = today.cost is not None and currency == currency_of(problem, today.candidate)
    unchanged = choice.candidate == today.candidate
    sofar = "So far: " if best_so_far else ""
    if not comparable or today.cost is None:
        sentence = f"the promise can be kept for {cost} a month"
    elif unchanged and choice.replicas == today.replicas:
        sentence = f"what runs today keeps the promise, and nothing cheaper does: {cost} a month"
        if best_so_far:
            sentence = f"what runs today keeps the promise for {cost} a month"
    elif choice.monthly_cost < today.cost:
        sentence = {
            True: f"the promise kept for {before} a month today can be kept for {cost}",
            False: f"the promise can be kept for {cost} a month; today’s {before} misses it",
            None: f"the promise can be kept for {cost} a month instead of {before}",
        }[today.keeps]
    elif choice.monthly_cost > today.cost:
        missed = ", which misses it" if today.keeps is False else ""
        more = money(choice.monthly_cost - today.cost, currency)
        sentence = f"keeping the promise costs {cost} a month, {more} more than today{missed}"
    else:
        missed = "; today the same money misses it" if today.keeps is False else ", as much as today"
        sentence = f"the promise can be kept for {cost} a month{missed}"
    return sofar + sentence + "." if sofar else sentence[0].upper() + sentence[1:] + "."


def _lead(problem: Problem, decision: Decision, today: Today) -> str:
    choice = decision.choice
    if choice is None:
        return " ".join(sentence(text) for text in (decision.binding_reason, decision.reason) if text)
    was = machines(today.replicas, today.candidate)
    now = machines(choice.replicas, choice.candidate)
    label = settings_label(choice.candidate, problem.baseline)
    if choice.candidate.changed_from(problem.baseline) in {(), ("gpu_class",)}:
        label = "the settings of today"
    lead = f"{now} with {label}" + (f", instead of {was}." if now != was else ", on the machines of today.")
    currency = currency_of(problem, choice.candidate)
    if today.cost is not None and currency == currency_of(problem, today.candidate):
        saved = today.cost - choice.monthly_cost
        if saved > 0:
            lead += f" That saves {money(saved, currency)} a month, {money(saved * MONTHS, currency)} a year."
    return lead


def _figures(problem: Problem, decision: Decision, today: Today, after: TrialResult | None) -> tuple[Figure, ...]:
    promise, choice, before = problem.promise, decision.choice, today.result
    cost_after = money(choice.monthly_cost, currency_of(problem, choice.candidate)) if choice else MISSING
    figures = [
        Figure(
            "Cost a month",
            money(today.cost, currency_of(problem, today.candidate)),
            cost_after,
            f"{machines(today.replicas, today.candidate)} today",
        ),
        Figure(
            f"First token, {target_percentile(promise.violation_share)}",
            seconds(owed_wait(problem, before)),
            seconds(owed_wait(problem, after)),
            f"owed: at most {seconds(promise.ttft_s)}",
            before_misses=_above(owed_wait(problem, before), promise.ttft_s),
            after_misses=_above(owed_wait(problem, after), promise.ttft_s),
        ),
    ]
    pace = promise.tokens_per_second_per_user
    judged = math.isclose(promise.violation_share, 0.05)  # another share owes another percentile than p5
    if pace is not None or pace_of(after) is not None:
        figures.append(
            Figure(
                "Tokens/s per user, p5",
                speed(pace_of(before)),
                speed(pace_of(after)),
                f"owed: at least {speed(pace)}" if pace is not None else "no speed is owed",
                before_misses=judged and _above(pace, pace_of(before)),
                after_misses=judged and _above(pace, pace_of(after)),
            )
        )
    if choice is not None and choice.cost_per_million_output_tokens is not None:
        currency = currency_of(problem, choice.candidate)
        before_cost = decision.today.cost_per_million_output_tokens if decision.today else None
        figures.append(
            Figure(
                "Per million tokens out",
                money(before_cost, currency_of(problem, today.candidate)),
                money(choice.cost_per_million_output_tokens, currency),
                f"at the peak of {rate(problem.demand.peak_rate)}",
            )
        )
    return tuple(figures)


def _above(value: float | None, limit: float | None) -> bool:
    return value is not None and limit is not None and value > limit
