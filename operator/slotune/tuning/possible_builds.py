"""The builds of llama.cpp that an image may turn out to be of, as far as reading its flags can tell them apart.

Only the program knows its build for certain, and it is asked in a pod. What is said of its flags before that has to be
true whichever it is. The tables of defaults and flags are steps, so one build stands for all from one edge to the next.
"""

from __future__ import annotations

from typing import Final

from slotune.llama.build_arguments import READ_SINCE
from slotune.llama.build_defaults import NEWEST_KNOWN, OLDEST_KNOWN, TURNS
from slotune.llama.build_number import build_of_image
from slotune.llama.flag_history import (
    ADDED,
    FLASH_ATTENTION_VALUE,
    FORMER,
    FORMER_VARIABLES,
    REMOVED_FLAGS,
    SWITCH_WORDS,
)

__all__ = ["possible_builds"]

_NAMED: Final = {
    READ_SINCE,
    NEWEST_KNOWN,
    OLDEST_KNOWN,
    *(build for one in TURNS for build in (one.absent, one.present)),
    *(build for one in (*ADDED.values(), FLASH_ATTENTION_VALUE, SWITCH_WORDS) for build in (one.absent, one.present)),
    *(build for one in REMOVED_FLAGS.values() for build in (one.present, one.absent)),
    *(build for one in FORMER_VARIABLES.values() for build in (one.present, one.absent)),
    *(one.absent for one in FORMER.values()),
}
"""Builds in those tables. Whether a rule holds below, up to, from or above one, it changes at that one or the next."""
_EDGES: Final = sorted(_NAMED | {build + 1 for build in _NAMED})


def possible_builds(image: str | None) -> tuple[int | None, ...]:
    """One build of each kind, those first of which the most is taken. None: nothing says which it is, ever.

    A tag with a number is nearly always right, but it may count something else, such as somebody's own images. So where
    there is one, the image is of that build or of one like today's.
    """
    tagged = build_of_image(image)
    if tagged is not None:
        return tagged, NEWEST_KNOWN
    return None, _EDGES[0] - 1, *_EDGES
