"""Whether a server that others use has nothing to do, so that a request of ours would take nobody's time.

Seen twice in a row: a request that was parked while a batch decoded is in neither number for a moment. A server that
says nothing about its work, or nothing that is a number, counts as in use: nobody can tell.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from slotune.llama.server_http import LlamaServer, ServerBusyError, ServerError

__all__ = ["CANNOT_TELL", "in_use"]

CANNOT_TELL: Final = (
    "nobody can tell whether others use it, for neither /metrics nor /slots says what it does: start it with --metrics"
)
_POLL_S: Final = 0.1
_QUIET_LOOKS: Final = 2


async def in_use(server: LlamaServer, limit_s: float) -> str:
    """Wait for an idle moment, for ``limit_s`` seconds at most. Empty once there was one, else why there was none."""
    ends = time.monotonic() + limit_s
    quiet = 0
    while True:
        try:
            load = await _load(server)
        except ServerBusyError:
            quiet, words = 0, "it is too busy to say what it does"
        else:
            if load is None:
                return CANNOT_TELL
            quiet = 0 if any(load) else quiet + 1
            words = f"others use it ({load[0]} at work, {load[1]} waiting)"
        if quiet >= _QUIET_LOOKS:
            return ""
        if not quiet and time.monotonic() >= ends:
            return f"{words}, and no idle moment came within {limit_s:.3g} s"
        await asyncio.sleep(_POLL_S)


async def _load(server: LlamaServer) -> tuple[int, int] | None:
    """Requests (at work, waiting); None: it does not say. Slots alone can't see who waits. Raises ServerBusyError."""
    try:
        metrics = await server.metrics()
        if metrics.processing is not None:
            return metrics.processing, metrics.deferred or 0
    except ServerBusyError:
        raise
    except ServerError:
        pass  # off, odd, or with a key of its own: the slots are asked instead
    try:
        return sum(slot.processing for slot in await server.slots()), 0
    except ServerBusyError:
        raise
    except ServerError:
        return None
