"""Writes the table of run-time dependencies and their licences, as each package's own metadata states them.

Metadata speaks three dialects (an SPDX expression, free text, classifiers). They are read in that order, and what is
still unclear is named below after a look at the package's licence file, rather than guessed.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "licences.md"
LOCKS = [ROOT / "requirements" / f"{name}.txt" for name in ("engine", "nvidia", "operator")]
BEGIN, END = "<!-- table: make licences -->", "<!-- end of table -->"

SPELLINGS = {
    "MIT License": "MIT",
    "BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
}
"""Older spellings. "BSD License" hides how many clauses there are: each package that says so has three."""

SPDX = r"IDENTIFIER( (AND|OR) IDENTIFIER)*".replace("IDENTIFIER", r"(MIT|ISC|[A-Za-z0-9]+(-[A-Za-z0-9.]+)+)")

READ_BY_HAND = {
    "nvidia-ml-py": "BSD-3-Clause",  # the field says BSD; its file has three clauses
    "uvloop": "Apache-2.0 OR MIT",  # a classifier each, and both licence files
    "scipy": "BSD-3-Clause",  # the field holds the whole text
}


def locked_names() -> list[str]:
    """Names in the lock files that are installed here, sorted; those of other platforms are not."""
    names = {name for lock in LOCKS for name in re.findall(r"^([a-z0-9-]+)==", lock.read_text(), re.MULTILINE)}
    return sorted(names - {"colorama"})  # Windows only


def licence_of(name: str) -> str:
    """An SPDX expression for an installed package; an unknown dialect is a LookupError with what was found."""
    if name in READ_BY_HAND:
        return READ_BY_HAND[name]
    metadata = importlib.metadata.metadata(name).json
    if expression := metadata.get("license_expression"):
        return str(expression)
    classifiers = [c.rpartition(" :: ")[2] for c in metadata.get("classifier", ()) if c.startswith("License")]
    for words in [str(metadata.get("license") or ""), *classifiers]:
        if words in SPELLINGS or re.fullmatch(SPDX, words):
            return SPELLINGS.get(words, words)
    raise LookupError(f"{name} states its licence as {metadata.get('license')!r}, {classifiers}: read its licence file")


def table() -> str:
    """The table as Markdown."""
    rows = [f"| {name} | {licence_of(name)} |" for name in locked_names()]
    return "\n".join(["| Package | Licence |", "|---|---|", *rows])


def main() -> int:
    """Puts the table into its page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
