"""Messages between the client and its worker processes: pickled values over two pipes, each after its length.

The pipes are private to parent and child, so unpickling trusts nobody else. The end of its input tells a
worker that its parent is gone, however that died; it then ends too, so nothing is ever left behind.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from dataclasses import dataclass
from typing import Any

from slotune.load.target import Target
from slotune.load.trace import Trace

__all__ = ["ShardJob", "pack", "receive"]

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ShardJob:
    """All that a worker needs to know before it starts."""

    target: Target
    trace: Trace
    """This worker's shard."""
    request_timeout_s: float
    vocabulary: int | None
    deadline_s: float | None


def pack(kind: str, value: Any = None) -> bytes:
    """Return a message as it goes over a pipe."""
    body = pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> tuple[str, Any] | None:
    """Return the next (kind, value); None when the other side is gone."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    message: tuple[str, Any] = pickle.loads(body)  # noqa: S301 (a private pipe between parent and child)
    return message
