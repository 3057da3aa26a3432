"""Where the node's things are: what is worth keeping in the cache folder, the rest in a temporary one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CHECKOUT", "cache_folder", "node_folder", "node_name"]

CHECKOUT = Path(__file__).resolve().parents[2]
"""The top of the repository."""


def cache_folder() -> Path:
    """``$SLOTUNE_CACHE``, else ``$XDG_CACHE_HOME/slotune``, else ``~/.cache/slotune``."""
    base = os.environ.get("SLOTUNE_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "slotune"
    return Path(base).expanduser().absolute()


def node_folder() -> Path:
    """Programs that were built once, and the records of nodes that are up. Made when it is missing."""
    folder = cache_folder() / "node"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def node_name() -> str:
    """``$E2E_NODE``, else ``e2e``. Another name is another node, so that several can be up on one machine."""
    return os.environ.get("E2E_NODE") or "e2e"
