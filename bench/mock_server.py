"""A server with known times: it answers like llama-server, token by token, by a script instead of a model.

What a client reports can be checked against it, so it must itself be cheap and punctual: one protocol object
per connection, bytes made beforehand, one heap of due writes with one timer, and a record of how late each
write was. Tests give it scripts with every trap; benchmarks run it in a process of its own:

    python bench/mock_server.py --port 0 --first-ms 200 --gap-ms 20

prints ``{"port": ...}`` when it listens, and its own lateness when its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import itertools
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import uvloop

CLOSE = b"close"
"""As a script's bytes: end the connection in order."""
ABORT = b"abort"
"""As a script's bytes: reset the connection."""
STALL = b"stall"
"""As a script's last bytes: say nothing more and leave the connection open."""

Script = Sequence[tuple[float, bytes]]
"""(seconds after the request arrived, bytes to send), ascending; the connection closes after the last one."""

_ASKED = re.compile(rb'"(?:n_predict|max_tokens)": ?(\d+)')
_EARLY_S = 0.0005
"""Timers count milliseconds: what is due within half of one is sent now."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came in."""

    method: str
    path: str
    head: bytes
    body: bytes
    arrived_s: float
    """``time.perf_counter()``, one clock for all processes of a machine."""
    number: int

    @property
    def asked_tokens(self) -> int:
        """Tokens that the body asks for; 64 when it does not say."""
        asked = _ASKED.search(self.body)
        return int(asked[1]) if asked else 64


def http_head(status: str = "200 OK", content_type: str = "text/event-stream", *, length: int | None = None) -> bytes:
    """Return response headers: chunked, or of a known length."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{size}\r\nConnection: close\r\n\r\n".encode()


def document(body: str, *, status: str = "200 OK", content_type: str = "application/json") -> Script:
    """Return the script of a plain answer."""
    return [(0.0, http_head(status, content_type, length=len(body.encode())) + body.encode())]


def chunk(data: bytes) -> bytes:
    """Return one piece of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


END = b"0\r\n\r\n"
"""The end of a chunked body."""


def event(payload: object, *, end: bytes = b"\n\n") -> bytes:
    """Return a server-sent event; a ``str`` goes as it is, anything else as JSON."""
    text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    return b"data: " + text.encode() + end


def token(text: str = " tok", ids: Sequence[int] = (504,), number: int = 1) -> dict[str, object]:
    """Return the event of a token on /completion, as build 11549 writes it."""
    return {
        "index": 0,
        "content": text,
        "tokens": list(ids),
        "stop": False,
        "id_slot": -1,
        "tokens_predicted": number,
        "tokens_evaluated": 30,
    }


def timings(predicted_n: int, *, prompt_n: int = 500, cache_n: int = 0, prompt_ms: float = 198.0) -> dict[str, object]:
    """Return the server's own account of an answer."""
    return {
        "cache_n": cache_n,
        "prompt_n": prompt_n,
        "prompt_ms": prompt_ms,
        "predicted_n": predicted_n,
        "predicted_ms": 20.0 * max(0, predicted_n - 1),
    }


def last(predicted_n: int, *, truncated: bool = False, stop_type: str = "limit") -> dict[str, object]:
    """Return the last event of /completion."""
    return {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": stop_type,
        "truncated": truncated,
        "timings": timings(predicted_n),
    }


def chat(delta: dict[str, object], finish_reason: str | None = None, **more: object) -> dict[str, object]:
    """Return an event of /v1/chat/completions."""
    return {
        "choices": [{"finish_reason": finish_reason, "index": 0, "delta": delta}],
        "created": 1795971218,
        "id": "chatcmpl-mock",
        "model": "mock",
        "object": "chat.completion.chunk",
        **more,
    }


def chat_usage(predicted_n: int) -> dict[str, object]:
    """Return the chat event with usage and timings, which has no choices."""
    usage = {"completion_tokens": predicted_n, "prompt_tokens": 500, "total_tokens": 500 + predicted_n}
    return {"choices": [], "object": "chat.completion.chunk", "usage": usage, "timings": timings(predicted_n)}


@lru_cache(maxsize=64)
def steady(path: str, tokens: int, first_s: float, gap_s: float) -> Script:
    """Return an answer with its first token after ``first_s`` and the others ``gap_s`` apart.

    Headers come at once, a chat's role chunk too: a client that counts it reports a TTFT near zero.
    """
    times = [first_s + number * gap_s for number in range(tokens)]
    if path == "/completion":
        script = [(0.001, http_head())]
        script += [(at, chunk(event(token(number=number)))) for number, at in enumerate(times, start=1)]
        script.append((times[-1], chunk(event(last(tokens))) + END))
        return script
    script = [(0.001, http_head() + chunk(event(chat({"role": "assistant", "content": None}))))]
    script += [(at, chunk(event(chat({"content": " tok"})))) for at in times]
    tail = chunk(event(chat({}, "length")) + event(chat_usage(tokens))) + chunk(event("[DONE]")) + END
    script.append((times[-1], tail))
    return script


