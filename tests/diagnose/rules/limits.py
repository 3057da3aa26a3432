"""What a rule says of a server, in a word or two: for tables of limits."""

from __future__ import annotations

from collections.abc import Callable

from slotune.diagnose.catalogue import ALL_RULES
from slotune.diagnose.finding import Finding, Undecided
from slotune.diagnose.symptoms import Symptoms
from tests.diagnose.rules.building import ask

CLEAR, UNDECIDED = "Clear", "Undecided"
INFO, WARNING, CRITICAL = "Info", "Warning", "Critical"
CERTAIN, LIKELY, POSSIBLE = ", certain", ", likely", ", possible"

Made = Callable[[float], Symptoms]
"""A server of which one number is given."""

Limit = tuple[str, str, Made, tuple[float, str], tuple[float, str]]
"""What it is, of which finding, the server, and the number and outcome below it and where it is reached."""


def outcome(identifier: str, symptoms: Symptoms) -> str:
    """``Clear``, ``Undecided``, or severity and confidence: ``Warning, likely``."""
    said = ask(ALL_RULES, identifier, symptoms)
    if isinstance(said, Finding):
        return f"{said.severity.value}, {said.confidence.value.lower()}"
    return UNDECIDED if isinstance(said, Undecided) else CLEAR


def named(limit: Limit) -> str:
    return f"{limit[1]} {limit[0]}"


def on_both_sides(limit: Limit) -> tuple[str, str]:
    """The outcomes below it and where it is reached."""
    _, identifier, made, (below, _), (reached, _) = limit
    return outcome(identifier, made(below)), outcome(identifier, made(reached))
