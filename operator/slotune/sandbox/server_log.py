"""What the log of a trial's server tells, in bounded time and memory: its beginning and its end, where it is long."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from slotune.llama.log_story import LogStory
from slotune.llama.log_stream import LogReader

__all__ = ["read_story", "story_of"]

CHUNK: Final = 1 << 20
MOST_BYTES: Final = 32 << 20
"""Of the beginning, and of the end: a few tenths of a second each. A server at -lv 4 writes a kilobyte or two a
request, so only one that logs for debugging ever writes more."""


def read_story(path: Path, most: int = MOST_BYTES) -> LogStory | None:
    """The story of the server whose log lies at ``path``; None where it has none, or can't be read."""
    reader = LogReader(path.name)
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(0)
            _feed(reader, log, min(size, most))
            if size > most:
                reader.feed(b"\n")
                log.seek(max(most, size - most))
                log.readline()  # the rest of a line that was cut
                _feed(reader, log, most)
    except OSError:
        return None
    return _server(reader.finish())


def story_of(parts: Iterable[str], source: str = "") -> LogStory | None:
    """The same of a log of which some parts were read, in their order."""
    reader = LogReader(source)
    for part in parts:
        reader.feed(part.encode())
        reader.feed(b"\n")
    return _server(reader.finish())


def _feed(reader: LogReader, log: IO[bytes], left: int) -> None:
    while left > 0 and (chunk := log.read(min(CHUNK, left))):
        reader.feed(chunk)
        left -= len(chunk)


def _server(stories: Iterable[LogStory]) -> LogStory | None:
    return next((one for one in reversed(tuple(stories)) if not one.mixed and one.lines), None)
