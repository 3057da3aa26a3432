"""Times as sentences of findings write them."""

from __future__ import annotations

__all__ = ["seconds"]


def seconds(value: float) -> str:
    """``2.4 s``, ``0.74 s``, ``40 ms``."""
    if value >= 1:
        return f"{value:.1f} s"
    return f"{value:.2f} s" if value >= 0.095 else f"{1000 * value:.0f} ms"
