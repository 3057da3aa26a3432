"""What the terminal says: the header, trials as they end, and the ending story. Functions from facts to ``rich`` texts.

Every text is wrapped to the width that is passed in, so that it reads the same on a terminal, in
a CI log at 80 columns and in a test; whoever prints it decides about colour.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise

from rich.console import Console
from rich.text import Text

from slotune.load.summary import Attribution
from slotune.report.answer import answer_of, owed_short
from slotune.report.answers import answers_lines, winners_answers
from slotune.report.bought import StepState, bought_steps, saved_phrase, state_phrase
from slotune.report.cache import cache_lines
from slotune.report.columns import Column, Columns, labelled, printable
from slotune.report.command import command_text
from slotune.report.figures import (
    MISSING,
    duration,
    money,
    percent,
    plural,
    price,
    seconds,
    sentence,
    significant,
    speed,
    target_percentile,
)
from slotune.report.labels import candidate_label
from slotune.report.ladder import gap_sentence
from slotune.report.measured import headroom_sentence, lowered_in_short
from slotune.report.standing import currency_of, machines, owed_wait, pace_of, today_of
from slotune.report.trials import Findings, trial_row
from slotune.search.decision import Decision
from slotune.search.problem import Problem
from slotune.search.trial import TrialResult

__all__ = ["bench_text", "ending_text", "header_text", "plain", "trial_header", "trial_line"]

STYLES = {"kept": "green", "missed": "red", "unknown": "yellow", "": "dim"}
NAME_WIDTH = 15


def header_text(problem: Problem, *, width: int) -> Text:
    """``support-chat   8B · BF16, Q8_0 · l4 at $0.80/h · owed: p95 TTFT ≤ 1 s …``."""
    tried = (problem.baseline, *problem.candidates, *(p.candidate for p in problem.pruned))
    variants = dict.fromkeys(c.variant for c in tried)
    classes = dict.fromkeys(c.gpu_class for c in tried)
    prices = [
        f"{name} at {price(hardware.price_per_hour, hardware.currency)}/h"
        for name, hardware in problem.hardware.items()
        if name in classes
    ]
    parts = [_parameters(problem), ", ".join(variants), ", ".join(prices), f"owed: {owed_short(problem)}"]
    label = printable(problem.name)
    label_width = max(NAME_WIDTH, min(len(label) + 2, width // 3))
    return labelled(label[: label_width - 2], [" · ".join(p for p in parts if p)], width=width, label_width=label_width)


def trial_header(problem: Problem, *, width: int) -> Text:
    """Titles of the columns that :func:`trial_line` fills."""
    return _trial_columns(problem, width).header()


def trial_line(problem: Problem, result: TrialResult, number: int, *, findings: Findings, width: int) -> Text:
    """One finished trial; below about 110 columns its reason stands on a line of its own."""
    row = trial_row(problem, result, number, findings)
    label = f"{row.label} ({row.purpose})" if row.purpose else row.label
    cells = (str(number), label, row.load, row.outcome, row.wait, row.tokens)
    why = " ".join(row.sentences)
    return _trial_columns(problem, width).row(cells, why, styles=["dim", "", "", STYLES[row.kind], "", "", "dim"])


def ending_text(
    problem: Problem,
    decision: Decision,
    *,
    flags: Sequence[str],
    findings: Findings,
    width: int,
    out: str | None = None,
) -> Text:
    """The whole story: today, what each change bought, the answer with its flags, how sure, what was spent, what next.

    ``out`` is the folder that holds the report and the saved data; None says nothing about it.
    """
    answer = answer_of(problem, decision)
    style = "bold green" if decision.choice else "bold yellow"
    blocks = [Text("\n").join(Text(part, style) for part in _folded(answer.headline, width))]
    blocks.append(labelled("Today", _today_lines(problem, decision, findings), width=width))
    if rows := _step_lines(problem, decision):
        blocks.append(labelled("What each change bought", rows, width=width))
    if decision.choice is not None:
        blocks.append(labelled("Cheapest that keeps it", _choice_lines(problem, decision), width=width))
        if flags:
            blocks.append(Text(command_text(flags, width=width), "cyan"))
    else:
        blocks.append(labelled("Why", _why_lines(problem, decision), width=width))
    if decision.choice is not None and (lines := cache_lines(problem, decision.choice.result)):
        blocks.append(labelled("Prompt cache", lines, width=width))
    if lines := answers_lines(problem, decision):
        blocks.append(labelled("Answers", lines, width=width))
    blocks.append(labelled("How sure", _sure_lines(problem, decision), width=width))
    spent = f"{duration(decision.gpu_seconds)} of GPU time in {plural(decision.trials, 'trial')}"
    blocks.append(labelled("Spent", [spent], width=width))
    if out is not None:
        following = [f"open {out}/report.html"]
        if decision.choice is not None:
            following.append(f"slotune export {out} --format kustomize")
        blocks.append(labelled("Next", following, width=width))
    return Text("\n").join(blocks)


def bench_text(problem: Problem, result: TrialResult, *, findings: Findings, width: int) -> Text:
    """One verdict on one server: outcome first, then the numbers, then where the wait went."""
    verdict, row = result.verdict, trial_row(problem, result, 1, findings)
    head = Text(f"{verdict.outcome.value:<25}", f"bold {STYLES[row.kind]}")
    reason = labelled("", [sentence(verdict.reason)], width=width)
    head.append_text(Text(reason.plain[25:]))
    numbers = _numbers(problem, result)
    blocks = [head, labelled("Owed", [owed_short(problem)], width=width)]
    blocks.append(labelled("Measured", [numbers] if numbers else ["nothing was answered"], width=width))
    blocks.append(labelled("Requests", [_requests(result)], width=width))
    if where := [*_split("slowest 5 %", result.slowest), *_split("mean", result.attribution)]:
        blocks.append(labelled("Where the wait went", where, width=width))
    if lines := cache_lines(problem, result):
        blocks.append(labelled("Prompt cache", lines, width=width))
    if said := findings.get(row.key, ()):
        blocks.append(labelled("Findings", [sentence(words) for words in said], width=width))
    if result.warnings:
        blocks.append(labelled("Warnings", list(result.warnings), width=width))
    return Text("\n").join(blocks)


def plain(text: Text) -> str:
    """The text without colour, each line without trailing spaces: for logs and tests."""
    console = Console(file=io.StringIO(), width=10_000, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(text, soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _trial_columns(problem: Problem, width: int) -> Columns:
    return Columns(
        (
            Column("#", 3, right=True),
            Column("candidate", 40 if width >= 110 else max(16, min(34, width - 49))),
            Column("load", 10),
            Column("verdict", 12),
            Column(f"{target_percentile(problem.promise.violation_share)} TTFT", 9, right=True),
            Column("tok/s", 5, right=True),
        ),
        "why",
        width,
    )


def _parameters(problem: Problem) -> str:
    """``8B``: weights over bits per weight of the least lossy file; empty when unknown."""
    models = [model for model in problem.models.values() if model.bits_per_weight > 0]
    if not models:
        return ""
    model = max(models, key=lambda m: m.bits_per_weight)
    parameters = model.weights_bytes * 8 / model.bits_per_weight
    unit, size = ("B", 1e9) if parameters >= 1e9 else ("M", 1e6)
    return f"{significant(parameters / size, 2)}{unit}"


def _today_lines(problem: Problem, decision: Decision, findings: Findings) -> list[str]:
    today = today_of(problem, decision)
    keeps = {True: "keeps the promise", False: "misses the promise", None: "not shown to keep the promise"}
    if today.result is None:
        keeps[None] = "not measured"
    cost = money(today.cost, currency_of(problem, today.candidate))
    lines = [f"{machines(today.replicas, today.candidate)} · {cost} a month · {keeps[today.keeps]}"]
    if today.result is not None:
        lines.extend(filter(None, [_numbers(problem, today.result)]))
        lines.extend(sentence(words) for words in findings.get(problem.key(today.result.trial), ()))
    return lines


def _step_lines(problem: Problem, decision: Decision) -> list[str]:
    """``queue: 4 × l4, $5,840 (saves $1,460): 8 → 16 slots``; today has a block of its own."""
    lines = []
    for before, step in pairwise(bought_steps(problem, decision)):
        cost = money(step.cost, currency_of(problem, step.candidate))
        # A step that keeps what the one before it missed has bought that, whatever it saves.
        kept_now = state_phrase(step) if step.state is StepState.KEPT is not before.state else ""
        verdict = ", ".join(filter(None, [kept_now, saved_phrase(problem, step)])) or state_phrase(step)
        known = f"{machines(step.replicas, step.candidate)}, {cost} ({verdict})" if step.cost is not None else verdict
        changes = f": {', '.join(step.changes)}" if step.changes else ""
        note = f" ({step.note})" if step.note and step.note != verdict else ""
        lines.append(f"{step.title.lower()}: {known}{changes}{note}")
    return lines


def _choice_lines(problem: Problem, decision: Decision) -> list[str]:
    choice = decision.choice
    assert choice is not None
    currency = currency_of(problem, choice.candidate)
    today = today_of(problem, decision)
    cost = f"{machines(choice.replicas, choice.candidate)} · {money(choice.monthly_cost, currency)} a month"
    if today.cost is not None and (today.candidate, today.replicas) != (choice.candidate, choice.replicas):
        cost += f" (today {today.replicas} · {money(today.cost, currency_of(problem, today.candidate))})"
    if choice.cost_per_million_output_tokens is not None:
        cost += f" · {money(choice.cost_per_million_output_tokens, currency)} per million tokens out"
    numbers = (_numbers(problem, choice.result), winners_answers(problem, decision))
    return [cost, candidate_label(choice.candidate, problem.baseline), *filter(None, numbers)]


def _why_lines(problem: Problem, decision: Decision) -> list[str]:
    lines = [sentence(words) for words in (decision.binding_reason, decision.reason) if words]
    nearest = decision.nearest
    today = today_of(problem, decision).result
    if nearest is not None and (today is None or nearest.trial != today.trial):
        row = trial_row(problem, nearest, 1, {})
        lines.append(f"Nearest: {row.label} at {row.load}: {_numbers(problem, nearest) or row.outcome}")
    return lines


def _sure_lines(problem: Problem, decision: Decision) -> list[str]:
    lines = [sentence(words) for words in (*decision.proved, headroom_sentence(decision)) if words]
    lines.extend(f"Not proved: {words}" for words in decision.not_proved)
    if not lines and (gap := gap_sentence(problem, decision)):
        lines.append(gap)
    lowered = lowered_in_short(problem.measurement)
    return [*(lines or ["Nothing was proved."]), *([lowered] if lowered else [])]


def _numbers(problem: Problem, result: TrialResult) -> str:
    """``p95 TTFT 0.62 s (at most 0.71 s, 95 % sure) · 44 tok/s per user``; empty when nothing was measured."""
    wait, pace, share = owed_wait(problem, result), pace_of(result), problem.promise.violation_share
    parts = []
    if wait is not None:
        text = f"{target_percentile(share)} TTFT {seconds(wait)}"
        upper = seconds(result.verdict.ttft_p95_upper_s)
        if upper != MISSING and target_percentile(share) == "p95":
            text += f" (at most {upper}, {percent(result.verdict.confidence)} sure)"
        parts.append(text)
    if pace is not None:
        parts.append(f"{speed(pace)} tok/s per user (p5)")
    return " · ".join(parts)


def _requests(result: TrialResult) -> str:
    verdict = result.verdict
    asked = plural(verdict.requests, "request")
    if 0 < verdict.requests < result.planned_requests:
        asked += f" of {result.planned_requests:,}, stopped early"
    return f"{asked} · {plural(verdict.violations, 'violation')} · took {duration(result.gpu_seconds)}"


def _split(of: str, split: Attribution | None) -> list[str]:
    if split is None:
        return []
    parts = (("queue", split.queue_s), ("prefill", split.prefill_s), ("contention", split.contention_s))
    return [f"{of}: " + " · ".join(f"{name} {seconds(length)}" for name, length in parts)]


def _folded(words: str, width: int) -> list[str]:
    return labelled("", [words], width=width, label_width=0).plain.split("\n")
