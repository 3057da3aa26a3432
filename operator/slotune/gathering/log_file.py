"""A server's log from a file or a pipe, read as a stream: its size costs time, never memory."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Final, Literal

from slotune.llama.foreign_logs import host_notes, hosts, looks_like
from slotune.llama.log_story import LogStory, Topic
from slotune.llama.log_stream import LogReader
from slotune.tuning.errors import InvalidInputError

__all__ = ["read_log"]

CHUNK: Final = 120_000
"""Bytes at a time: below the 128 KiB from which glibc gives memory back to the kernel and has each page filled anew."""
_GZIP: Final = b"\x1f\x8b"
_GZIP_WRAPPED: Final = zlib.MAX_WBITS | 16

_HOW: Final = "`kubectl logs POD > server.log`, or `llama-server … > server.log 2>&1`: it writes its log to stderr"


def read_log(path: Path | Literal["-"]) -> tuple[LogStory, ...]:
    """The stories of the servers in the log at ``path``; ``-`` is the standard input. gzip is unpacked on the way.

    Raises:
        InvalidInputError: it cannot be read, holds nothing, no line of it is llama-server's, or lines of several
            servers are mixed in it.
    """
    name = "standard input" if path == "-" else str(path)
    reader = LogReader(name)
    with _opened(path) as file:
        for chunk in _chunks(file, name):
            reader.feed(chunk)
    stories = reader.finish()
    host = hosts(reader.sample)
    kind = None if host else looks_like(reader.sample)
    servers = tuple(story for story in stories if _is_server(story, other_program=bool(kind or host)))
    if any(not story.mixed for story in servers):
        alone = host_notes(host) if len(stories) == 1 else ()
        return tuple(replace(story, notes=(*story.notes, *alone)) for story in servers)
    if servers:
        raise InvalidInputError("--log", name, servers[0].notes[0])
    if not reader.sample.strip():
        raise InvalidInputError("--log", name, f"holds nothing: write the server's log into it with {_HOW}")
    seems = ""
    if kind or host:
        seems = f"it looks like {kind or host}: "
    elif any(story.engine_lines for story in stories):
        seems = "llama.cpp loads a model in it, in whatever program: "
    cure = f"no line of it is llama-server's: {seems}name the log of a llama-server, made with {_HOW}"
    raise InvalidInputError("--log", name, cure)


def _is_server(story: LogStory, *, other_program: bool) -> bool:
    """Whether it is llama-server's: it has what only that says, or trouble in words of llama.cpp and of nothing else.

    A server that can't read its arguments, or its model at ``-lv 1``, says nothing that only a server says.
    """
    if story.server_lines:
        return True
    if story.requests is not None and story.facts.slots is not None:
        return True
    if other_program:
        return False
    trouble = story.failure is not None or bool(set(story.seen) - {Topic.LAYERS_OFFLOADED})
    return story.requests is not None or (story.engine_lines > 0 and trouble)


@contextmanager
def _opened(path: Path | Literal["-"]) -> Iterator[IO[bytes]]:
    if path == "-":
        if sys.stdin.isatty():
            raise InvalidInputError(
                "--log", "-", "nothing is piped in: try `kubectl logs POD | slotune diagnose --log -`"
            )
        yield sys.stdin.buffer
        return
    if path.is_dir():
        raise InvalidInputError("--log", path, "is a directory: name the file with the log in it")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InvalidInputError("--log", path, f"is not there: make it with {_HOW}") from None
    except OSError as error:
        raise InvalidInputError("--log", path, f"cannot be opened ({error.strerror}): check its permissions") from None
    with file:
        yield file


def _chunks(file: IO[bytes], name: str) -> Iterator[bytes]:
    try:
        first = file.read(CHUNK)
        if first[:2] == _GZIP:
            yield from _unpacked(first, file)
            return
        while first:
            yield first
            first = file.read(CHUNK)
    except (EOFError, zlib.error):
        raise InvalidInputError(
            "--log", name, "its gzip data is broken or ends early: copy it again, or name an unpacked file"
        ) from None
    except OSError as error:
        raise InvalidInputError("--log", name, f"cannot be read ({error.strerror}): copy it to a local disk") from None


def _unpacked(packed: bytes, file: IO[bytes]) -> Iterator[bytes]:
    """Members one after the other, as ``gzip`` reads them, without going back in ``file``: a pipe cannot."""
    unpacker = zlib.decompressobj(_GZIP_WRAPPED)
    while True:
        text = unpacker.decompress(packed, CHUNK)
        if text:
            yield text
        packed = unpacker.unconsumed_tail
        if unpacker.eof:
            packed = unpacker.unused_data or file.read(CHUNK)
            if not packed.strip(b"\0"):
                return
            unpacker = zlib.decompressobj(_GZIP_WRAPPED)
        elif not packed and len(text) < CHUNK:
            packed = file.read(CHUNK)
            if not packed:
                raise EOFError
