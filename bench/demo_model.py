"""Where the demo's model is: named in SLOTUNE_DEMO_MODEL, or in the cache where ``make model`` puts it."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def demo_model() -> Path:
    """Its file. Raises SystemExit, with the cure, when it is not there."""
    if named := os.environ.get("SLOTUNE_DEMO_MODEL"):
        return Path(named)
    base = os.environ.get("SLOTUNE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "slotune"
    path = Path(base).expanduser() / "models" / NAME
    if not path.is_file():
        raise SystemExit(f"the demo's model is not at {path}: run `make model`, or name it in SLOTUNE_DEMO_MODEL")
    return path
