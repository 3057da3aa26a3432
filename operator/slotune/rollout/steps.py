"""What a rollout does next. One of these is the whole answer of a plan; the controller carries it out and plans anew.

Only :class:`WriteAhead` changes what is remembered, and nothing else happens in that step. So whatever is done was
written down before, and a step that is done twice does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from slotune.api.v1alpha1 import Applied
from slotune.rollout.facts import Strategy
from slotune.rollout.memory import Memory

__all__ = [
    "Apply",
    "AwaitApproval",
    "Done",
    "Drain",
    "NothingToDo",
    "Refuse",
    "RollBack",
    "RolloutStep",
    "Verify",
    "Wait",
    "WriteAhead",
]

Truth = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Production stays as it is, and that is right."""

    reason: str
    message: str
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class AwaitApproval:
    """A person has to name the candidate in ``spec.rollout.approvedCandidate``."""

    message: str
    reason: ClassVar[str] = "AwaitingApproval"
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is done until somebody changes something: the message says who and what."""

    reason: str
    message: str
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class Drain:
    """Ask every server's ``/slots`` and plan again; nothing is sent to the Deployment."""

    message: str
    next_look: datetime
    reason: str = "Draining"
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class WriteAhead:
    """Save ``memory`` in the status, then plan again with the same readings. When the write fails, nothing was done.

    With ``record_template`` the pod template that is observed now is saved first (:mod:`slotune.rollout.last_good`),
    since ``memory.last_good`` will lead to it.
    """

    memory: Memory
    message: str
    record_template: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of the candidate to the Deployment, without force. Harmless when it was applied before."""

    candidate_hash: str
    replicas: int | None
    """Replicas to send in the same request; None: send none, they belong to somebody else."""
    strategy: Strategy | None
    """Strategy to send, in owned mode; None: send none, the Deployment has its own."""
    message: str
    reason: ClassVar[str] = "Applying"
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again at ``until``, or when the Deployment changes."""

    reason: str
    message: str
    until: datetime | None = None
    rolled_out: Truth = "False"
    serves: bool = False
    """Whether the answer is in the Deployment already, so that there is nothing to roll out: only its pods are missing.
    """


@dataclass(frozen=True, slots=True)
class Verify:
    """Look at what production delivers (probes and Prometheus) at ``next_look``, and plan again with that look."""

    next_look: datetime
    message: str
    reason: str = "Verifying"
    rolled_out: Truth = "Unknown"


@dataclass(frozen=True, slots=True)
class RollBack:
    """Put the recorded template of ``to`` back, in full: the same field manager, without force."""

    to: Applied
    replicas: int | None
    """As for :class:`Apply`."""
    strategy: Strategy | None
    reason: str
    message: str
    rolled_out: ClassVar[Truth] = "False"


@dataclass(frozen=True, slots=True)
class Done:
    """The answer serves."""

    message: str
    reason: str = "RolledOut"
    rolled_out: ClassVar[Truth] = "True"


RolloutStep = NothingToDo | AwaitApproval | Refuse | Drain | WriteAhead | Apply | Wait | Verify | RollBack | Done
"""Every step but :class:`WriteAhead` has ``rolled_out``, ``reason`` and ``message``: the condition RolledOut."""
