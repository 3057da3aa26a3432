"""Every entry and every rule that there is, gathered from the modules that hold them.

An identifier is printed, linked to and kept in tickets, so one that stands for two causes is refused as soon as this
module is read. The table on trials has no entries beside these; it is not imported, for it needs all of the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from slotune.diagnose import failure_entries, invalid_entries
from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry
from slotune.diagnose.rules import (
    batch,
    build,
    client,
    decode,
    device,
    gpu,
    health,
    kernels,
    load,
    logs,
    memory,
    prefill,
    queue,
    reuse,
    sampling,
    serving,
    template,
    threads,
)

__all__ = ["ALL_RULES", "ENTRIES", "by_id"]

_RULE_MODULES: Final = (
    gpu,
    kernels,
    decode,
    prefill,
    batch,
    memory,
    reuse,
    queue,
    threads,
    sampling,
    template,
    logs,
    device,
    build,
    client,
    load,
    health,
    serving,
)
"""In the order of the checklist."""


def by_id(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    """The entries by identifier, in the order of the identifiers. The same entry may come twice.

    Raises:
        ValueError: two entries share an identifier or a code.
    """
    found: dict[str, Entry] = {}
    codes: dict[str, Entry] = {}
    for entry in entries:
        for name, known in ((entry.id, found), (entry.code, codes)):
            if known.setdefault(name, entry) != entry:
                raise ValueError(
                    f"{name} stands for {known[name].id} {known[name].code} and for {entry.id} {entry.code}: "
                    "give one of them a number or a code of its own"
                )
    return MappingProxyType(dict(sorted(found.items())))


ENTRIES: Final[Mapping[str, Entry]] = by_id(
    entry for source in (*_RULE_MODULES, failure_entries, invalid_entries) for entry in source.ENTRIES
)
"""Identifier to entry: everything that any output may name."""

ALL_RULES: Final[tuple[Rule, ...]] = tuple(rule for module in _RULE_MODULES for rule in module.RULES)
"""What a running server or its log is checked for, in the order of the checklist."""
