"""What ``slotune diagnose`` says on a terminal: what was looked at, the findings, the checklist.

A finding tells everything that a person needs to act on it, in the same order each time: what was seen, what it rests
on, why it costs time, what to try, what not, how to see that it helped. What could not be decided is named together
with what would decide it: an item that nobody looked at is no clean bill of health. Most of a checklist says that
nothing is wrong or that nobody looked, so it is folded to a few lines unless all of it is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rich.text import Text

from slotune.diagnose.checkup import Checkup
from slotune.diagnose.finding import Cost, Finding, Severity
from slotune.diagnose.symptoms import UNNAMED, ServerLook, Symptoms
from slotune.llama.log_story import LogStory
from slotune.report.checkup_folded import Open
from slotune.report.checkup_list import INDENT, folded_list, indented, whole_list
from slotune.report.columns import labelled, printable
from slotune.report.figures import duration, finite, percent, plural, seconds, sentence, size
from slotune.report.redaction import said_in_public

__all__ = ["Examined", "Section", "checkup_text", "cost_words"]

LABEL_WIDTH = 14
"""Of the parts of a finding, indent included."""

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}


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
    brief: tuple[str, ...] | None = None
    """The lines where not everything is wanted; none at all for what is not known. None: they are short enough."""
    needs: str = ""
    """What would tell more, where little is known."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One server, and what came of looking at it."""

    symptoms: Symptoms
    checkup: Checkup
    sections: tuple[Section, ...] = ()


def checkup_text(
    examined: Sequence[Examined], *, width: int, notes: Sequence[str] = (), everything: bool = False
) -> Text:
    """One block per server, after what could not be looked at; no line is longer than ``width``.

    Args:
        everything: the checklist with all that was decided and by what, and what would decide each of the rest.
    """
    said = [labelled("Note", [said_in_public(note)], width=width, label_width=LABEL_WIDTH) for note in notes]
    blocks = [Text("\n").join(said)] if said else []
    blocks += [Text("\n").join(_server(one, width, everything=everything)) for one in examined]
    return Text("\n\n").join(blocks)


def _server(one: Examined, width: int, *, everything: bool) -> list[Text]:
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
    if one.symptoms.log is not None and one.symptoms.log.router and not everything:
        return blocks  # what is not known of it is known of its children
    blocks += _sections(one.sections, width, everything=everything)
    if everything:
        return [*blocks, *whole_list(checkup, one.symptoms, width)]
    beside = [Open(section.title, section.needs, is_check=False) for section in one.sections if section.needs]
    return [*blocks, *folded_list(checkup, one.symptoms, beside, width)]


def _sections(sections: Sequence[Section], width: int, *, everything: bool) -> list[Text]:
    blocks = []
    for section in sections:
        lines = section.lines if everything or section.brief is None else section.brief
        if lines:
            blocks += [Text(), labelled(section.title, [said_in_public(line) for line in lines], width=width)]
    return blocks


def _headline(checkup: Checkup) -> str:
    """The answer first. Nothing that could be decided is not the same as nothing to change."""
    wrong = sum(finding.severity is not Severity.INFO for finding in checkup.findings)
    if wrong:
        order = ", the one that explains most first" if wrong > 1 else ""
        return f"{plural(wrong, 'finding')}{order}"
    decided = sum(checked.decided for checked in checkup.checked)
    if not decided:
        return "nothing found, but nothing could be decided from this either"
    whole = sum(checked.checks for checked in checkup.checked)
    seen = sum(checked.looked_at for checked in checkup.checked)
    questions, checks = plural(len(checkup.checked), "question"), plural(whole, "check")
    if checkup.doubt:
        much = f"{seen} of {questions}, {decided} of {checks}"
        what = "to change" if checkup.was_seen else "found"
        return f"nothing {what} in what was looked at ({much}), but {checkup.doubt}, so it is not called healthy"
    return f"nothing to change: {seen} of {questions} looked at, {decided} of {checks} made"


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
    return indented(f"{finding.id} {finding.code}: {said_in_public(finding.sentence)} (--explain {finding.id})", width)


def _wrapped(words: str, width: int, *, hanging: int = 0) -> list[str]:
    first = labelled("", [words], width=width, label_width=0).plain.split("\n")
    if hanging == 0 or len(first) == 1:
        return first
    rest = " ".join(first[1:])
    return [first[0], *labelled("", [rest], width=width, label_width=hanging).plain.split("\n")]


def _cut(name: str, width: int) -> str:
    """The end of a long name tells more than its beginning: paths and pods differ there."""
    return name if len(name) <= width else f"…{name[1 - width :]}"
