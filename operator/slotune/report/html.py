"""The report as one HTML file that needs nothing else: no script, no font, no picture, no address.

It is read from the top by a person with little time: the answer, what it costs, the flags; then
what each change bought and why the rest is not the answer; how it was measured comes last. All
words come from the other modules of this package and are escaped here, by the template engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from slotune.report import svg
from slotune.report.answer import answer_of, owed_sentence
from slotune.report.answers import NOT_A_RANKING, answers_note, answers_rows, asked_of_answers
from slotune.report.bought import BoughtStep, StepState, bought_steps, saved_phrase, state_phrase
from slotune.report.charts import (
    Distribution,
    Scale,
    cost_bar,
    has_parts,
    latency_curves,
    longest_wait,
    scale_for,
    wait_axis,
    wait_bar,
)
from slotune.report.command import command_text
from slotune.report.figures import MISSING, money, percent, plural, seconds, sentence, target_percentile
from slotune.report.labels import candidate_label, settings
from slotune.report.ladder import Rung, gap_sentence, ladder_of
from slotune.report.measured import headroom_sentence, how_measured, lowered_settings, warnings_of
from slotune.report.reasons import reason_groups
from slotune.report.redaction import REDACTED
from slotune.report.standing import currency_of, machines, measured, owed_wait, today_of
from slotune.report.trials import Findings, TrialRow, trial_row
from slotune.search.decision import Decision
from slotune.search.problem import Problem
from slotune.search.trial import Trial, TrialResult

__all__ = ["render_html"]

COMMAND_WIDTH = 88
_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|min|h|%|×|[KMGT]iB)\b|[%×])|(?<=×) ")
MOST_WAITS = 12
"""Trials whose waits are drawn at once; the others are one click away."""


def render_html(
    problem: Problem,
    decision: Decision,
    results: Sequence[TrialResult],
    *,
    findings: Findings,
    generated_at: str,
    version: str,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """The whole file as text.

    ``findings`` holds the diagnosis' sentences by trial key, ``flags`` the winner's arguments without
    the program, ``generated_at`` the time in words, ``environment`` facts that only the caller knows
    (term to sentence, e.g. ``Engine``), which replace those that the results tell.
    """
    rows = [trial_row(problem, result, number, findings) for number, result in enumerate(results, 1)]
    by_trial = dict(zip((r.trial for r in results), rows, strict=True))
    today = today_of(problem, decision)
    command = command_text(flags, width=COMMAND_WIDTH) if flags and decision.choice else ""
    after = decision.choice.result if decision.choice else decision.nearest
    after_label = candidate_label(after.trial.candidate, problem.baseline) if after else ""
    today_row = by_trial.get(today.result.trial) if today.result else None
    context: dict[str, object] = {
        "name": problem.name,
        "version": version,
        "generated_at": generated_at,
        "css": Markup(_stylesheet()),  # noqa: S704 - our own file, not a user's words
        "missing": MISSING,
        "answer": answer_of(problem, decision),
        "after_words": after_label if decision.choice else f"the nearest that was measured ({after_label})",
        "owed": f"Owed to users: {_lower_first(owed_sentence(problem))}",
        "lowered": lowered_settings(problem.measurement),
        "percentile": target_percentile(problem.promise.violation_share),
        "command": command,
        "redacted": REDACTED in command,
        "today_findings": [sentence(words) for words in findings.get(today_row.key, ())] if today_row else [],
        "steps": _steps(problem, decision),
        **_waits(problem, decision, results, by_trial),
        **_curves(problem, decision),
        "rungs": _rungs(problem, decision, results),
        "gap": gap_sentence(problem, decision),
        "proved": tuple(sentence(words) for words in (*decision.proved, headroom_sentence(decision)) if words),
        "not_proved": tuple(sentence(words) for words in decision.not_proved),
        "proof_note": _proof_note(problem, decision),
        "pairs": answers_rows(decision),
        "pairs_asked": asked_of_answers(problem),
        "pairs_note": answers_note(decision),
        "not_a_ranking": NOT_A_RANKING,
        "groups": reason_groups(problem, decision),
        "groups_note": _groups_note(problem, decision),
        "warnings": warnings_of(results),
        "facts": how_measured(problem, decision, results, environment or {}),
        "trials": rows,
        "winner_settings": _winner_settings(problem, decision),
        "effective": decision.choice.result.effective if decision.choice else (),
    }
    return _environment().get_template("report.html.j2").render(context)


@dataclass(frozen=True, slots=True)
class _StepView:
    title: str
    changes: str
    cost: str
    bar: Markup
    why: str
    bought: str
    state: str


@dataclass(frozen=True, slots=True)
class _WaitView:
    label: str
    load: str
    outcome: str
    kind: str
    purpose: str
    sentences: tuple[str, ...]
    bar: Markup
    wait: str


@dataclass(frozen=True, slots=True)
class _RungView:
    cost: str
    machines: str
    bar: Markup
    tags: tuple[Mapping[str, str], ...]
    story: str


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("slotune.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["unbroken"] = _unbroken
    return environment


def _unbroken(words: str) -> str:
    """Keeps a number and its unit on one line."""
    return _UNIT.sub("\N{NO-BREAK SPACE}", words)


@cache
def _stylesheet() -> str:
    return (resources.files("slotune.report") / "templates" / "report.css").read_text(encoding="utf-8")


def _steps(problem: Problem, decision: Decision) -> tuple[_StepView, ...]:
    steps = bought_steps(problem, decision)
    most = max((float(step.cost) for step in steps if step.cost is not None), default=0.0)
    return tuple(_step_view(problem, step, most, index) for index, step in enumerate(steps))


def _step_view(problem: Problem, step: BoughtStep, most: float, index: int) -> _StepView:
    cost = money(step.cost, currency_of(problem, step.candidate))
    on = machines(step.replicas, step.candidate) if step.replicas is not None else ""
    wait = owed_wait(problem, step.result)
    percentile = target_percentile(problem.promise.violation_share)
    note = "" if step.note == "not measured" else step.note  # the state says it already
    facts = [on, f"{percentile} {seconds(wait)}" if wait is not None else "", step.meaning, note]
    bar = Markup("")
    if step.cost is not None:
        title = f"{step.title}: {on}, {cost} a month, {state_phrase(step)}"
        share = float(step.cost) / most if most > 0 else 0.0
        bar = cost_bar(title, share, step.replicas, step.state, f"s{index}")
    return _StepView(
        title=step.title,
        changes=", ".join(step.changes),
        cost=cost,
        bar=bar,
        why=" · ".join(fact.rstrip(".") for fact in facts if fact),
        bought=saved_phrase(problem, step) or state_phrase(step),
        state=step.state,
    )


def _waits(
    problem: Problem, decision: Decision, results: Sequence[TrialResult], rows: Mapping[Trial, TrialRow]
) -> dict[str, object]:
    target = problem.promise.ttft_s
    drawn = [r for r in measured(results) if has_parts(r) or owed_wait(problem, r) is not None]
    if not drawn:
        return {"waits": (), "more_waits": (), "owed_at": "", "slowest_drawn": False, "axis": Markup("")}
    scale = scale_for([max(owed_wait(problem, r) or 0.0, longest_wait(r)) for r in drawn], target)
    told = {step.result.trial for step in decision.steps if step.result is not None}
    told |= {end.trial for end in (today_of(problem, decision).result, decision.nearest) if end is not None}
    if decision.choice is not None:
        told.add(decision.choice.result.trial)
    ranked = sorted(range(len(drawn)), key=lambda i: (drawn[i].trial not in told, i))
    first = set(ranked[:MOST_WAITS])
    views = [_wait_view(problem, r, rows[r.trial], scale) for r in drawn]
    return {
        "waits": tuple(view for i, view in enumerate(views) if i in first),
        "more_waits": tuple(view for i, view in enumerate(views) if i not in first),
        "slowest_drawn": any(r.slowest is not None for r in drawn),
        "owed_at": svg.across(scale.at(target)),
        "axis": wait_axis(scale, target, target_percentile(problem.promise.violation_share)),
    }


def _wait_view(problem: Problem, result: TrialResult, row: TrialRow, scale: Scale) -> _WaitView:
    wait, promise = owed_wait(problem, result), problem.promise
    percentile = target_percentile(promise.violation_share)
    return _WaitView(
        label=row.label,
        load=row.load,
        outcome=row.outcome,
        kind=row.kind,
        purpose=row.purpose,
        sentences=row.sentences,
        bar=wait_bar(row.label, result, (percentile, wait), promise.ttft_s, scale),
        wait=seconds(wait),
    )


def _curves(problem: Problem, decision: Decision) -> dict[str, object]:
    today, after = today_of(problem, decision).result, decision.choice.result if decision.choice else decision.nearest
    promise = problem.promise
    share = 1 - promise.violation_share
    curves = []
    if today is not None:
        curves.append(Distribution("today", "before", today.latencies.ttft_quantiles_s))
    if after is not None and (today is None or after.trial != today.trial):
        name = "the winner" if decision.choice else "the nearest"
        curves.append(Distribution(name, "after", after.latencies.ttft_quantiles_s))
    drawn = [c for c in curves if c.drawable]
    picture = latency_curves(drawn, promise.ttft_s, share)
    key = [
        {
            "kind": c.kind,
            "words": f"{c.name}: half within {seconds(c.at(0.5))}, {percent(share)} within {seconds(c.at(share))}",
        }
        for c in drawn
    ]
    return {
        "curves": picture.svg if picture else "",
        "curves_logarithmic": bool(picture and picture.logarithmic),
        "curve_key": key,
    }


def _rungs(problem: Problem, decision: Decision, results: Sequence[TrialResult]) -> tuple[_RungView, ...]:
    rungs = ladder_of(problem, decision, results)
    most = max((float(rung.cost) for rung in rungs), default=0.0)
    return tuple(_rung_view(rung, most, index) for index, rung in enumerate(rungs))


def _rung_view(rung: Rung, most: float, index: int) -> _RungView:
    cost = money(rung.cost, rung.currency)
    tags = []
    if rung.winner:
        tags.append({"kind": "kept", "words": "Winner"})
    if rung.today:
        tags.append({"kind": "", "words": "Today"})
    kind = "plain" if rung.state is StepState.KEPT and not rung.winner else rung.state.value
    title = f"{cost} a month, {rung.machines}: {rung.story}"
    share = float(rung.cost) / most if most > 0 else 0.0
    bar = cost_bar(title, share, rung.blocks, kind, f"r{index}", height=18)
    return _RungView(cost, rung.machines, bar, tuple(tags), rung.story)


def _proof_note(problem: Problem, decision: Decision) -> str:
    confidence = decision.confidence if decision.confidence is not None else problem.measurement.confidence
    return f"Measured in {plural(decision.trials, 'trial')}, each verdict at {percent(confidence)} confidence."


def _groups_note(problem: Problem, decision: Decision) -> str:
    note = f"{plural(decision.considered or len(problem.candidates), 'candidate')} in all; each has one reason."
    if decision.choice is not None:
        note += f" The winner: {candidate_label(decision.choice.candidate, problem.baseline)}."
    return note


def _winner_settings(problem: Problem, decision: Decision) -> tuple[Mapping[str, str], ...]:
    if decision.choice is None:
        return ()
    before, after = settings(problem.baseline), settings(decision.choice.candidate)
    return tuple(
        {"name": name, "before": old, "after": new} for (name, old), (_, new) in zip(before, after, strict=True)
    )


def _lower_first(words: str) -> str:
    return words[:1].lower() + words[1:]
