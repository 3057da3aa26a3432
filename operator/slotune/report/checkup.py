"""What ``slotune diagnose`` says on a terminal: what was looked at, the findings, the checklist.

A finding tells everything that a person needs to act on it, in the same order each time: what was seen, what it rests
on, why it costs time, what to try, what not, how to see that it helped. What could not be decided is named together
with what would decide it: an item that nobody looked at is no clean bill of health.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rich.text import Text

from slotune.diagnose.checkup import Checked, Checkup, Outcome
from slotune.diagnose.finding import Cost, Finding, Severity
from slotune.diagnose.symptoms import UNNAMED, ServerLook, Symptoms
from slotune.llama.log_story import LogStory
from slotune.report.checkup_needs import means_of
from slotune.report.columns import Column, Columns, labelled, printable
from slotune.report.figures import duration, finite, percent, plural, seconds, sentence, size
from slotune.report.redaction import said_in_public

__all__ = ["Examined", "Section", "checkup_text", "cost_words"]

INDENT = 3
LABEL_WIDTH = 14
"""Of the parts of a finding, indent included."""
OUTCOME_WIDTH, ITEM_WIDTH = 9, 9
NEEDS_LOAD = "slotune bench -f MANIFEST --url URL (it takes a measurement under load)"
"""What decides an item that no look can decide."""

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}
_OUTCOME_STYLES = {Outcome.FOUND: "yellow", Outcome.CLEAR: "green", Outcome.UNDECIDED: "dim"}


@dataclass(frozen=True, slots=True)
class Section:
    """Something that is told of a server beside its findings, such as its roofline."""

    key: str
    """Its name in the document."""
    title: str
    """Its name on the terminal, at most 22 characters."""
    lines: tuple[str, ...]
    document: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The same as JSON values."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One server, and what came of looking at it."""

    symptoms: Symptoms
    checkup: Checkup
    sections: tuple[Section, ...] = ()


def checkup_text(examined: Sequence[Examined], *, width: int, notes: Sequence[str] = ()) -> Text:
    """One block per server, after what could not be looked at; no line is longer than ``width``."""
    said = [labelled("Note", [said_in_public(note)], width=width, label_width=LABEL_WIDTH) for note in notes]
    blocks = [*([Text("\n").join(said)] if said else []), *(Text("\n").join(_server(one, width)) for one in examined)]
    return Text("\n\n").join(blocks)


