"""A real Prometheus beside the cluster, which scrapes pods as a PodMonitor would have it do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.operator_process import free_port
from e2e.waiting import eventually

__all__ = ["Prometheus", "prometheus"]

START_LIMIT_S = 30.0
_TARGETS = "targets.json"
_CONFIG = f"""\
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: pods
  file_sd_configs: [{{files: [{_TARGETS}], refresh_interval: 1s}}]
"""
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One Prometheus on the loopback."""

    url: str
    _folder: Path
    _process: subprocess.Popen[bytes]

    def scrape(self, address: str, labels: Mapping[str, str]) -> None:
        """From now on, scrape this one target."""
        new = self._folder / "new"
        new.write_text(json.dumps([{"targets": [address], "labels": labels}]))
        new.replace(self._folder / _TARGETS)

    def ask(self, query: str) -> list[float]:
        """The values of an instant query, one for each series; not yet, when nobody answers."""
        try:
            with _DIRECT.open(f"{self.url}/api/v1/query?query={urllib.parse.quote(query)}", timeout=5) as answer:
                found = json.load(answer)["data"]["result"]
        except (urllib.error.URLError, OSError) as error:
            raise AssertionError(f"{self.url}: {error}") from error
        return [float(series["value"][1]) for series in found]

    def stop(self) -> None:
        """End it; a second time does no harm."""
        self._process.kill()
        self._process.wait()


@contextmanager
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """It runs during the block, with nothing to scrape at first. Without the program the test is skipped, which
    nothing is where ``CI`` is set."""
    program = shutil.which("prometheus")
    if program is None:
        reason = "there is no Prometheus to read from: install it (on Debian: apt-get install prometheus)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    (folder / "prometheus.yml").write_text(_CONFIG)
    (folder / _TARGETS).write_text("[]")
    address = f"127.0.0.1:{free_port()}"
    command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={address}"]
    environment = {**os.environ, "GOMAXPROCS": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    running = Prometheus(f"http://{address}", folder, process)
    try:
        eventually(lambda: running.ask("vector(1)") == [1], START_LIMIT_S, f"Prometheus answers; {folder / 'log'}")
        yield running
    finally:
        running.stop()
