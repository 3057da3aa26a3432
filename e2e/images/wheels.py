"""The wheels that images are built from, downloaded once for each state of the lock files.

Outside the build, so that pip's configuration on this machine (an index, certificates) stays on this machine.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["wheelhouse"]

_IMAGE_PYTHON = "3.11"
"""Debian bookworm's."""


def wheelhouse(folder: Path, locks: Sequence[Path]) -> Path:
    """A folder below ``folder`` with every wheel that the lock files name.

    Raises:
        subprocess.CalledProcessError: pip could not download one; its message is on stderr.
    """
    key = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:16]
    wheels = folder / f"wheels-{key}"
    if wheels.exists():
        return wheels
    with tempfile.TemporaryDirectory(prefix="wheels-", dir=folder) as scratch:
        # The environment that runs the tests may have no pip.
        subprocess.run([sys.executable, "-m", "venv", f"{scratch}/venv"], check=True)
        command = [f"{scratch}/venv/bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
        command += ["--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", _IMAGE_PYTHON]
        command += ["--require-hashes", "--dest", f"{scratch}/wheels"]
        for lock in locks:
            command += ["--requirement", str(lock)]
        subprocess.run(command, check=True)
        Path(scratch, "wheels").rename(wheels)
    return wheels
