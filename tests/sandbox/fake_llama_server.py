"""A llama-server that misbehaves on request: run as a program by the tests of the process sandbox.

    python fake_llama_server.py BEHAVIOUR --alias NAME ...

Behaviours, joined by commas: ``foreign`` (answers as another server), ``loading`` (never ready), ``deaf`` (never
listens), ``stubborn`` (ignores SIGTERM), ``parent`` (has a grandchild in a session of its own), ``crash``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BEHAVIOURS = sys.argv[1].split(",")
ALIAS = sys.argv[sys.argv.index("--alias") + 1] if "--alias" in sys.argv else "none"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if "loading" in BEHAVIOURS:
            self.answer(503, {"error": {"message": "Loading model"}})
        elif self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": "somebody-else" if "foreign" in BEHAVIOURS else ALIAS}]})
        elif self.path == "/die":
            os.abort()
        else:
            self.answer(404, {})

    def answer(self, code: int, body: object) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    Path("facts.json").write_text(json.dumps({"pid": os.getpid(), "environ": dict(os.environ)}))
    if "stubborn" in BEHAVIOURS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "parent" in BEHAVIOURS:
        grandchild = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path("grandchild").write_text(str(grandchild.pid))
    if "crash" in BEHAVIOURS:
        sys.exit("error: invalid argument: --frobnicate")
    if "deaf" in BEHAVIOURS:
        signal.pause()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write("fake: up\n")
    sys.stdout.flush()
    server.serve_forever()


main()
