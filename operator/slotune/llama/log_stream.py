"""Reads a server's log of any size, piece by piece, into stories of bounded size: one for each server in it.

A piece is cut at a line end, unwrapped where something wraps its lines, and told apart into starts. The text of a start
is kept for :func:`~slotune.llama.log_lines.parse_log`, the last lines for
:func:`~slotune.llama.failures.classify_failure`; all others are counted by shape and forgotten. What comes out does not
depend on how the stream was cut into chunks.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, IncrementalDecoder, getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from slotune.llama.log_folding import Folding
from slotune.llama.log_pieces import Piece
from slotune.llama.log_server import ServerLog
from slotune.llama.log_story import LogStory
from slotune.llama.log_topics import Shapes, shape_of
from slotune.llama.log_wrapping import Wrapping, without_colours

__all__ = ["LogReader"]

_UTF_16: Final = (BOM_UTF16_LE, BOM_UTF16_BE)
_SPAWNS: Final = b"spawning server instance with name="
_SPAWNS_SHAPE: Final = shape_of(_SPAWNS)
_SPAWNED = re.compile(_SPAWNS + rb"([^\s\"\\]{1,200}) on port (\d{2,5})")
"""What a router says of each of its children."""
_CHILD = re.compile(r"(?:^port |:)(\d{2,5})(?=/|$)")
"""How the name of one has its port."""

_ROUTER: Final = "it is llama-server's router, which loads no model of its own"

BLOCK: Final = 1 << 20
"""Bytes that are looked at together."""
KEPT_OF_LONG_LINES: Final = 8 << 10
"""Bytes of a line that is as long as a block; the rest of it is passed over."""
SAMPLE: Final = 64 << 10
SERVERS: Final = 256
"""Pods whose lines are told apart; those of further ones are passed over."""


class LogReader:
    """Takes the bytes of a log as they come.

    Args:
        source: what a story is called whose lines name no pod: the file.
        block: bytes that are looked at together, for tests.
    """

    def __init__(self, source: str = "", *, block: int = BLOCK) -> None:
        self._source, self._block = source, block
        self._buffer = bytearray()
        self._decoder: IncrementalDecoder | None = None
        self._number = 1
        self._line_ends: bytes | None = None
        """What ends a line; None until a block of it came."""
        self._wrapping, self._shapes = Wrapping(), Shapes()
        self._folding: Folding | None = None
        """None until the first lines are looked at."""
        self._models: dict[str, str] = {}
        """Ports of a router's children, and the model that each has."""
        self._routers: set[str] = set()
        """Names of those that say that they are one."""
        self._servers: dict[str, ServerLog] = {}
        self.size_bytes = 0
        """Bytes that came."""
        self.sample = b""
        """The first of them: what a log of something else is told by."""

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, however many."""
        if not self.size_bytes and chunk[:2] in _UTF_16:
            self._decoder = getincrementaldecoder("utf-16")(errors="replace")
        self.size_bytes += len(chunk)
        if self._decoder is not None:
            chunk = self._decoder.decode(chunk).encode(errors="replace")
        if self._line_ends == b"\r":
            chunk = chunk.replace(b"\r", b"\n")
        if len(self.sample) < SAMPLE:
            self.sample += chunk[: SAMPLE - len(self.sample)]
        buffer = self._buffer
        buffer += chunk
        if self._line_ends is None and len(buffer) >= self._block:
            self._find_line_ends()
        start = 0
        while len(buffer) - start >= self._block:
            end = buffer.rfind(b"\n", start, start + self._block) + 1
            if end:
                with memoryview(buffer) as view:
                    block = bytes(view[start:end])
                self._take(block)
                start = end
            else:
                kept = min(KEPT_OF_LONG_LINES, self._block // 2)
                del buffer[start + kept : start + self._block]
        del buffer[:start]

    def finish(self) -> tuple[LogStory, ...]:
        """The stories, in the order in which the servers first said something; empty: no line is llama-server's."""
        if self._line_ends is None:
            self._find_line_ends()
        if self._buffer:
            whole = self._buffer.rfind(b"\n") + 1
            if whole:
                self._take(bytes(self._buffer[:whole]))
            if (rest := bytes(self._buffer[whole:])).strip(b"\0"):  # half of a line end in UTF-16 is no line
                self._take(rest, whole=False)
            self._buffer.clear()
        if self._folding is not None and self._folding.any:
            self._unwrap(*self._folding.rest())
        names = _short_names(list(self._servers))
        stories = {
            name: server.story(self._with_model(names[name]) or self._source)
            for name, server in self._servers.items()
            if server.ours
        }
        return tuple(self._as_router(name, stories) if name in self._routers else stories[name] for name in stories)

    def _as_router(self, name: str, stories: Mapping[str, LogStory]) -> LogStory:
        """The story of a router, with where those of its children are."""
        story, pod = stories[name], name.partition("/")[0]
        begins = f"{pod}:" if pod else "port "
        children = [stories[one].source for one in stories if one.startswith(begins) and _CHILD.search(one)]
        where = f"a block of its own: {', '.join(children)}" if children else "lines that are not in this log"
        return replace(story, router=f"{_ROUTER}, and each of its children has {where}")

    def _find_line_ends(self) -> None:
        """Of old Macs, and of who copied a terminal, where the first block has no other."""
        first = self._buffer[: self._block]
        self._line_ends = b"\r" if b"\n" not in first and b"\r" in first[:-1] else b"\n"
        if self._line_ends == b"\r":
            self._buffer[:] = self._buffer.replace(b"\r", b"\n")
            self.sample = self.sample.replace(b"\r", b"\n")

    def _take(self, block: bytes, *, whole: bool = True) -> None:
        """Count whole lines, or the last one, which its writer did not end."""
        text = without_colours(block)
        lines = text.split(b"\n")
        if whole:
            del lines[-1]
        numbers: Sequence[int] = range(self._number, self._number + len(lines))
        self._number += len(lines)
        if self._folding is None:
            self._folding = Folding(without_colours(self.sample))
        if self._folding.any:
            lines, numbers = self._folding.join(lines, numbers)
            text = b"\n".join(lines)
        if self._wrapping.look(lines):
            self._name_children(text)
            self._unwrap(lines, numbers, whole)
            return
        shapes = shape_of(text).split(b"\n")[: len(lines)]
        different = set(shapes)
        if any(_SPAWNS_SHAPE in shape for shape in different):  # the whole text would take longer
            self._name_children(text)
        if self._wrapping.has_any(different):
            self._unwrap(lines, numbers, whole)
        else:
            self._give("", Piece(lines, shapes, numbers, None), len(block), whole)

    def _name_children(self, text: bytes) -> None:
        """Learn from what a router says of those that it starts."""
        if _SPAWNS in text:
            for model, port in islice(_SPAWNED.findall(text), SERVERS):
                self._models[port.decode()] = model.decode(errors="replace")

    def _unwrap(self, lines: Sequence[bytes], numbers: Sequence[int], whole: bool = True) -> None:
        for name, part in self._wrapping.unwrap(lines, numbers).items():
            inner = shape_of(b"\n".join(part.lines)).split(b"\n")
            self._give(name, Piece(part.lines, inner, part.numbers, part.stamps), part.size_bytes, whole)

    def _with_model(self, name: str) -> str:
        """The name of a router's child with that of its model."""
        port = _CHILD.search(name)
        model = None if port is None else self._models.get(port[1])
        return name if model is None else f"{name} ({model})"

    def _give(self, name: str, piece: Piece, size_bytes: int, whole: bool) -> None:
        server = self._servers.get(name)
        if server is None:
            if len(self._servers) >= SERVERS:
                return
            server = self._servers[name] = ServerLog(self._shapes)
        server.size_bytes += size_bytes
        if piece.lines:
            server.take(piece, whole=whole)
            if name not in self._routers and not self._shapes.router.isdisjoint(piece.shapes):
                self._routers.add(name)


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """``pod/container`` as ``pod`` where that names one server."""
    pods = [name.partition("/")[0] for name in names]
    return {name: pod if pods.count(pod) == 1 else name for name, pod in zip(names, pods, strict=True)}