@dataclass
class MockServer:
    """Serves ``respond``'s script to every request. ``async with`` it; it listens on a free port."""

    respond: Callable[[Received], Script]
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    """How late each write was."""
    first_s: list[float] = field(default_factory=list)
    """From a request's arrival to the write of its second piece: of :func:`steady`, the first token."""
    in_flight: int = 0

    def __post_init__(self) -> None:
        self._due: list[tuple[float, int, _Connection, Script, int, float]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> MockServer:
        self._loop = asyncio.get_running_loop()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self.refuse()
        for connection in list(self._connections):
            connection.transport.abort()

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await self._loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=4096, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Stop listening: new connections are refused, open ones go on."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    def start(self, connection: _Connection, received: Received) -> None:
        """Begin to answer."""
        self.requests.append(received)
        script = self.respond(received)
        if script:
            self.in_flight += 1
            self._push(connection, script, 0, received.arrived_s)

    def ended(self) -> None:
        """Count an answer that is over."""
        self.in_flight -= 1

    def _push(self, connection: _Connection, script: Script, step: int, base: float) -> None:
        due = base + script[step][0]
        heapq.heappush(self._due, (due, next(self._order), connection, script, step, base))
        if due < self._armed_for:
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = self._due[0][0]
        self._timer = self._loop.call_later(max(0.0, self._armed_for - time.perf_counter()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._armed_for = float("inf")
        clock, due, late = time.perf_counter, self._due, self.late_s
        limit = clock() + _EARLY_S
        while due and due[0][0] <= limit:
            at, _, connection, script, step, base = heapq.heappop(due)
            if connection.closed:
                continue
            now = clock()
            late.append(now - at)
            if step == 1:
                self.first_s.append(now - base)
            connection.send(script[step][1])
            step += 1
            if step < len(script):
                heapq.heappush(due, (base + script[step][0], next(self._order), connection, script, step, base))
            elif script[-1][1] != STALL:
                connection.transport.close()
        if due:
            self._arm()


class _Connection(asyncio.Protocol):
    """One request and its answer."""

    transport: asyncio.Transport

    def __init__(self, server: MockServer) -> None:
        self._server = server
        self._buffer = b""
        self._answering = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's transport is no subclass
        self._server._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._server._connections.discard(self)
        if self._answering:
            self._server.ended()

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or self._answering:
            return
        size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if len(body) < (int(size[1]) if size else 0):
            return
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        server = self._server
        self._answering = True
        server.start(self, Received(method, path, head, body, now, len(server.requests)))

    def send(self, data: bytes) -> None:
        if data == ABORT:
            self.transport.abort()
        elif data == CLOSE:
            self.transport.close()
        elif data != STALL:
            self.transport.write(data)


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Median, p95, p99 and the largest, in milliseconds."""
    ordered = sorted(seconds) or [0.0]
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[int(share * (len(ordered) - 1))] * 1e3, 2) for name, share in shares.items()}


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(description="a server with known times")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first-ms", type=float, default=200.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--tokens", type=int, help="of every answer, whatever the request asks")
    parser.add_argument("--skip", type=int, default=0, help="first requests that the reported rate does not count")
    options = parser.parse_args()
    made = [0]

    def respond(received: Received) -> Script:
        if received.path in ("/completion", "/v1/chat/completions"):
            tokens = options.tokens or received.asked_tokens
            made[0] += tokens
            return steady(received.path, tokens, options.first_ms / 1e3, options.gap_ms / 1e3)
        if received.path == "/metrics":
            lines = f"llamacpp:requests_processing {server.in_flight}\nllamacpp:requests_deferred 0\n"
            return document(f"{lines}llamacpp:tokens_predicted_total {made[0]}\n", content_type="text/plain")
        if received.path == "/v1/models":
            return document(json.dumps({"object": "list", "data": [{"id": "mock", "meta": {"n_vocab": 49152}}]}))
        return document('{"status":"ok"}')

    server = MockServer(respond, port=options.port)

    async def serve() -> None:
        async with server:
            print(json.dumps({"port": server.port}), flush=True)
            cpu = time.process_time()
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            late, first = quantiles_ms(server.late_s), quantiles_ms(server.first_s[options.skip :])
            spent = round(time.process_time() - cpu, 1)
            asked = [one.arrived_s for one in server.requests if one.method == "POST"][options.skip :]
            rate = (len(asked) - 1) / (asked[-1] - asked[0]) if len(asked) > 1 else 0.0
            report = {"late_ms": late, "first_ms": first, "writes": len(server.late_s), "cpu_s": spent}
            report["requests_per_s"] = round(rate, 1)
            print(json.dumps(report))

    gc.disable()  # a pause would look like the client's error
    uvloop.run(serve())


if __name__ == "__main__":
    main()