def _server(one: Examined, width: int) -> list[Text]:
    checkup = one.checkup
    name = printable(one.symptoms.name)
    seen = [" · ".join(_looked_at(one.symptoms))]
    label_width = max(LABEL_WIDTH, min(len(name) + 2, width // 3))
    blocks = [labelled(_cut(name, label_width - 2), seen, width=width, label_width=label_width), Text()]
    blocks += [Text(line, "bold") for line in _wrapped(_headline(checkup), width)]
    told = [finding for finding in checkup.findings if finding.severity is not Severity.INFO]
    for number, finding in enumerate(told, start=1):
        blocks += [Text(), *_finding(number, finding, width)]
    if briefly := [finding for finding in checkup.findings if finding.severity is Severity.INFO]:
        blocks += [Text(), Text("Worth knowing", "bold"), *(_brief(finding, width) for finding in briefly)]
    for section in one.sections:
        blocks += [Text(), labelled(section.title, [said_in_public(line) for line in section.lines], width=width)]
    blocks += [Text(), Text("Checklist", "bold"), *_checklist(checkup, width)]
    if needs := _needs(checkup, one.symptoms):
        blocks += [Text(), Text("What would decide the rest", "bold")]
        blocks += [_indented(f"{need}: {', '.join(items)}", width) for need, items in needs.items()]
    return blocks


def _headline(checkup: Checkup) -> str:
    """The answer first. Nothing that could be decided is not the same as nothing to change."""
    wrong = sum(finding.severity is not Severity.INFO for finding in checkup.findings)
    if wrong:
        order = ", the one that explains most first" if wrong > 1 else ""
        return f"{plural(wrong, 'finding')}{order}"
    decided = sum(checked.decided for checked in checkup.checked)
    whole = sum(checked.checks for checked in checkup.checked)
    if not decided:
        return "nothing found, but nothing could be decided from this either"
    if checkup.doubt:
        return (
            f"nothing found in what could be looked at, but {checkup.doubt}, so it is not called healthy: {decided} of "
            f"{plural(whole, 'check')} made"
        )
    if checkup.is_healthy is None:
        return (
            f"nothing found in what could be looked at: only {decided} of {plural(whole, 'check')} made, too few "
            "to call it healthy"
        )
    rest = "" if decided == whole else f", {whole - decided} could not be decided from this"
    return f"nothing to change: {decided} of {plural(whole, 'check')} made{rest}"


def _looked_at(symptoms: Symptoms) -> list[str]:
    parts = []
    if symptoms.log is not None:
        parts += _log(symptoms.log)
    if symptoms.server is not None:
        parts += _look(symptoms.server)
    if symptoms.probe is not None:
        others = "" if symptoms.probe.was_idle else ", while others used it"
        parts.append(f"probe of {plural(symptoms.probe.requests, 'long prompt')}{others}")
    if symptoms.pod is not None:
        parts.append("pod" if symptoms.pod.name == symptoms.name else f"pod {symptoms.pod.name}")
    if symptoms.node is not None:
        parts.append(f"node {symptoms.node.name}")
    if symptoms.device is not None:
        parts.append(f"device {symptoms.device.name}")
    if symptoms.gpu is not None:
        name = symptoms.gpu.name
        parts.append("figures given for the device" if name == UNNAMED else f"GPU class {name}")
    if symptoms.model is not None:
        parts.append(f"weights {symptoms.model.architecture} {symptoms.model.quantization}")
    return parts or ["nothing"]


def _log(log: LogStory) -> list[str]:
    starts = "without its start" if not log.starts else plural(log.starts, "start")
    verbosity = "-lv unknown" if log.verbosity is None else f"-lv {log.verbosity}"
    parts = [f"log of {plural(log.lines, 'line')} ({size(log.size_bytes)}), {starts}, {verbosity}"]
    if finite(log.seconds) is not None:
        parts[0] += f", {duration(log.seconds)}"
    if log.last_start_line is not None:
        before = f"; {plural(log.requests_before, 'request')} before it left out" if log.requests_before else ""
        parts.append(f"judged since the last start (line {log.last_start_line:,}){before}")
    build = log.facts.build or (None if log.build is None else str(log.build))
    return parts if build is None else [*parts, f"build {build}"]


def _look(look: ServerLook) -> list[str]:
    often = "twice" if look.looks_at_metrics <= 2 else f"{look.looks_at_metrics} times"
    metrics = "/metrics" if look.metrics_later is None else f"/metrics {often} in {seconds(look.between_s)}"
    shown = [
        name
        for name, part in (("/props", look.props), ("/v1/models", look.model), ("/slots", look.slots))
        if part is not None
    ]
    if look.metrics is not None:
        shown.append(metrics)
    alike: dict[str, list[str]] = {}
    for endpoint, why in look.refused.items():
        alike.setdefault(why, []).append(endpoint)
    refused = [f"not {', '.join(endpoints)} ({said_in_public(why)})" for why, endpoints in alike.items()]
    return [", ".join(shown), *refused] if shown else refused


def _finding(number: int, finding: Finding, width: int) -> list[Text]:
    entry = finding.entry
    head = f"{number:<{INDENT}}{entry.id} {entry.code} ({finding.severity.value.lower()}): {entry.title}"
    parts = (
        ("What", [sentence(finding.sentence)]),
        ("Evidence", [str(evidence) for evidence in finding.evidence]),
        ("Explains", [cost_words(finding.cost)]),
        ("Confidence", [finding.confidence.value.lower()]),
        ("Cause", [entry.cause]),
        ("Try first", [sentence(finding.first or entry.first)]),
        ("Don't", [entry.avoid]),
        ("Verify", [entry.verify]),
        ("More", [entry.link]),
    )
    lines = [Text(line, _STYLES[finding.severity]) for line in _wrapped(head, width, hanging=INDENT)]
    for label, words in parts:
        shown = [said_in_public(word) for word in words if word]
        if shown:
            lines.append(labelled(" " * INDENT + label, shown, width=width, label_width=LABEL_WIDTH))
    return lines


def cost_words(cost: Cost) -> str:
    """What a finding explains, with ``not counted`` for what its evidence cannot be counted from."""
    wait, share, speed = finite(cost.ttft_s), finite(cost.ttft_share), finite(cost.speed_share)
    parts = []
    if wait is not None:
        of = "" if share is None else f" ({percent(share)})"
        parts.append(f"{seconds(wait)} of the time to the first token{of}")
    elif share is not None:
        parts.append(f"{percent(share)} of the time to the first token")
    if speed is not None:
        parts.append(f"{percent(speed)} of tokens/s")
    if (refused := finite(cost.refused_share)) is not None:
        parts.append(f"{percent(refused)} of requests, which fail")
    return ", ".join(parts) or "not counted: its evidence does not say how much"


def _brief(finding: Finding, width: int) -> Text:
    return _indented(f"{finding.id} {finding.code}: {said_in_public(finding.sentence)} (--explain {finding.id})", width)


def _checklist(checkup: Checkup, width: int) -> list[Text]:
    columns = Columns((Column("", OUTCOME_WIDTH), Column("", ITEM_WIDTH)), "", width)
    return [
        columns.row(
            (checked.outcome.value.lower(), checked.item.value[0]),
            _checked_words(checked),
            styles=[_OUTCOME_STYLES[checked.outcome], "", ""],
        )
        for checked in checkup.checked
    ]


def _checked_words(checked: Checked) -> str:
    _, question = checked.item.value
    if checked.outcome is Outcome.FOUND:
        return ", ".join(f"{finding.id} {finding.code}" for finding in checked.findings)
    if checked.outcome is Outcome.CLEAR:
        return said_in_public("; ".join(dict.fromkeys(clear.sentence for clear in checked.clear)))
    return f"{question} ({checked.decided} of {checked.checks} checks clear)" if checked.decided else question


def _needs(checkup: Checkup, symptoms: Symptoms) -> dict[str, list[str]]:
    """What would decide more, the most useful first: ``--probe`` to ``[Batch, Reuse]``."""
    needs: dict[str, list[str]] = {}
    for checked in checkup.checked:
        if checked.outcome is Outcome.UNDECIDED and not checked.undecided:
            needs.setdefault(NEEDS_LOAD, []).append(checked.item.value[0])
        for one in checked.undecided:
            needs.setdefault(means_of(one.needs, symptoms), []).append(checked.item.value[0])
    return {means: list(dict.fromkeys(items)) for means, items in sorted(needs.items(), key=lambda one: -len(one[1]))}


def _indented(words: str, width: int) -> Text:
    return labelled("", [words], width=width, label_width=INDENT)


def _wrapped(words: str, width: int, *, hanging: int = 0) -> list[str]:
    first = labelled("", [words], width=width, label_width=0).plain.split("\n")
    if hanging == 0 or len(first) == 1:
        return first
    rest = " ".join(first[1:])
    return [first[0], *labelled("", [rest], width=width, label_width=hanging).plain.split("\n")]


def _cut(name: str, width: int) -> str:
    """The end of a long name tells more than its beginning: paths and pods differ there."""
    return name if len(name) <= width else f"…{name[1 - width :]}"
