"""What to type for more slots, and what they take: the context grows with them, and the memory with the context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from slotune.diagnose.rules import settings, work
from slotune.diagnose.step_reads import kv_bytes
from slotune.diagnose.symptoms import Symptoms

__all__ = ["more_slots"]

MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class _Context:
    """Tokens of all slots together."""

    total: int
    shared: bool
    """Whether any slot may take all of it (``--kv-unified``)."""


def more_slots(symptoms: Symptoms, now: int, then: int) -> str:
    """What to try for ``then`` slots instead of ``now``: flags with values, where known, the KV memory and the speed.

    llama-server shares the cache unasked only where it picks the number of slots itself, so a shared one is asked for.
    """
    times, context = then / now, _context(symptoms, now)
    if context is None:
        what = f"raise --parallel from {now} to {then}, and --ctx-size {times:.3g} times as high"
        keeps = "each slot keeps its context"
    else:
        size = round(context.total * times)
        shared = " --kv-unified" if context.shared else ""
        what = f"raise --parallel from {now} to {then} and --ctx-size from {context.total} to {size}"
        what = f"{what} (--parallel {then} --ctx-size {size}{shared})"
        keeps = f"{'of what they share, ' if context.shared else ''}each slot keeps {context.total // now} tokens"
    held = _kv_bytes(symptoms, context, now)
    memory = f"KV memory grows {times:.3g} times"
    if held is not None:
        memory += f", from {held / MIB:,.0f} to about {held * times / MIB:,.0f} MiB"
    speed = work.user_speed(symptoms)
    slower = "" if speed is None else f"; each user then gets at most the {speed.value:.0f} tok/s of now"
    return f"{what}: {keeps}; {memory}{slower}"


def _context(symptoms: Symptoms, slots: int) -> _Context | None:
    """None: nobody says how large it is, or whether a number is of one slot or of all."""
    facts = None if symptoms.log is None else symptoms.log.facts
    props = None if symptoms.server is None else symptoms.server.props
    each = None if facts is None else facts.context_per_slot
    if props is not None and props.context_per_slot > 0:
        each = props.context_per_slot
    shared = False if slots == 1 else settings.is_unified(symptoms)
    if not each or shared is None:
        return None
    return _Context(each if shared else each * slots, shared)


def _kv_bytes(symptoms: Symptoms, context: _Context | None, slots: int) -> int | None:
    """Of all slots: as allocated, else as the model's file says. None: nobody says, or a draft's is in it."""
    facts = None if symptoms.log is None else symptoms.log.facts
    if facts is not None and facts.kv_bytes and not facts.draft_loaded:
        return facts.kv_bytes
    if symptoms.model is None or context is None:
        return None
    if context.shared:
        return kv_bytes(symptoms, context.total)
    each = kv_bytes(symptoms, context.total / slots)
    return None if each is None else slots * each
