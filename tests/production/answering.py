"""A function is our server: whatever it writes is the answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """Address of a server on loopback that answers every GET with ``answer``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                answer(self)
            except OSError:
                self.close_connection = True  # whoever asked has gone

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def text(body: str, status: int = 200, kind: str = "text/html", **headers: str) -> Answer:
    """Always this body."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def document(content: Any, status: int = 200) -> Answer:
    """Always this as JSON."""
    return text(json.dumps(content), status, "application/json")


def result(content: Any, kind: str = "vector", **beside: Any) -> Answer:
    """A successful answer of Prometheus."""
    return document({"status": "success", "data": {"resultType": kind, "result": content}, **beside})
