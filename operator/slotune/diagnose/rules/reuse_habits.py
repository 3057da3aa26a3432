"""What counts as a habit of a server's prompts, and which log would show it: the same for all causes."""

from __future__ import annotations

import re
from typing import Final

from slotune.llama.log_story import LogStory, Seen, Topic

__all__ = ["A_LOG", "A_TRACE", "MOSTLY", "OFTEN", "SEVERAL", "TRACE", "least_similarity"]

OFTEN: Final = 0.1
"""A tenth of all requests, or of all that is read; less is an event and no habit."""
SEVERAL: Final = 3
"""Once may be chance, twice a coincidence."""
MOSTLY: Final = 0.5
"""A cache that serves more than half of a prompt works; so do slots that are picked for most requests."""
TRACE: Final = 4
"""``-lv`` that prints what becomes of a prompt's cache."""
A_TRACE: Final = "a log with -lv 4 of the server under load"
A_LOG: Final = "a log of the server under load: --log FILE"

_THRESHOLD: Final = re.compile(r"> ?(\d+\.\d+) thold")


def least_similarity(log: LogStory | None) -> tuple[float, Seen] | None:
    """(Part of its prompt that a slot must hold to be picked for it, the lines that say so); None: no line does."""
    seen = None if log is None else log.seen.get(Topic.SLOT_BY_SIMILARITY)
    match = None if seen is None else _THRESHOLD.search(seen.last.text)
    return None if seen is None or match is None else (float(match[1]), seen)
