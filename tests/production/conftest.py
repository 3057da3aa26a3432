"""A real Prometheus that scrapes two pods of llama-server, as its counters would look."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.error import URLError

import pytest

from tests.production.answering import answering, text

START = time.monotonic()
PODS = ("chat-5d4f8c7b96-x7k2p", "chat-5d4f8c7b96-q9w4z")

CONFIG = """\
global: {scrape_interval: 200ms, scrape_timeout: 200ms}
scrape_configs:
- job_name: llama-server
  static_configs:
"""
TARGET = """\
  - targets: ["{target}"]
    labels: {{namespace: shop, pod: {pod}}}
"""


def counters(handler: BaseHTTPRequestHandler) -> None:
    """llama-server's /metrics: 40 tokens/s in each of two slots that are always busy, 0.5 requests waiting."""
    passed = time.monotonic() - START
    lines = {
        "tokens_predicted_total": 80 * passed,
        "tokens_predicted_seconds_total": 2 * passed,
        "prompt_tokens_total": 300 * passed,
        "prompt_seconds_total": 0.2 * passed,
        "requests_processing": 2,
        "requests_deferred": 0.5,
        "predicted_tokens_seconds": 1e6,  # reset by each scrape, so it must not be used
    }
    text("".join(f"llamacpp:{name} {value:.3f}\n" for name, value in lines.items()), kind="text/plain")(handler)


def idle(handler: BaseHTTPRequestHandler) -> None:
    """A server that nobody asks: counters that stand still."""
    text(
        "llamacpp:tokens_predicted_total 500\nllamacpp:tokens_predicted_seconds_total 10\n"
        "llamacpp:requests_processing 0\nllamacpp:requests_deferred 0\n",
        kind="text/plain",
    )(handler)


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, once it has two samples of each pod. Nobody may skip it in CI, where CI is set."""
    program = shutil.which("prometheus")
    if program is None:
        reason = "there is no Prometheus to read from: install it (on Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("prometheus")
    with answering(counters) as busy, answering(idle) as quiet:
        config = CONFIG + "".join(
            TARGET.format(target=address.removeprefix("http://"), pod=pod)
            for address, pod in [*((busy, pod) for pod in PODS), (quiet, "idle-5d4f8c7b96-abcde")]
        )
        (folder / "prometheus.yml").write_text(config)
        port = _free_port()
        process = _start(program, folder, port)
        try:
            _wait(f"http://127.0.0.1:{port}", process, folder)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _start(program: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [
                program,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            env={**os.environ, "GOMAXPROCS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 30
    query = f"{url}/api/v1/query?query=count(rate(llamacpp:tokens_predicted_total%5B5m%5D))"
    while True:
        try:
            with urllib.request.urlopen(query, timeout=2) as answer:
                if b'"3"' in answer.read():
                    return
        except (URLError, OSError):
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"Prometheus did not scrape in time:\n{(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)
