"""CPU threads against the CPU limit: threads that the quota does not let run make all the others wait for them."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.entry import Entry, Item

__all__ = ["ENTRIES", "RULES"]

THREADS_ABOVE_QUOTA: Final = Entry(
    id="SLT060",
    code="ThreadsAboveQuota",
    item=Item.THREADS,
    title="More CPU threads than the CPU limit lets run",
    cause="Without -t llama-server starts as many threads as the host has physical cores, whatever the container's CPU "
    "limit; the quota then stops threads in the middle of a step, and all others wait for them "
    "(ollama/ollama#17916: 45 times slower).",
    first="Set -t and -tb to the CPU limit, rounded down.",
    avoid="Do not add threads: those beyond the limit only take the quota from the others.",
    verify="Decode speed of one request rises, and the container's nr_throttled stops growing.",
    knobs=("threads",),
)

ENTRIES: Final = (THREADS_ABOVE_QUOTA,)

RULES: Final[tuple[Rule, ...]] = ()
