"""Times as sentences of findings write them."""

from __future__ import annotations

__all__ = ["seconds"]


def seconds(value: float) -> str:
    """``2.4 s``, ``0.74 s``, ``40 ms``, ``30 µs``."""
    if value >= 1:
        return f"{value:.1f} s"
    if value >= 0.095:
        return f"{value:.2f} s"
    return f"{1000 * value:.0f} ms" if value >= 0.0005 or value <= 0 else f"{1e6 * value:.3g} µs"
