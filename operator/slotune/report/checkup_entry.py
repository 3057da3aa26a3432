"""One entry of the catalogue, as text and as data."""

from __future__ import annotations

import re
from typing import Any, Final

from rich.text import Text

from slotune.diagnose.entry import Entry
from slotune.report.columns import labelled

__all__ = ["entry_document", "entry_text"]

_REPORT: Final = re.compile(r"\bggml-org/llama\.cpp#(\d+)((?:, #\d+)*)")
_WIDTH: Final = 14


def entry_text(entry: Entry, *, width: int) -> Text:
    """Title, cause, cures and reports; no line is longer than ``width``."""
    parts = (
        ("Asks", [entry.item.value[1]]),
        ("Cause", [entry.cause]),
        ("Try first", [entry.first]),
        ("Don't", [entry.avoid]),
        ("Verify", [entry.verify]),
        ("Reports", _reports(entry)),
        ("More", [entry.link]),
    )
    head = labelled(f"{entry.id}", [f"{entry.code}: {entry.title}"], width=width, label_width=_WIDTH)
    head.stylize("bold")
    rest = [labelled(label, said, width=width, label_width=_WIDTH) for label, said in parts if said]
    return Text("\n").join([head, *rest])


def entry_document(entry: Entry) -> dict[str, Any]:
    """The same as JSON values, under the names that a finding has."""
    return {
        "id": entry.id,
        "code": entry.code,
        "item": entry.item.value[0],
        "title": entry.title,
        "cause": entry.cause,
        "try_first": entry.first,
        "avoid": entry.avoid,
        "verify": entry.verify,
        "knobs": list(entry.knobs),
        "reports": _reports(entry),
        "link": entry.link,
    }


def _reports(entry: Entry) -> list[str]:
    """Addresses of the reports that taught it."""
    found: dict[str, None] = {}
    for text in (entry.cause, entry.first, entry.avoid, entry.verify):
        for match in _REPORT.finditer(text):
            for number in (match[1], *re.findall(r"\d+", match[2])):
                found[f"https://github.com/ggml-org/llama.cpp/issues/{number}"] = None
    return list(found)
