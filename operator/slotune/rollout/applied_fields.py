"""What an apply to somebody else's Deployment has to say: all that slotune set there before, and what changes now.

Server-side apply takes a field away when its only owner no longer mentions it. So an apply that named only what changes
would delete the flags of an earlier rollout, or those that were handed over to slotune. What slotune owns is written in
``metadata.managedFields`` by the API server itself, so nothing of it has to be remembered.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from slotune.rollout.field_owners import RESTARTED

__all__ = ["differences", "laid_over", "owned_part"]

JSON = Mapping[str, Any]

_WHOLE_ITEMS: Final = frozenset({"env"})
"""Lists whose items are set as one: a ``value`` beside a ``valueFrom`` is refused."""


def owned_part(found: JSON, manager: str, values: JSON | None = None) -> dict[str, Any]:
    """The fields of ``found`` that ``manager`` owns by apply; with ``values``, as they are in that other object.

    A field that ``values`` lacks is left out, and an item of a list has the fields that it is found by.
    """
    here: JSON = found if values is None else values
    part: dict[str, Any] = {}
    for entry in found["metadata"].get("managedFields") or ():
        is_apply = entry.get("operation", "Apply") == "Apply" and not entry.get("subresource")
        if entry.get("manager") == manager and is_apply:
            part = laid_over(part, _picked(here, entry.get("fieldsV1") or {".": {}}))
    return part


def laid_over(below: JSON, above: JSON) -> dict[str, Any]:
    """``below`` with what ``above`` says; items of lists are told apart by their names. Neither is changed."""
    result: dict[str, Any] = copy.deepcopy(dict(below))
    for name, value in above.items():
        under = result.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            result[name] = laid_over(under, value)
        elif _has_names(under) and _has_names(value):
            result[name] = _items_over(under, value, whole=name in _WHOLE_ITEMS)
        else:
            result[name] = copy.deepcopy(value)
    return result


def differences(now: JSON, wanted: JSON) -> dict[str, Any]:
    """What an apply has to say so that ``now`` has all that ``wanted`` has; the time of a restart stays as it is."""
    result: dict[str, Any] = {}
    for name, value in wanted.items():
        here = now.get(name)
        if here == value or value is None or name == RESTARTED:
            continue
        if isinstance(here, Mapping) and isinstance(value, Mapping):
            if inner := differences(here, value):
                result[name] = inner
        elif _has_names(here) and _has_names(value):
            known = {item["name"]: item for item in here}
            changed = [
                item
                if name in _WHOLE_ITEMS
                else {"name": item["name"], **differences(known.get(item["name"], {}), item)}
                for item in value
                if known.get(item["name"]) != item
            ]
            if changed:
                result[name] = copy.deepcopy(changed)
        else:
            result[name] = copy.deepcopy(value)
    return result


def _has_names(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "name" in one for one in value)


def _items_over(below: list[Any], above: list[Any], *, whole: bool) -> list[Any]:
    items = {item["name"]: item for item in below}
    for item in above:
        under = items.get(item["name"])
        items[item["name"]] = copy.deepcopy(item) if under is None or whole else laid_over(under, item)
    return list(items.values())


def _picked(value: Any, fields: JSON) -> Any:
    """The part of ``value`` that ``fields`` names, in its own order: ``f:`` is a field, ``k:`` an item of a list by its
    keys, ``v:`` one by its value, and no name at all means the whole (sigs.k8s.io/structured-merge-diff)."""
    if not fields:
        return copy.deepcopy(value)
    if isinstance(value, Mapping):
        names = {name[2:]: inner for name, inner in fields.items() if name.startswith("f:")}
        return {name: _picked(item, names[name]) for name, item in value.items() if name in names}
    if not isinstance(value, list):
        return copy.deepcopy(value)
    keyed = [(json.loads(name[2:]), inner) for name, inner in fields.items() if name.startswith("k:")]
    plain = [json.loads(name[2:]) for name in fields if name.startswith("v:")]
    found: dict[str, Any] = {}
    for item in value:
        if item in plain:
            found[json.dumps(item)] = item
        for key, inner in keyed:
            if isinstance(item, Mapping) and all(item.get(name) == said for name, said in key.items()):
                found[json.dumps(key)] = {**key, **_picked(item, inner)}  # of a repeated name, the last one counts
    return list(found.values())
