"""One finished search for every test that only reads what a search leaves behind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands.manifests import manifest


@dataclass(frozen=True)
class Tuned:
    """What ``slotune tune`` said and left. Nobody changes its folder."""

    models: Path
    file: Path
    out: Path
    done: subprocess.CompletedProcess[str]

    @property
    def command(self) -> list[str]:
        """The command line that made it."""
        return [str(word) for word in self.done.args]


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A search over a tiny model on a real llama.cpp that found an answer."""
    models = tmp_path_factory.mktemp("tuned")
    file, out = manifest(models), models / "out"
    command = [sys.executable, "-m", "slotune.cli", "tune", "-f", str(file)]
    command += ["--models-dir", str(models), "--engine", "embedded", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return Tuned(models, file, out, done)
