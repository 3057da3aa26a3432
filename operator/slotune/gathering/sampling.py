"""Which of the sampling parameters that a server shows are those that its requests run with. Pure.

A request that is at work says best what requests ask for, then the last one of a slot that rests; the defaults in
/props are what they run with when they ask for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slotune.diagnose.evidence import LONGEST, Evidence, Source
from slotune.llama.server_answers import Props, Slot

__all__ = ["sampling_in_use"]

_TELLING = (
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "mirostat",
    "n_probs",
    "grammar",
    "json_schema",
    "grammar_triggers",
    "logit_bias",
    "xtc_probability",
    "top_k",
    "samplers",
    "backend_sampling",
    "temperature",
)
"""What choosing a token costs depends on these; the first few are what a line of evidence has room for."""


def sampling_in_use(
    props: Props | None, slots: Sequence[Slot] | None
) -> tuple[Mapping[str, object], Evidence | None, bool]:
    """Return (parameters, where they were seen, whether they are of a request).

    Of several requests at work, and then of several slots that rest, the first is taken that asks for something else
    than the defaults: a costly request slows its neighbours down as well.
    """
    defaults = {} if props is None else props.sampling
    known = [slot for slot in slots or () if slot.sampling and slot.task is not None]
    for at_work in (True, False):
        those = [slot for slot in known if slot.processing is at_work]
        if those:
            slot = next((one for one in those if _odd(one.sampling, defaults)), those[0])
            who = "works on a request" if at_work else "had a request"
            text = f"slot {slot.id} {who}: {_told(slot.sampling, defaults)}"
            return slot.sampling, Evidence(Source.SLOTS, text[:LONGEST]), True
    if defaults:
        return defaults, Evidence(Source.PROPS, f"defaults: {_told(defaults, {})}"[:LONGEST]), False
    return {}, None, False


def _odd(values: Mapping[str, object], defaults: Mapping[str, object]) -> dict[str, object]:
    """What differs from the defaults, and bears on the cost."""
    return {name: values[name] for name in _TELLING if name in values and values[name] != defaults.get(name)}


def _told(values: Mapping[str, object], defaults: Mapping[str, object]) -> str:
    odd = _odd(values, defaults)
    return ", ".join(f"{name} {_shown(value)}" for name, value in odd.items()) or "as the defaults are"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
