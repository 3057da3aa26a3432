"""The log of a server in a pod, read as it comes and never held: its beginning, where it says how it came up, and its
end, where it says what it does now.

A log that is longer than both has a hole in the middle, which is said. The API server cannot tell how long a log is, so
the beginning is read first, and only one that does not end there is asked for its last lines.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from slotune.controller.cluster import ClusterError, ForbiddenError, NotFoundError, RefusedError
from slotune.gathering.cluster_reader import ClusterReader
from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

__all__ = ["HEAD_BYTES", "PodLog", "read_pod_log"]

HEAD_BYTES: Final = 24 << 20
"""Of the beginning. kubelet rotates at 10 MiB unless it is told otherwise, and then this is all that there is."""
TAIL_BYTES: Final = 8 << 20
TAIL_LINES: Final = (20_000, 500)
"""Of the end; the second number where lines are so long that the first would be cut before the end."""
MARK: Final = 4096
"""Bytes of the beginning's end by which its place in the last lines is found, so that nothing counts twice."""

_GONE: Final = b"unable to retrieve container logs for "
"""What kubelet answers, as if it were the log, about an instance that its runtime has removed."""


@dataclass(frozen=True, slots=True)
class PodLog:
    """What a log tells."""

    story: LogStory | None
    """None: there is none, or it may not be read."""
    note: str = ""
    """What of it was not read, in words; empty when everything was."""


async def read_pod_log(
    reader: ClusterReader, namespace: str, pod: str, container: str, *, previous: bool = False, limit_s: float
) -> PodLog:
    """Read what the container wrote.

    Args:
        reader: the cluster.
        namespace: of the pod.
        pod: its name.
        container: the one that is llama-server.
        previous: the instance before the present one.
        limit_s: seconds; what was read by then counts.

    Raises:
        ForbiddenError: the caller may not read logs.
    """
    which = f"the log of pod {pod}" + (" before its restart" if previous else "")
    log, head = LogReader(pod), _Head()
    note = ""
    try:
        async with asyncio.timeout(limit_s):
            parts = reader.log_parts(namespace, pod, container, previous=previous, limit_bytes=HEAD_BYTES)
            async with aclosing(parts):
                async for part in parts:
                    if not head.size and part.startswith(_GONE):
                        return PodLog(None)
                    log.feed(part)
                    head.take(part)
                    await asyncio.sleep(0)  # the time limit, and other pods
            if head.size >= HEAD_BYTES:
                tail = await _tail(reader, namespace, pod, container, previous=previous)
                place = tail.find(head.end)
                log.feed(tail[place + len(head.end) :] if place >= 0 else b"\n" + tail)
                note = "" if place >= 0 else f"of {which} the middle was not read: it is longer than 32 MiB"
    except TimeoutError:
        note = f"of {which} {head.size / 1e6:.0f} MB were read in {limit_s:g} s, and not the rest"
    except (NotFoundError, RefusedError):
        return PodLog(None)
    except ForbiddenError:
        raise
    except ClusterError as error:
        note = f"{which} could not be read to its end: {error.message}"
    stories = log.finish()
    story = max(stories, key=lambda one: one.lines, default=None)
    said = () if story is None else tuple(f"{which}: {text}" for text in story.notes)
    return PodLog(story, "; ".join(filter(None, (note, *said))))


class _Head:
    """How much of a log was read, and its last bytes."""

    def __init__(self) -> None:
        self.size = 0
        self.end = b""

    def take(self, part: bytes) -> None:
        self.size += len(part)
        self.end = (self.end + part)[-MARK:]


async def _tail(reader: ClusterReader, namespace: str, pod: str, container: str, *, previous: bool) -> bytes:
    found = b""
    for lines in TAIL_LINES:
        parts = reader.log_parts(namespace, pod, container, previous=previous, limit_bytes=TAIL_BYTES, tail_lines=lines)
        async with aclosing(parts):
            found = b"".join([part async for part in parts])
        if len(found) < TAIL_BYTES:
            break
    return found
