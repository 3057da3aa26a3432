"""The checklist of a server on a terminal: whole, with what decided each item, or folded to a few lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from slotune.diagnose.checkup import Checked, Checkup, Outcome
from slotune.diagnose.symptoms import Symptoms
from slotune.report.checkup_folded import NEEDS_LOAD, Open, fold
from slotune.report.checkup_needs import means_of
from slotune.report.columns import Column, Columns, labelled
from slotune.report.figures import plural
from slotune.report.redaction import said_in_public

__all__ = ["INDENT", "folded_list", "indented", "whole_list"]

INDENT = 3
OUTCOME_WIDTH, ITEM_WIDTH = 9, 9
FOLDED_WIDTH = 18
"""Of the words for an outcome where the list is folded, indent included."""
MOST_THINGS = 6
"""To bring, that are named where the list is folded; the later ones decide a check or two each."""

_STYLES = {Outcome.FOUND: "yellow", Outcome.CLEAR: "green", Outcome.UNDECIDED: "dim"}


def whole_list(checkup: Checkup, symptoms: Symptoms, width: int) -> list[Text]:
    """Each item with its findings, with what cleared it or with its question; then what would decide the rest."""
    columns = Columns((Column("", OUTCOME_WIDTH), Column("", ITEM_WIDTH)), "", width)
    rows = [
        columns.row(
            (checked.outcome.value.lower(), checked.item.value[0]),
            _checked_words(checked),
            styles=[_STYLES[checked.outcome], "", ""],
        )
        for checked in checkup.checked
    ]
    blocks = [Text(), Text("Checklist", "bold"), *rows]
    if needs := _needs(checkup, symptoms):
        blocks += [Text(), Text("What would decide the rest", "bold")]
        blocks += [indented(f"{need}: {', '.join(items)}", width) for need, items in needs.items()]
    return blocks


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


def folded_list(checkup: Checkup, symptoms: Symptoms, beside: Sequence[Open], width: int) -> list[Text]:
    """The items in one line for each kind of outcome; then the few things that would decide most of the rest.

    Args:
        beside: what is not known of the sections.
    """
    blocks = [Text(), Text("Checklist (--all shows each check)", "bold")]
    for label, style, items in _outcomes(checkup):
        if items:
            row = labelled(f"{' ' * INDENT}{label}", [", ".join(items)], width=width, label_width=FOLDED_WIDTH)
            row.stylize(style, INDENT, INDENT + len(label))
            blocks.append(row)
    if things := fold(checkup, symptoms, beside):
        blocks += [Text(), Text("What would decide more", "bold")]
        named = len(things) if len(things) <= MOST_THINGS + 1 else MOST_THINGS  # "other things" takes a line too
        blocks += [indented(f"{words}: {_decides(what)}", width) for words, what in things[:named]]
        if rest := [one for _, what in things[named:] for one in what]:
            blocks.append(indented(f"other things (--all): {_decides(rest)}", width))
    return blocks


def _outcomes(checkup: Checkup) -> list[tuple[str, str, list[str]]]:
    """(Words, style, items) for each kind of outcome; what nothing was looked at for is not clear so far."""
    found, clear, partly, unseen = [list[str]() for _ in range(4)]
    for checked in checkup.checked:
        name = checked.item.value[0]
        if checked.outcome is Outcome.FOUND:
            found.append(f"{name} ({', '.join(finding.id for finding in checked.findings)})")
        elif checked.outcome is Outcome.CLEAR:
            clear.append(name)
        elif checked.looked_at:
            partly.append(f"{name} {checked.decided} of {checked.checks}{'' if partly else ' checks'}")
        else:
            unseen.append(name)
    return [
        ("found", _STYLES[Outcome.FOUND], found),
        ("clear", _STYLES[Outcome.CLEAR], clear),
        ("clear so far", _STYLES[Outcome.CLEAR], partly),
        ("not looked at", _STYLES[Outcome.UNDECIDED], unseen),
    ]


def _decides(what: Sequence[Open]) -> str:
    """``up to 18 checks of GPU, Kernels; the roofline``."""
    checks = sum(one.is_check for one in what)
    items = ", ".join(dict.fromkeys(one.whose for one in what if one.is_check))
    beside = [f"the {one.whose.lower()}" for one in what if not one.is_check]
    return "; ".join([*([f"up to {plural(checks, 'check')} of {items}"] if checks else []), *beside])


def indented(words: str, width: int) -> Text:
    """Words behind the indent of a list."""
    return labelled("", [words], width=width, label_width=INDENT)
