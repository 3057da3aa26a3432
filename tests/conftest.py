"""Fixtures that more than one package needs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The real model that the demo uses. ``make model`` fetches it."""
    if named := os.environ.get("SLOTUNE_DEMO_MODEL"):
        path = Path(named)
    else:
        base = os.environ.get("SLOTUNE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "slotune"
        path = Path(base).expanduser() / "models" / MODEL_FILE
    if not path.is_file():
        pytest.fail(f"the demo's model is not at {path}: run `make model`, or name it in SLOTUNE_DEMO_MODEL")
    return path


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a browser that shows pages without a screen. Nobody may skip it in CI, where CI is set."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    reason = "there is no Chromium, so no page was looked at: install it (on Debian: apt-get install chromium)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
