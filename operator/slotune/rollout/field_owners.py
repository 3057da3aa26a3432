"""Who owns which field of an object, as ``metadata.managedFields`` tells it. Pure.

It tells of changes and of applies, and not of what somebody took away: who deletes a field owns nothing by that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from slotune.api.labels import ROLLOUT_MANAGER

__all__ = [
    "LAST_APPLIED",
    "RESTARTED",
    "all_apply",
    "last_writer",
    "latest",
    "owners",
    "strangers",
    "was_applied_by_clients",
    "written_at",
]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""``kubectl apply`` keeps there what it sent last, and takes away what is in it and no longer in the manifest."""

RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
"""``kubectl rollout restart`` writes it: new pods of the same configuration."""

JSON = Mapping[str, Any]


def owners(managed: Sequence[JSON], path: Sequence[str | JSON]) -> tuple[str, ...]:
    """Managers that own the field itself, sorted."""
    found = {str(entry.get("manager", "")) for entry in managed if _has_field(entry, path)}
    return tuple(sorted(found - {ROLLOUT_MANAGER}))


def strangers(managed: Sequence[JSON]) -> tuple[str, ...]:
    """Managers of fields of the pod template. What the API server fills in belongs to nobody."""
    found = set()
    for entry in managed:
        if entry.get("subresource") != "status" and entry.get("manager") != ROLLOUT_MANAGER:
            fields = ((entry.get("fieldsV1") or {}).get("f:spec") or {}).get("f:template")
            if fields is not None and _fields_of(fields) - {f"f:{RESTARTED}"}:
                found.add(str(entry.get("manager", "")))
    return tuple(sorted(found))


def _fields_of(fields: JSON) -> frozenset[str]:
    """Names of the leaves; a whole that is owned as such (``.``) goes with its parts."""
    if not fields:
        return frozenset({""})
    return frozenset().union(
        *({name} if not inner else _fields_of(inner) for name, inner in fields.items() if name != ".")
    )


def all_apply(managed: Sequence[JSON], path: Sequence[str | JSON]) -> bool:
    """Whether whoever owns the field does so by server-side apply."""
    found = (entry for entry in managed if _has_field(entry, path) and entry.get("manager") != ROLLOUT_MANAGER)
    return all(entry.get("operation") == "Apply" for entry in found)


def was_applied_by_clients(metadata: JSON, container: str) -> bool:
    """Whether the next ``kubectl apply`` on a client takes args for its own, whoever changed them since; also where
    what was written down of the last one cannot be read."""
    written = (metadata.get("annotations") or {}).get(LAST_APPLIED)
    if written is None:
        return False
    try:
        containers = json.loads(written)["spec"]["template"]["spec"]["containers"]
        return any(one.get("name") == container and "args" in one for one in containers)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


def last_writer(managed: Sequence[JSON], path: Sequence[str | JSON]) -> str | None:
    """Who wrote to the field last, slotune's own manager excluded; None: nobody."""
    entries = [entry for entry in managed if _has_field(entry, path) and entry.get("manager") != ROLLOUT_MANAGER]
    # Times have whole seconds: the name makes the order total.
    newest = max(entries, key=lambda entry: (entry.get("time", ""), entry.get("manager", "")), default=None)
    return None if newest is None else str(newest.get("manager", ""))


def written_at(managed: Sequence[JSON], path: Sequence[str | JSON]) -> datetime | None:
    """When anybody last wrote to the field, or to something else with it; None: nothing says when."""
    return latest(entry.get("time") for entry in managed if _has_field(entry, path))


def latest(stamps: Iterable[Any]) -> datetime | None:
    """The latest of times as the API server writes them; None where there is none, or one is missing."""
    times = list(stamps)
    if not times or not all(times):
        return None
    return max(datetime.fromisoformat(str(time)) for time in times)


def _has_field(entry: JSON, path: Sequence[str | JSON]) -> bool:
    """Whether a managedFields entry holds the field at ``path``; a mapping in it is the key of a list's item."""
    if entry.get("subresource") == "status":
        return False
    here: Any = entry.get("fieldsV1") or {}
    for step in path:
        here = here.get(step) if isinstance(step, str) else _item(here, step)
        if here is None:
            return False
    return True


def _item(fields: JSON, key: JSON) -> Any:
    return next((value for name, value in _keyed(fields) if name == key), None)


def _keyed(fields: JSON) -> Iterator[tuple[Any, Any]]:
    for name, value in fields.items():
        if name.startswith("k:"):
            yield json.loads(name[2:]), value
