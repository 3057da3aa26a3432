"""One cause, in words that a person can act on, with what it rests on and what it costs."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from slotune.diagnose.entry import Entry
from slotune.diagnose.evidence import Evidence

__all__ = ["Clear", "Confidence", "Cost", "Finding", "Severity", "Undecided"]


class Severity(enum.StrEnum):
    """How much it matters. A healthy server has nothing above ``Info``."""

    CRITICAL = "Critical"
    """It does not serve, or answers wrongly, or runs on the wrong device."""
    WARNING = "Warning"
    """It costs users something that a change would give back."""
    INFO = "Info"
    """Worth knowing; nothing to change."""


class Confidence(enum.StrEnum):
    """How sure the cause is, given its evidence."""

    CERTAIN = "Certain"
    """The server said it, or it was measured directly."""
    LIKELY = "Likely"
    """Nothing else that is known would explain the evidence."""
    POSSIBLE = "Possible"
    """Other causes look the same; the entry says how to tell."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a finding explains, as far as its evidence can be counted; None is not known, which is not nothing."""

    ttft_s: float | None = None
    """Seconds of the time to the first token of a typical late request."""
    ttft_share: float | None = None
    """The same as a share of that time, 0 to 1."""
    speed_share: float | None = None
    """Share of tokens/s that is lost to it, 0 to 1: a server at a quarter of its speed has lost 0.75."""
    refused_share: float | None = None
    """Share of requests that are refused or cut off by it, 0 to 1."""

    @property
    def weight(self) -> float:
        """The largest of the shares, or -1 when none is known."""
        shares = (self.ttft_share, self.speed_share, self.refused_share)
        return max((share for share in shares if share is not None and math.isfinite(share)), default=-1.0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: the entry of the catalogue has the cause and the cures, the rest is this server's."""

    entry: Entry
    sentence: str
    """Plain words with numbers: no full stop at the end."""
    evidence: tuple[Evidence, ...]
    """At least one."""
    severity: Severity = Severity.WARNING
    confidence: Confidence = Confidence.CERTAIN
    cost: Cost = Cost()
    first: str | None = None
    """What to try first with this server's numbers; None takes the entry's words."""

    @property
    def id(self) -> str:
        """``SLT001``."""
        return self.entry.id

    @property
    def code(self) -> str:
        """CamelCase name of the cause."""
        return self.entry.code

    @property
    def knobs(self) -> tuple[str, ...]:
        """Settings to try, most promising first, as the API names them."""
        return self.entry.knobs

    @property
    def binds(self) -> str | None:
        """What stands in the way of a promise; None for what was noticed beside."""
        return self.entry.binds


@dataclass(frozen=True, slots=True)
class Clear:
    """Decided: it is not this. ``sentence`` says by what."""

    sentence: str
    evidence: tuple[Evidence, ...] = ()
    unasked: bool = False
    """Nothing is owed by which it could be one, so nothing of the server was looked at."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Not decided, and never guessed."""

    needs: str
    """What would decide it, as an instruction: ``a log with -lv 4``, ``--probe``, ``--nvidia-smi FILE``."""
