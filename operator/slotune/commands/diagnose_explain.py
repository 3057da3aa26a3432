"""``slotune diagnose --explain SLT036``: what the catalogue says of one cause, wherever its identifier was printed."""

from __future__ import annotations

import difflib
import re
import sys
from typing import Final

from rich.console import Console

from slotune.commands.exit_codes import ExitCode
from slotune.commands.writing import print_document
from slotune.diagnose.catalogue import ENTRIES
from slotune.diagnose.entry import Entry
from slotune.report.checkup_entry import entry_document, entry_text
from slotune.tuning.errors import InvalidInputError

__all__ = ["explain"]

_WORD: Final = re.compile(r"\w+")
_IDENTIFIER: Final = re.compile(r"slt\d+")
"""What is meant as one: an unknown one is not passed over for a name beside it."""


def explain(name: str, output: str) -> int:
    """Print the entry of an identifier or a code, in capitals or not, or of both as they are printed together.

    Raises:
        InvalidInputError: there is no such entry.
    """
    entry = _entry(name.strip())
    if output == "table":
        console = Console(highlight=False)
        console.print(entry_text(entry, width=console.width), soft_wrap=True)
    else:
        print_document(entry_document(entry), output, stream=sys.stdout)
    return ExitCode.FOUND


def _entry(name: str) -> Entry:
    known = {word.lower(): entry for entry in ENTRIES.values() for word in (entry.id, entry.code)}
    words = _WORD.findall(name.lower())
    named = {known.get(word) for word in words if word in known or _IDENTIFIER.fullmatch(word)}
    if len(named) == 1 and (entry := named.pop()) is not None:
        return entry
    near = [known[word] for word in difflib.get_close_matches(name.lower(), known, n=3)]
    shown = ", ".join(f"{one.id} {one.code}" for one in dict.fromkeys(near)) or f"{', '.join(list(ENTRIES)[:3])}, …"
    said = re.sub(r"[^ -~]", "", name)[:40] or "empty"
    raise InvalidInputError("--explain", said, f"is no finding: give its identifier or its name, such as {shown}")
