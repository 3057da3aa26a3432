"""What an early build of llama-server can be told: a flag that it does not know would stop it.

Everything is stated to a build whose flags were read in its source (:data:`READ_SINCE`). An earlier one gets a flag
only where it is known to take it, or where its default is another value; of the rest its default does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from slotune.llama.build_defaults import BuildDefaults
from slotune.llama.candidate import Candidate
from slotune.llama.flag_history import ADDED, FLASH_ATTENTION_VALUE, SPECULATION_NUMBERS
from slotune.llama.speculation import DRAFT_MODEL

__all__ = ["READ_SINCE", "as_spelled", "understood", "unsupported"]

READ_SINCE: Final = 11434

_NEWER: Final = frozenset(
    {"-fit", "-kvu", "-no-kvu", "--cache-prompt", "--no-cache-prompt", "--cache-ram", "--cache-idle-slots",
     "--no-cache-idle-slots", "--cache-reuse", "--slots", "-fa"}
)  # fmt: skip
"""Flags that slotune writes and that came within the last years. The others are as old as the server."""

_SPELLINGS: Final = {"--cache-ram": "-cram", "--no-cache-idle-slots": "--cache-idle-slots"}


def understood(groups: Iterable[tuple[str, ...]], defaults: BuildDefaults) -> Iterator[tuple[str, ...]]:
    """The flags, each with its value, that a build takes and needs: for an early one as it spells them."""
    build = defaults.build
    for group in groups:
        if build is None or build >= READ_SINCE or group[0] not in _NEWER:
            yield group
        elif _is_known(group[0], build) or not _is_default(group, defaults):
            yield from as_spelled(group, defaults)


def as_spelled(group: tuple[str, ...], defaults: BuildDefaults) -> Iterator[tuple[str, ...]]:
    """A flag with its value as a build spells it; nothing where a switch of it is off by being absent."""
    build = defaults.build
    if build is None:
        yield group
    elif group[0] == "-fa" and build < FLASH_ATTENTION_VALUE.present:
        yield from [("-fa",)] if group[1] == "on" else []
    elif group[0].endswith("cache-idle-slots") and build < ADDED["--cache-idle-slots"].present:
        yield (group[0].replace("cache-idle-slots", "clear-idle"),)
    else:
        yield group


def unsupported(candidate: Candidate, defaults: BuildDefaults) -> tuple[str, ...]:
    """Sentences about settings of ``candidate`` that a build cannot be brought to; empty: it can run it."""
    build = defaults.build
    if build is None:
        return ()
    told = []
    if candidate.kv_unified and build <= ADDED["-kvu"].absent:
        told.append(f"b{build} has no -kvu, which came with b{ADDED['-kvu'].present}.")
    if candidate.cache_ram_mib and build <= ADDED["-cram"].absent:
        told.append(f"b{build} has no --cache-ram, which b{ADDED['-cram'].present} has.")
    if candidate.cache_idle_slots and not defaults.cache_idle_slots:
        told.append(f"b{build} does not save idle slots.")
    if candidate.flash_attention == "auto" and build <= FLASH_ATTENTION_VALUE.absent:
        told.append(f"b{build} knows flash attention on and off only.")
    if candidate.parallel_slots == 1 and not candidate.kv_unified and defaults.one_slot_is_auto:
        told.append(f"b{build} takes -np 1 for no number of slots (ggml-org/llama.cpp#17300).")
    return (*told, *_no_speculation(candidate, build))


def _no_speculation(candidate: Candidate, build: int) -> Iterator[str]:
    if candidate.backend_sampling and build <= ADDED["-bs"].absent:
        yield f"b{build} has no --backend-sampling, which b{ADDED['-bs'].present} has."
    if candidate.speculation == "none":
        return
    numbers = candidate.speculation_tokens is not None or candidate.speculation_match is not None
    if build <= ADDED["--spec-type"].absent:
        yield f"b{build} has no --spec-type, which b{ADDED['--spec-type'].present} has."
    elif candidate.speculation == DRAFT_MODEL and build < ADDED[DRAFT_MODEL].present:  # as it is read
        yield f"b{build} spells draft models otherwise: slotune states them as b{ADDED[DRAFT_MODEL].present} has them."
    elif numbers and build <= SPECULATION_NUMBERS.absent:
        yield f"b{build} has no numbers for each --spec-type, which b{SPECULATION_NUMBERS.present} has."


def _is_known(spelling: str, build: int) -> bool:
    added = ADDED.get(_SPELLINGS.get(spelling, spelling))
    if spelling == "-fa":
        added = FLASH_ATTENTION_VALUE
    return added is not None and build >= added.present


def _is_default(group: tuple[str, ...], defaults: BuildDefaults) -> bool:
    """Whether a build does the same without the flag, given that slots are stated."""
    return group in {
        ("-fit", "off"),  # has nothing to fit where context and layers are stated
        ("-no-kvu",),
        ("--cache-prompt" if defaults.cache_prompt else "--no-cache-prompt",),
        ("--cache-ram", str(defaults.cache_ram_mib)),
        ("--cache-idle-slots" if defaults.cache_idle_slots else "--no-cache-idle-slots",),
        ("--cache-reuse", str(defaults.cache_reuse)),
        ("--slots",),
        ("-fa", defaults.flash_attention),
    }
