"""``slotune engine``: the llama.cpp that would run, and variants of a model file."""

from __future__ import annotations

import sys
from pathlib import Path

from slotune.commands.outcomes import ExitCode
from slotune.llama.engine import find_engine
from slotune.llama.requantize import TARGET_TYPES, ForeignFileError, requantize
from slotune.tuning.errors import InvalidInputError

__all__ = ["describe", "requantize_all"]


def describe(choice: str) -> int:
    """Say which engine ``choice`` means."""
    engine = find_engine(choice)
    where = "inside this Python" if engine.path is None else engine.path
    sys.stdout.write(f"{engine.describe()}, {where}\n")
    return ExitCode.FOUND


def requantize_all(source: Path, types: str, out: Path) -> int:
    """Make each variant that is not there yet, and print where it lies."""
    wanted = [name.strip() for name in types.split(",") if name.strip()]
    for name in wanted or [types]:
        if name not in TARGET_TYPES:
            raise InvalidInputError("--to", name, f"must be one of {', '.join(TARGET_TYPES)}")
    for name in wanted:
        try:
            made = requantize(source, name, out)
        except ForeignFileError as error:
            raise InvalidInputError("--out", out, str(error)) from error
        sys.stdout.write(f"{made}\n")
        sys.stdout.flush()
    return ExitCode.FOUND
