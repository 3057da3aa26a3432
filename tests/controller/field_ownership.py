"""Server-side apply as far as an operator leans on it: who owns which field, and what goes when its owner lets go.

Objects are looked at as leaves: a path of names and list keys to a value. Lists of the kinds below are maps by key, as
Kubernetes' schemas say; every other list is one value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

Path = tuple[Any, ...]
Object = dict[str, Any]

KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ownerReferences": "uid",
    "conditions": "type",
}
NOT_OWNED = {
    ("apiVersion",),
    ("kind",),
    *(("metadata", name) for name in ("name", "namespace", "uid", "resourceVersion")),
}


def copied(value: Any) -> Any:
    """A copy of what JSON can say, much quicker than deepcopy."""
    return orjson.loads(orjson.dumps(value)) if isinstance(value, (dict, list)) else value


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf with its path; an empty map is a leaf."""
    key = KEYS.get(str(path[-1])) if path and isinstance(path[-1], str) else None
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif key and isinstance(value, list) and value and all(isinstance(one, dict) and key in one for one in value):
        for one in value:
            yield from leaves(one, (*path, (key, one[key])))
    elif path:
        yield path, copied(value) if isinstance(value, (dict, list)) else value


def owned_paths(manifest: Mapping[str, Any]) -> set[Path]:
    """The fields that whoever sends this comes to own."""
    return {path for path, _ in leaves(manifest) if path not in NOT_OWNED}


def grown(found: Mapping[Path, Any]) -> Object:
    """The object that has these leaves."""
    tree: dict[Any, Any] = {}
    for path, value in found.items():
        here = tree
        for step in path[:-1]:
            inner = here.get(step)
            if not isinstance(inner, dict):
                inner = here[step] = {}
            here = inner
        if not (value == {} and isinstance(here.get(path[-1]), dict)):
            here[path[-1]] = copied(value)
    result = _as_lists(tree)
    assert isinstance(result, dict)
    return result


def _as_lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(step, tuple) for step in node):
        return [_as_lists(inner) for inner in node.values()]
    return {step: _as_lists(inner) for step, inner in node.items()}


def applied(
    live: Object, manifest: Object, owners: dict[str, set[Path]], manager: str, *, force: bool
) -> tuple[Object, dict[str, set[Path]], list[tuple[str, Path]]]:
    """(object, owners, conflicts) after ``manager`` applied ``manifest``; nothing is changed in place."""
    wanted = {path: value for path, value in leaves(manifest) if path not in NOT_OWNED}
    before = dict(leaves(live))
    others = {name: set(paths) for name, paths in owners.items() if name != manager}
    conflicts = [
        (name, path)
        for path, value in wanted.items()
        for name, paths in others.items()
        if path in paths and before.get(path) != value
    ]
    if conflicts and not force:
        return live, owners, conflicts
    for name, path in conflicts:
        others[name].discard(path)
    kept_by_others = set().union(*others.values()) if others else set()
    dropped = owners.get(manager, set()) - set(wanted) - kept_by_others
    kept = {path: value for path, value in before.items() if path not in dropped and path not in wanted}
    return _ordered(grown(wanted | kept), live, manifest), {**others, manager: set(wanted)}, []


def _ordered(value: Any, live: Any, sent: Any, name: str = "") -> Any:
    """Items of lists in the order that structured-merge-diff gives them: what stays keeps its place, what is new comes
    behind, and items that were sent come in the order in which they were."""
    if isinstance(value, dict):
        inner = [one if isinstance(one, dict) else {} for one in (live, sent)]
        return {at: _ordered(item, inner[0].get(at), inner[1].get(at), at) for at, item in value.items()}
    key = KEYS.get(name)
    if key is None or not isinstance(value, list) or not all(isinstance(one, dict) and key in one for one in value):
        return value
    items = {one[key]: one for one in value}
    lefts, rights = ({one[key]: one for one in side or ()} for side in (live, sent))
    order = _merged_order([at for at in lefts if at in items], list(rights))
    return [_ordered(items[at], lefts.get(at), rights.get(at)) for at in order]


def _merged_order(left: list[Any], right: list[Any]) -> list[Any]:
    order: list[Any] = []
    rest = list(left)
    for at in [*right, None]:
        while rest and rest[0] not in right:
            order.append(rest.pop(0))
        if at is not None:
            order.append(at)
            rest = [one for one in rest if one != at]
    return order


UPDATERS = frozenset({"kubectl-client-side-apply", "kubectl-edit", "helm"})
"""Managers that write by PUT and PATCH."""


def managed_fields(owners: Mapping[str, set[Path]], time: str) -> list[Object]:
    """``metadata.managedFields`` as an API server shows it."""
    return [
        {
            "manager": manager,
            "operation": "Update" if manager in UPDATERS else "Apply",
            "time": time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _fields(frozenset(paths)),
        }
        for manager, paths in sorted(owners.items())
        if paths
    ]


@lru_cache(maxsize=256)
def _fields(paths: frozenset[Path]) -> Object:
    """Whoever stores it makes a copy; who owns what changes seldom."""
    tree: Object = {}
    for path in sorted(paths, key=str):
        here = tree
        for step in path:
            name = f"f:{step}" if isinstance(step, str) else "k:" + json.dumps({step[0]: step[1]})
            here = here.setdefault(name, {})
    return tree


def spelled(path: Path) -> str:
    """A path in the words of a conflict."""
    words = ""
    for step in path:
        words += f".{step}" if isinstance(step, str) else f'[{step[0]}="{step[1]}"]'
    return words


def merged(live: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
