"""Counts in words: one of a thing is not several. The report has its own for what it says beside the rules."""

from __future__ import annotations

__all__ = ["counted", "never_together", "times"]


def counted(amount: float, thing: str) -> str:
    """``1 slot``, ``2 slots``, ``1,200 requests``, ``0.5 cores``."""
    shown = f"{amount:,}" if isinstance(amount, int) else f"{amount:.3g}"
    return f"{shown} {thing}" if shown == "1" else f"{shown} {thing}s"


def times(count: int) -> str:
    """``once``, ``2 times``, ``1,200 times``."""
    return "once" if count == 1 else f"{count:,} times"


def never_together(requests: int) -> str:
    """That no two requests ran at once."""
    return "there was one request alone" if requests == 1 else f"no two of {counted(requests, 'request')} ran at once"
