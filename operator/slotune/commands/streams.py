"""Standard streams that a command can use: open, and able to show every sign in some way.

A shell can start a command with one of them closed (``>&-``). Its number then goes to the next file that is opened,
which whoever writes to the stream would write to, and libuv gives up at once.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Final

__all__ = ["prepare_streams"]

_STANDARD: Final = (0, 1, 2)


def prepare_streams() -> None:
    """Open those that are closed, to nothing; signs that standard output can't encode come out as ``?``."""
    for number in _STANDARD:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, so this one
    # Typed as always there, and None when it was closed at the start.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (stays open to the end)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 (stays open to the end)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115 (stays open to the end)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    if not os.environ.get("COLUMNS", "?").strip("0"):
        del os.environ["COLUMNS"]  # of a terminal whose width nobody knows; with 0 rich prints nothing
