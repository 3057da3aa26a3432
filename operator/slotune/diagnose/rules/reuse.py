"""A shared prefix should be computed once: what shows that it was computed again, and what keeping it costs."""

from __future__ import annotations

from typing import Final

from slotune.diagnose.checkup import Rule
from slotune.diagnose.rules.reuse_causes import ENTRIES

__all__ = ["ENTRIES", "RULES"]

RULES: Final[tuple[Rule, ...]] = ()
