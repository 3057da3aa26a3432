"""Where a manifest has an amount that is none: the API server refuses the whole of it without saying where."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

__all__ = ["bad_quantities"]

_QUANTITY: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
_AMOUNTS: Final = frozenset({"limits", "requests"})
"""Maps of amounts, wherever they stand in a pod."""


def bad_quantities(manifest: dict[str, Any]) -> list[str]:
    """Every such field with its value, such as ``spec.containers[0].resources.limits.cpu is lots``."""
    return [f"{path[1:]} is {value}" for path, value in _amounts(manifest, "") if not _is_quantity(value)]


def _amounts(part: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, list):
        for index, one in enumerate(part):
            yield from _amounts(one, f"{path}[{index}]")
    elif isinstance(part, dict):
        for name, one in part.items():
            if name in _AMOUNTS and isinstance(one, dict):
                yield from ((f"{path}.{name}.{resource}", amount) for resource, amount in one.items())
            elif name == "sizeLimit":
                yield f"{path}.{name}", one
            else:
                yield from _amounts(one, f"{path}.{name}")


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int | float) or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
