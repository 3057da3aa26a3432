"""What can be said of a trial in a pod at one moment. Exactly one of four things, and only one of them ends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slotune.api.v1alpha1.candidate import Environment
from slotune.llama.log_lines import LogFacts
from slotune.sandbox.protocol import Progress
from slotune.search.trial import TrialResult

__all__ = ["Blocked", "Ended", "Judgement", "LogRequest", "Logs", "Retry", "Waiting"]


@dataclass(frozen=True, slots=True)
class LogRequest:
    """One call of the API server's pods/log. Where both bounds are given, the tail is taken first, then cut."""

    container: str
    previous: bool = False
    """Of the instance that ran before the last restart."""
    tail_lines: int | None = None
    """None: from the beginning."""
    limit_bytes: int | None = None


Logs = Mapping[LogRequest, str]
"""What was asked for, as far as it could be read. A log that is gone is simply not in it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """It goes on; look again later."""

    phase: Literal["Pending", "Queued", "Running"]
    reason: str
    """CamelCase: what it waits for, or does."""
    message: str
    progress: Progress | None = None
    """What the load client said last."""
    server: LogFacts | None = field(default=None, repr=False)
    """What the beginning of the server's log says, once it was read. Kubelet's log rotation may take it away before the
    trial ends, so whoever wants to keep it does so now."""


@dataclass(frozen=True, slots=True)
class Ended:
    """It has come to an end that counts. The pod may still run: it can be deleted."""

    result: TrialResult
    record: bytes | None = field(default=None, repr=False)
    """Every request, JSON Lines, compressed with gzip; None when there was none or it was lost."""
    environment: Environment = field(default_factory=Environment)
    """What it is true for, as far as the pod says."""
    notes: tuple[str, ...] = ()
    reference: bytes | None = field(default=None, repr=False)
    """What a trial recorded for comparisons to come; it is what ``result.reference`` names."""


@dataclass(frozen=True, slots=True)
class Retry:
    """It was interrupted by something that says nothing about the candidate: run it again."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """It cannot run here, whatever the candidate is: no GPU, no image, no model. A person has to act."""

    reason: str
    message: str
    """With the cure."""


Judgement = Waiting | Ended | Retry | Blocked
