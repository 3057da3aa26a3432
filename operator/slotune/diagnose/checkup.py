"""Every rule on one server's symptoms: what was found, what was ruled out, what could not be decided.

A rule is a pure function of the symptoms. An item of the checklist counts as found when any of its rules found
something, as undecided when any of them could not decide, and as clear only when all of them said so.

Whoever hears that a server is healthy stops looking, so that takes more than that nothing was found: a server that
serves, at least half of the questions looked at, and something that shows where its model is computed. How many rules
there are does not matter for it: a question with ten rules is no more looked at than one with a single rule.
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


ENOUGH: Final = 0.5
"""Of the checklist's items must be looked at before a server is called healthy. Of 15, a log with -lv 4 shows 10 after
the start and 12 with requests, one at the default level 6 and 9; an idle server shows 3 or 4 by its address and 5 or 6
with a probe, a busy one 7 or 8."""

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
    tells_place: bool = False
    """Whether its decision tells where the model is computed, or that it is about as fast as its device allows."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One item of the checklist."""

    item: Item
    outcome: Outcome
    findings: tuple[Finding, ...]
    clear: tuple[Clear, ...]
    undecided: tuple[Undecided, ...]
    """Each need once."""
    open: tuple[Undecided, ...]
    """One for each rule that could not tell, in their order."""
    checks: int
    """Rules that were asked."""

    @property
    def decided(self) -> int:
        """Rules that could tell."""
        return len(self.findings) + len(self.clear)

    @property
    def looked_at(self) -> bool:
        """Whether anything of the server was looked at for it, however little."""
        return bool(self.findings) or any(not clear.unasked for clear in self.clear)


@dataclass(frozen=True, slots=True)
class Checkup:
    """The whole checklist."""

    findings: tuple[Finding, ...]
    """The one that explains most first."""
    checked: tuple[Checked, ...]
    """One per item, in the checklist's order."""
    doubt: str = ""
    """Why it can't be called healthy though nothing was found: nobody was seen to be served, or too little could be
    looked at. Empty: it can."""
    was_seen: bool = True
    """Whether it was seen to serve: else that nothing was found says nothing of it."""

    @property
    def is_healthy(self) -> bool | None:
        """Whether nothing above ``Info`` was found; None when that is not enough to say so."""
        if any(finding.severity is not Severity.INFO for finding in self.findings):
            return False
        return None if self.doubt else True


def check_up(symptoms: Symptoms, rules: Sequence[Rule]) -> Checkup:
    """Run every rule."""
    said = [(rule, rule.check(symptoms)) for rule in rules]
    checked = []
    for item in Item:
        own = [result for rule, result in said if rule.item is item]
        findings = tuple(one for one in own if isinstance(one, Finding))
        still_open = tuple(one for one in own if isinstance(one, Undecided))
        undecided = tuple(dict.fromkeys(still_open))
        outcome = Outcome.FOUND if findings else Outcome.UNDECIDED if undecided or not own else Outcome.CLEAR
        clear = tuple(one for one in own if isinstance(one, Clear))
        checked.append(Checked(item, outcome, order(findings), clear, undecided, still_open, len(own)))
    placing = [result for rule, result in said if rule.tells_place]
    is_placed = not placing or any(not isinstance(result, Undecided) for result in placing)
    unseen = _unseen(symptoms)
    doubt = unseen or _too_little(checked) or ("" if is_placed else NO_PLACE)
    findings = order([finding for one in checked for finding in one.findings])
    return Checkup(findings, tuple(checked), doubt, was_seen=not unseen)


NO_PLACE: Final = "nothing shows where its model is computed"


def _too_little(checked: Sequence[Checked]) -> str:
    asked = [one for one in checked if one.checks]
    seen = sum(one.looked_at for one in asked)
    return "" if seen and seen >= ENOUGH * len(asked) else "that is less than half"


def _unseen(symptoms: Symptoms) -> str:
    """Many checks are decided by arguments or limits alone, which say nothing of how it is now."""
    server, pod, log = symptoms.server, symptoms.pod, symptoms.log
    if pod is not None and (pod.ready is False or (pod.ready is None and pod.phase == "Pending")):
        return "its pod is not ready"
    was_asked = server is not None and not _left_alone(server)
    if server is not None and was_asked and not any((server.props, server.model, server.slots, server.metrics)):
        return "the server answered no question"
    if not was_asked and log is None:
        return "neither its log was read nor the server asked"
    return "" if log is None else log.router


def _left_alone(server: ServerLook) -> bool:
    """Whether nobody might ask it."""
    return bool(server.refused) and all(why.startswith(NOT_ASKED) for why in server.refused.values())


FAILING: Final = frozenset(
    {"SLT031", "SLT032", "SLT034", "SLT036", "SLT110", "SLT111", "SLT114", "SLT115", "SLT116", "SLT117"}
    | {entry.id for entry in failure_entries.ENTRIES}
)
"""Entries by which requests are refused, cut off or lost, not only slow: who gets no answer is not served by speed."""
SYMPTOMS: Final = frozenset({"SLT012", "SLT013"})
"""Entries that count how far the device is from its bound, and name nothing that keeps it there."""
NAMED: Final = frozenset({"SLT001", "SLT002", "SLT003", "SLT010", "SLT085"})
"""Entries of what keeps it there: parts on the CPU, a missing kernel, a device that is slowed."""
UNCOUNTED: Final = 0.1
"""The share that a cause counts for whose own nobody could count: what calls a part of the time large elsewhere."""
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What is wrong before what is worth knowing; among those, requests that fail before what only costs time; then
    what explains most first; then the checklist's order.

    That a share could not be counted does not make it small: a cause that is certain or likely then stands where
    :data:`UNCOUNTED` would, behind those that are known to explain as much; one that is merely possible comes last.
    What a symptom counts, the cause that is found beside it explains, so that one comes before it.
    """
    items = list(Item)
    seen = max((_explains(one) for one in findings if one.id in SYMPTOMS), default=0.0)
    return tuple(
        sorted(
            findings,
            key=lambda one: (
                _RANK[one.severity],
                one.id not in FAILING,
                -max(_explains(one), seen if _is_named(one) else -1.0),
                one.id in SYMPTOMS,
                one.cost.weight < 0,
                items.index(one.entry.item),
                one.id,
            ),
        )
    )


def _is_named(finding: Finding) -> bool:
    return finding.id in NAMED and finding.confidence is not Confidence.POSSIBLE


def _explains(finding: Finding) -> float:
    """The share that it is ordered by."""
    weight = finding.cost.weight
    return UNCOUNTED if weight < 0 and finding.confidence is not Confidence.POSSIBLE else weight
