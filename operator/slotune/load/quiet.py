"""No garbage collection while clocks are read: one full pass stops the loop for longer than a token takes.

A collector's pause shows as p99 latency that no server caused (one load generator lost 100 to 400 ms to it).
What exists before a run is frozen, so that even a collection by others has little to walk; the collector
then rests and comes back as it was. The client's own objects hold no cycles per request, so little piles up.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["resting_collector"]


@contextmanager
def resting_collector() -> Iterator[None]:
    """Collect once, freeze what is left and switch the collector off; undo exactly that at the end."""
    was_enabled = gc.isenabled()
    frozen_before = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not frozen_before:  # else somebody else froze objects, and thawing can't be partial
            gc.unfreeze()
        if was_enabled:
            gc.enable()
