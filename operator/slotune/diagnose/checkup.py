"""Every rule on one server's symptoms: what was found, what was ruled out, what could not be decided.

A rule is a pure function of the symptoms. An item of the checklist counts as found when any of its rules found
something, as undecided when any of them could not decide, and as clear only when all of them said so.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from slotune.diagnose import failure_entries
from slotune.diagnose.entry import Item
from slotune.diagnose.finding import Clear, Confidence, Finding, Severity, Undecided
from slotune.diagnose.symptoms import ServerLook, Symptoms

__all__ = ["ENOUGH", "NOT_ASKED", "UNCOUNTED", "Checked", "Checkup", "Outcome", "Rule", "check_up", "order"]


ENOUGH: Final = 0.3
"""Of the checks must be decided before a server is called healthy: a whole log at the default level with a few
requests decides 23 of 57, one of a start alone 17."""


NOT_ASKED: Final = "not asked: "
"""How a refusal begins of a server that never heard the question (``ServerLook.refused``)."""


class Outcome(enum.StrEnum):
    """What became of one item of the checklist."""

    FOUND = "Found"
    CLEAR = "Clear"
    UNDECIDED = "Undecided"


@dataclass(frozen=True, slots=True)
class Rule:
    """One check."""

    id: str
    """Entry of the catalogue that it can find; of a server that ended it may find the entry of why instead."""
    item: Item
    check: Callable[[Symptoms], Finding | Clear | Undecided]


@dataclass(frozen=True, slots=True)
class Checked:
    """One item of the checklist."""

    item: Item
    outcome: Outcome
    findings: tuple[Finding, ...]
    clear: tuple[Clear, ...]
    undecided: tuple[Undecided, ...]
    """Each need once."""
    checks: int
    """Rules that were asked."""

    @property
    def decided(self) -> int:
        """Rules that could tell."""
        return len(self.findings) + len(self.clear)


@dataclass(frozen=True, slots=True)
class Checkup:
    """The whole checklist."""

    findings: tuple[Finding, ...]
    """The one that explains most first."""
    checked: tuple[Checked, ...]
    """One per item, in the checklist's order."""
    doubt: str = ""
    """Why it can't be called healthy however much could be decided: nobody was seen to be served. Empty: it can."""

    @property
    def is_healthy(self) -> bool | None:
        """Whether nothing above ``Info`` was found; None when too little could be looked at to say so."""
        if any(finding.severity is not Severity.INFO for finding in self.findings):
            return False
        if self.doubt:
            return None
        decided, whole = (sum(one.decided for one in self.checked), sum(one.checks for one in self.checked))
        return True if decided and decided >= ENOUGH * whole else None


def check_up(symptoms: Symptoms, rules: Sequence[Rule]) -> Checkup:
    """Run every rule."""
    said = [(rule, rule.check(symptoms)) for rule in rules]
    checked = []
    for item in Item:
        own = [result for rule, result in said if rule.item is item]
        findings = tuple(one for one in own if isinstance(one, Finding))
        undecided = tuple(dict.fromkeys(one for one in own if isinstance(one, Undecided)))
        outcome = Outcome.FOUND if findings else Outcome.UNDECIDED if undecided or not own else Outcome.CLEAR
        clear = tuple(one for one in own if isinstance(one, Clear))
        checked.append(Checked(item, outcome, order(findings), clear, undecided, len(own)))
    return Checkup(order([finding for one in checked for finding in one.findings]), tuple(checked), _doubt(symptoms))


def _doubt(symptoms: Symptoms) -> str:
    """Many checks are decided by arguments or limits alone, which say nothing of how it is now."""
    server, pod, log = symptoms.server, symptoms.pod, symptoms.log
    if pod is not None and (pod.ready is False or (pod.ready is None and pod.phase == "Pending")):
        return "its pod is not ready"
    was_asked = server is not None and not _left_alone(server)
    if server is not None and was_asked and not any((server.props, server.model, server.slots, server.metrics)):
        return "the server answered no question"
    if not was_asked and log is None:
        return "neither its log was read nor the server asked"
    return ""


def _left_alone(server: ServerLook) -> bool:
    """Whether nobody might ask it."""
    return bool(server.refused) and all(why.startswith(NOT_ASKED) for why in server.refused.values())


FAILING: Final = frozenset(
    {"SLT031", "SLT032", "SLT034", "SLT036", "SLT110", "SLT111", "SLT114", "SLT115", "SLT116", "SLT117"}
    | {entry.id for entry in failure_entries.ENTRIES}
)
"""Entries by which requests are refused, cut off or lost, not only slow: who gets no answer is not served by speed."""
UNCOUNTED: Final = 0.1
"""The share that a cause counts for whose own nobody could count: what calls a part of the time large elsewhere."""
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What is wrong before what is worth knowing; among those, requests that fail before what only costs time; then
    what explains most first; then the checklist's order.

    That a share could not be counted does not make it small: a cause that is certain or likely then stands where
    :data:`UNCOUNTED` would, behind those that are known to explain as much; one that is merely possible comes last.
    """
    items = list(Item)
    return tuple(
        sorted(
            findings,
            key=lambda one: (
                _RANK[one.severity],
                one.id not in FAILING,
                -_explains(one),
                one.cost.weight < 0,
                items.index(one.entry.item),
                one.id,
            ),
        )
    )


def _explains(finding: Finding) -> float:
    """The share that it is ordered by."""
    weight = finding.cost.weight
    return UNCOUNTED if weight < 0 and finding.confidence is not Confidence.POSSIBLE else weight
