"""What a diagnosis found of a trial's server beside the numbers: its log says it, and the log is gone with the server.

The rules that find it lie above; here are their words, so that whoever reads a trial's result again has them too.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Noticed"]


@dataclass(frozen=True, slots=True)
class Noticed:
    """One finding, in words."""

    id: str
    """Entry of the catalogue."""
    severity: str
    confidence: str
    sentence: str
    """With this server's numbers."""
    evidence: str = ""
    """The line or the number that it rests on: ``log:12  …``. Only lines that rules look for, so no prompt is in it."""
