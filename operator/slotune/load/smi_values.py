"""Single values as ``nvidia-smi`` prints them: numbers with units, and what stands there where none is known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

__all__ = ["LOST", "broken", "celsius", "memory", "mib", "number"]

MIB: Final = 2**20
HOTTEST_C: Final = 200.0
SEVERAL: Final = 2
"""Errors among the core values of a device that answers nothing."""

LOST: Final = re.compile(r"GPU is lost|(?:GPU )?requires reset", re.IGNORECASE)
_ERROR: Final = re.compile(r"ERR!|Unknown Error", re.IGNORECASE)
_NUMBER: Final = re.compile(r"\s*(-?\d+(?:\.\d+)?)(?![\w:])|\s*(-?\d+(?:\.\d+)?)\s*(?:C|W|MHz|MiB|%)\b")


def number(value: str | None) -> float | None:
    """The number that ``value`` begins with (``78 W``, ``47C``); None for ``[N/A]``, ``ERR!`` and the like."""
    match = _NUMBER.match(value or "")
    found = math.inf if match is None else float(match[1] or match[2])
    return found if math.isfinite(found) else None


def celsius(value: str | None) -> float | None:
    """None also of what no chip survives, which drivers write for "unknown"."""
    found = number(value)
    return found if found is not None and found <= HOTTEST_C else None


def memory(used: str | None, total: str | None) -> tuple[int | None, int | None]:
    """Bytes (used, in all); of a device that has none in all nothing is known."""
    size = mib(total)
    return (None, None) if size == 0 else (mib(used), size)


def broken(values: Iterable[str | None], core: Iterable[str | None]) -> str | None:
    """What stands for ``values`` of a device that doesn't answer. One ``ERR!`` is a sensor that it may just not have,
    so several of its ``core`` values have to be errors."""
    for value in values:
        if lost := LOST.search(value or ""):
            return lost[0]
    errors = [found[0] for value in core if (found := _ERROR.search(value or ""))]
    return errors[0] if len(errors) >= SEVERAL else None


def mib(value: str | None) -> int | None:
    found = number(value)
    return None if found is None else round(found * MIB)
