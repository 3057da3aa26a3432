"""A replayed search in words and as data: what is answered now, what was answered then, what the difference costs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from rich.text import Text

from slotune.llama.candidate import Candidate
from slotune.report.columns import labelled
from slotune.report.figures import money, plural, rate, significant
from slotune.report.labels import candidate_label
from slotune.report.standing import currency_of, machines
from slotune.search.problem import Problem
from slotune.search.replay import Comparison, RecordedAnswer, RecordedSearch, Replay
from slotune.search.trial import Trial

__all__ = ["REPLAY_SCHEMA", "replay_document", "replay_text"]

REPLAY_SCHEMA = "slotune.dev/replay/v1"
MOST_NAMED = 5
"""Questions without an answer that are named one by one."""

_ENDS = {
    Comparison.SAME: "the recorded answer",
    Comparison.EQUAL: "another answer, and nothing that was recorded is cheaper",
    Comparison.DEARER: "loses money: something that was recorded keeps the promise for less",
    Comparison.BREAKS_PROMISE: (
        "breaks the promise: what was asked does not show that the answer keeps it, or something recorded denies it"
    ),
    Comparison.UNRECORDED: "cannot be told: questions on the way to the answer were never measured",
}


def replay_text(recorded: RecordedSearch, replayed: Replay, *, width: int) -> Text:
    """The comparison, one fact a line."""
    problem, then, best = recorded.problem, recorded.answer, replayed.cheapest
    lines = [
        ("replay", f"{problem.name}: {plural(len(recorded.results), 'trial')} recorded"),
        ("answer now", _end(problem, RecordedAnswer.from_decision(replayed.decision))),
        ("answer then", _end(problem, then)),
        (
            "cheapest recorded",
            "nothing keeps the promise"
            if best is None
            else _answer(problem, best.candidate, best.replicas, best.monthly_cost),
        ),
        ("regret", _regret(problem, replayed)),
        ("trials", f"{len(replayed.results)} now, {then.trials} then{_implied(replayed)}"),
        ("GPU-minutes", f"{significant(replayed.gpu_seconds / 60)} now, {significant(then.gpu_seconds / 60)} then"),
    ]
    if replayed.unrecorded:
        lines.append(("not recorded", _unrecorded(problem, replayed.unrecorded)))
    lines.append(("so", _ENDS[replayed.comparison]))
    text = Text()
    for number, (label, words) in enumerate(lines):
        text.append("\n" if number else "")
        text.append_text(labelled(label, [words], width=width, label_width=19))
    return text


def replay_document(recorded: RecordedSearch, replayed: Replay) -> dict[str, Any]:
    """The same for machines. Money is a string, seconds and counts are numbers, every key is always there."""
    problem, best, now = recorded.problem, replayed.cheapest, RecordedAnswer.from_decision(replayed.decision)
    return {
        "schema": REPLAY_SCHEMA,
        "name": problem.name,
        "comparison": replayed.comparison.value,
        "regret": _text(replayed.regret),
        "now": _plain(problem, replace(now, trials=len(replayed.results), gpu_seconds=replayed.gpu_seconds)),
        "then": _plain(problem, recorded.answer),
        "implied": replayed.implied,
        "cheapest_recorded": None
        if best is None
        else {
            "candidate": _label(problem, best.candidate),
            "replicas": best.replicas,
            "monthly_cost": _text(best.monthly_cost),
        },
        "recorded_trials": len(recorded.results),
        "unrecorded": [
            {
                "candidate": _label(problem, trial.candidate),
                "rate": trial.rate,
                "purpose": trial.purpose.value,
                "seed_block": trial.seed_block,
                "confidence": trial.confidence,
            }
            for trial in replayed.unrecorded
        ],
    }


def _end(problem: Problem, answer: RecordedAnswer) -> str:
    return f"{answer.kind}: {_answer(problem, answer.candidate, answer.replicas, answer.monthly_cost)}"


def _plain(problem: Problem, answer: RecordedAnswer) -> dict[str, Any]:
    return {
        "kind": answer.kind,
        "candidate": _label(problem, answer.candidate),
        "replicas": answer.replicas,
        "monthly_cost": _text(answer.monthly_cost),
        "trials": answer.trials,
        "gpu_seconds": round(answer.gpu_seconds, 3),
    }


def _answer(problem: Problem, candidate: Candidate | None, replicas: int | None, cost: Decimal | None) -> str:
    if candidate is None:
        return "no answer"
    label = candidate_label(candidate, problem.baseline)
    return f"{machines(replicas, candidate)}, {label}, {money(cost, currency_of(problem, candidate))} a month"


def _regret(problem: Problem, replayed: Replay) -> str:
    if replayed.comparison is Comparison.BREAKS_PROMISE:
        return "not to be told: an answer that breaks the promise is none"
    if replayed.regret is None:
        return "no answer, though something that was recorded keeps the promise"
    currency = currency_of(problem, problem.baseline if replayed.cheapest is None else replayed.cheapest.candidate)
    return f"{money(replayed.regret, currency)} a month"


def _implied(replayed: Replay) -> str:
    if not replayed.implied:
        return ""
    return f"; {replayed.implied} of them answered by trials at other rates, whose time is an upper bound"


def _unrecorded(problem: Problem, trials: tuple[Trial, ...]) -> str:
    named = [
        f"{candidate_label(trial.candidate, problem.baseline)} at {rate(trial.rate)} ({trial.purpose.value})"
        for trial in trials[:MOST_NAMED]
    ]
    more = f"; and {len(trials) - MOST_NAMED} more" if len(trials) > MOST_NAMED else ""
    return f"{plural(len(trials), 'question')}, taken as unmeasurable: {'; '.join(named)}{more}"


def _label(problem: Problem, candidate: Candidate | None) -> str | None:
    return None if candidate is None else candidate_label(candidate, problem.baseline)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
