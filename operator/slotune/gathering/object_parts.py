"""Parts of an object as the API server sends it: one that is left out, or is of another kind, is empty. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Object", "part", "parts"]

Object = Mapping[str, Any]
"""As JSON has it."""


def part(holder: Object, name: str) -> Object:
    """The object under ``name``."""
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}


def parts(holder: Object, name: str) -> Sequence[Object]:
    """The objects of the list under ``name``."""
    found = holder.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
