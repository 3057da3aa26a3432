"""Bytes to server-sent events, without decoding: a stream is split wherever the network happened to cut it.

Not a general client: no reconnection, no ids. Written by hand because a token stream needs few rules and
all of them: comments (llama-server's pings), CRLF, several ``data`` lines, an event cut anywhere, the
``error`` field that older llama-servers write, and many events in one read. The common read, one whole
``data`` line, takes a path without copies of its own.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

__all__ = ["MAX_EVENT_BYTES", "EventSplitter", "EventTooLongError"]

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""An event that is longer is no token stream: memory stays bounded whatever a server sends."""

_BOM = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """A server sent more than ``MAX_EVENT_BYTES`` without ending an event."""


class EventSplitter:
    """Turns reads into (name, data) pairs. The name is empty for plain messages, ``error`` for errors."""

    __slots__ = ("_data", "_fresh", "_name", "_skip_newline", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._data: list[bytes] = []
        self._name = b""
        self._skip_newline = False
        self._fresh = True

    def feed(self, read: bytes) -> list[tuple[bytes, bytes]]:
        """Return the events that ``read`` completes, in order.

        Raises:
            EventTooLongError: when an event grows past ``MAX_EVENT_BYTES``.
        """
        if (
            not self._tail
            and not self._data
            and not self._name
            and read[:6] == b"data: "
            and read.find(b"\n") == len(read) - 2
            and read[-1:] == b"\n"
            and b"\r" not in read
        ):
            self._fresh = self._skip_newline = False
            return [(b"", read[6:-2])]
        return self._feed_lines(read)

    def end(self) -> list[tuple[bytes, bytes]]:
        """Return the event that a stream left without its closing blank line, if there is one."""
        events: list[tuple[bytes, bytes]] = []
        if self._tail:
            self._line(self._tail, events)
            self._tail = b""
        self._line(b"", events)
        return events

    def _feed_lines(self, read: bytes) -> list[tuple[bytes, bytes]]:
        if self._skip_newline and read:
            # The last read ended in CR, which ended its line at once; this LF is its second half.
            read = read.removeprefix(b"\n")
            self._skip_newline = False
        buffer = self._tail + read
        if self._fresh and len(buffer) >= len(_BOM):
            buffer = buffer.removeprefix(_BOM)
            self._fresh = False
        if b"\r" in buffer:
            self._skip_newline = buffer.endswith(b"\r")
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = buffer.split(b"\n")
        self._tail = lines.pop()
        events: list[tuple[bytes, bytes]] = []
        for line in lines:
            self._line(line, events)
        if len(self._tail) + sum(map(len, self._data)) > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event of the stream is longer than {MAX_EVENT_BYTES} bytes")
        return events

    def _line(self, line: bytes, events: list[tuple[bytes, bytes]]) -> None:
        if not line:
            if self._data:
                events.append((self._name, b"\n".join(self._data)))
            self._data = []
            self._name = b""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        elif field == b"error":  # llama-server before 2025 wrote "error: {...}" instead of a data line
            self._name = b"error"
            self._data.append(value)
        # An empty field is a comment (":" pings); id, retry and unknown fields mean nothing here.
