"""Logging at debug level: lines for every token, made on the thread that computes."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

DEBUG_LOGGING: Final = Entry(
    id="SLT080",
    code="DebugLogging",
    item=Item.LOGGING,
    title="The server logs at debug level",
    cause="From -lv 5 on, and with -v, the server writes several lines for every token and whole prompts beside; they "
    "are made on the thread that computes, and hold what users wrote.",
    first="Start with -lv 4, which still shows layers, buffers and kernels at the start, or with the default of 3.",
    avoid="Do not send the lines to a faster disk: making them is what costs, and they hold prompts.",
    verify="Tokens/s of one request on the idle server before and after.",
    knobs=("extraArgs",),
)

ENTRIES: Final = (DEBUG_LOGGING,)

RULES: Final[tuple[Rule, ...]] = ()
