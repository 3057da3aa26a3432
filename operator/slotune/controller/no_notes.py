"""kopf's notes about handlers and differences, for an operator that has neither: nothing is noted, nothing compared.

Left to itself kopf copies every object several times for each event, to find out what has changed since its last note.
For a thousand objects that was a third of the operator's time.
"""

from __future__ import annotations

from typing import Any

import kopf

__all__ = ["NoDifferences", "NoProgress"]


class NoDifferences(kopf.DiffBaseStorage):
    """Every object is as it was before. Only handlers of changes would miss something, and there are none."""

    def build(self, **_: Any) -> Any:
        """Nothing of an object is worth comparing."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Nothing was noted."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is noted."""


class NoProgress(kopf.ProgressStorage):
    """No handler is ever under way."""

    def fetch(self, **_: Any) -> Any:
        """Nothing was noted."""
        return None

    def store(self, **_: Any) -> None:
        """Nothing is noted."""

    def purge(self, **_: Any) -> None:
        """Nothing was noted."""

    def touch(self, **_: Any) -> None:
        """Nothing is noted."""

    def clear(self, *, essence: Any) -> Any:
        """As it is: there is nothing of ours in it."""
        return essence
