"""Quantiles of any number of figures in bounded room: they are counted in steps of one percent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from math import ceil, exp, inf, log
from operator import mul
from typing import Final

__all__ = ["Quantiles"]

_PER_STEP: Final = 100
"""Steps for each factor of e."""


class Quantiles:
    """Counts positive numbers by their logarithm.

    A figure that is alone in its step is given back as it was, the others as the middle of theirs: within half a
    percent, and never outside of what was counted.
    """

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._last: dict[int, float] = {}
        self._least, self._most = inf, 0.0

    def add(self, values: Iterable[float]) -> None:
        """Count them, many at once for speed; what is not positive and finite is passed over."""
        counted = [value for value in values if 0 < value < inf]
        if not counted:
            return
        keys = list(map(round, map(mul, map(log, counted), repeat(_PER_STEP))))
        self._counts.update(keys)
        self._last.update(zip(keys, counted, strict=True))
        self._least, self._most = min(self._least, *counted), max(self._most, *counted)

    def spread(self) -> tuple[tuple[float, int], ...]:
        """(Value within half a percent, how often it was counted), smallest first."""
        return tuple((self._value(key), self._counts[key]) for key in sorted(self._counts))

    def at(self, shares: Iterable[float]) -> tuple[float, ...] | None:
        """The values below which these shares lie, within half a percent; None when nothing was counted."""
        if not self._counts:
            return None
        keys, total = sorted(self._counts), sum(self._counts.values())
        found = []
        for share in shares:
            rank, below = max(1, ceil(share * total)), 0
            for key in keys:
                below += self._counts[key]
                if below >= rank:
                    found.append(self._value(key))
                    break
        return tuple(found)

    def _value(self, key: int) -> float:
        if self._counts[key] == 1:
            return self._last[key]
        return min(max(exp(key / _PER_STEP), self._least), self._most)
