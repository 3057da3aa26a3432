"""What can be said about one cause, and the checklist that causes belong to.

An identifier is never given to another cause, and never reused. ``docs/diagnosis.md`` has the same entries at length;
a test keeps the two in step.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

__all__ = ["PAGE", "Entry", "Item"]

PAGE: Final = "docs/diagnosis.md"


class Item(enum.Enum):
    """The checklist of a slow prompt: (name for machines, question for people). The order is that of the output."""

    GPU = ("GPU", "is the GPU used, and for all layers?")
    KERNELS = ("Kernels", "do attention and the KV cache run on fast kernels?")
    BATCH = ("Batch", "are prompts read in pieces of the right size?")
    MEMORY = ("Memory", "is there enough memory for the context, the caches and the weights?")
    REUSE = ("Reuse", "is a shared prefix computed once, or again and again?")
    QUEUE = ("Queue", "do requests wait for a slot?")
    THREADS = ("Threads", "do the CPU threads get the cores that they need?")
    SAMPLING = ("Sampling", "what does choosing the next token cost?")
    TEMPLATE = ("Template", "what do the chat template and tokenizing cost?")
    LOGGING = ("Logging", "does logging slow the server down?")
    DEVICE = ("Device", "is the GPU slowed down, or shared with somebody?")
    BUILD = ("Build", "is this build known to be slow?")
    CLIENT = ("Client", "does the client or a proxy hold requests back?")
    LOAD = ("Load", "is it more work than the server can do?")
    HEALTH = ("Health", "does it serve at all?")


@dataclass(frozen=True, slots=True)
class Entry:
    """One cause."""

    id: str
    """``SLT`` and three digits."""
    code: str
    """CamelCase, unique."""
    item: Item
    title: str
    """One line, no full stop."""
    cause: str
    """Why it costs time: one or two sentences, with the llama.cpp issue that taught it where there is one."""
    first: str
    """What to try first."""
    avoid: str
    """What not to try, and why."""
    verify: str
    """How to see that it helped."""
    knobs: tuple[str, ...] = ()
    """Settings to try, most promising first, as the API names them; ``replicas`` when none helps."""
    binds: str | None = None
    """What stands in the way of a promise (``TTFTQueue``, ``TTFTPrefill``, ``TTFTContention``, ``TokensPerSecond``);
    None for what says nothing about why a promise broke."""

    @property
    def link(self) -> str:
        """Where the page says more."""
        return f"{PAGE}#{self.id.lower()}"
