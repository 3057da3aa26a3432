"""A user's pod template in a form that server-side apply takes.

``kubectl apply`` takes a variable, a port, a pull secret or a host alias twice; server-side apply sees lists by key and
refuses two of one key. Here they become one that means what kubelet makes of the two. Where no single one does, they
stay, and the API server says what it minds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from slotune.controller.cluster import Object

__all__ = ["lost_names", "with_merged_template"]

Items = list[Any]


def with_merged_template(raw: Object) -> Object:
    """A LlamaDeployment whose ``spec.template`` has no item twice; ``raw`` itself where it has none."""
    template = raw["spec"].get("template") if isinstance(raw.get("spec"), dict) else None
    if not isinstance(template, dict) or not isinstance(pod := template.get("spec"), dict):
        return raw
    merged = _merged(pod, _POD)
    for name in ("initContainers", "containers"):
        if isinstance(containers := merged.get(name), list):
            ones = [_merged(one, _CONTAINER) if isinstance(one, dict) else one for one in containers]
            if any(one is not container for one, container in zip(ones, containers, strict=True)):
                merged = {**merged, name: ones}
    return raw if merged is pod else {**raw, "spec": {**raw["spec"], "template": {**template, "spec": merged}}}


def lost_names(raw: Object, merged: Object) -> tuple[str, ...]:
    """Sentences about names of ports that ``merged``, made of ``raw``, has no more."""
    if merged is raw:
        return ()
    before, after = (one["spec"]["template"]["spec"].get("containers") or () for one in (raw, merged))
    return tuple(
        f"container {old.get('name')}: port {port.get('containerPort')} is there twice, and its name {port['name']} is "
        "not kept: server-side apply takes one"
        for old, new in zip(before, after, strict=True)
        if new is not old
        for port in old.get("ports") or ()
        if port.get("name") not in {None, *(one.get("name") for one in new.get("ports") or ())}
    )


def _merged(part: Object, rules: Mapping[str, Callable[[Items], Items]]) -> Object:
    found = {name: rule(items) for name, rule in rules.items() if isinstance(items := part.get(name), list)}
    changed = {name: items for name, items in found.items() if len(items) != len(part[name])}
    return {**part, **changed} if changed else part


def _variables(env: Items) -> Items:
    """The last of a name counts, unless something up to it is made from an earlier one."""
    kept: Items = []
    for index, one in enumerate(env):
        name = _key(one, "name")
        later = [at for at, other in enumerate(env) if at > index and name is not None and _key(other, "name") == name]
        if not later or _uses(env[index + 1 : later[-1] + 1], str(name)):
            kept.append(one)
    return kept if len(kept) == len(env) else _variables(kept)


def _uses(env: Items, name: str) -> bool:
    return any(f"$({name})" in str(one.get("value")) for one in env if isinstance(one, dict))


def _ports(ports: Items) -> Items:
    """Of two with one number that differ in no more than their names the first name stays."""
    return _by_key(ports, lambda one: (_key(one, "containerPort"), one.get("protocol") or "TCP"), _but_for_the_name)


def _pull_secrets(secrets: Items) -> Items:
    return _by_key(secrets, lambda one: _key(one, "name"), lambda first, _: first)


def _host_aliases(aliases: Items) -> Items:
    return _by_key(aliases, lambda one: _key(one, "ip"), _all_names)


def _by_key(items: Items, key_of: Callable[[Object], Any], join: Callable[[Object, Object], Object | None]) -> Items:
    """Each key once, where it first stood; ``items`` themselves where two can't be joined."""
    found: dict[Any, Object] = {}
    for one in items:
        if not isinstance(one, dict):
            return items
        key = key_of(one)
        joined = join(found[key], one) if key in found else one
        if joined is None:
            return items
        found[key] = joined
    return list(found.values())


def _but_for_the_name(first: Object, second: Object) -> Object | None:
    rest = [
        {"protocol": "TCP"} | {name: value for name, value in one.items() if name != "name"} for one in (first, second)
    ]
    return {**second, **first} if rest[0] == rest[1] else None


def _all_names(first: Object, second: Object) -> Object:
    names = dict.fromkeys([*(first.get("hostnames") or ()), *(second.get("hostnames") or ())])
    return {**first, "hostnames": list(names)}


def _key(one: Any, name: str) -> Any:
    found = one.get(name) if isinstance(one, dict) else None
    return found if isinstance(found, str | int) else None


_CONTAINER: Final[Mapping[str, Callable[[Items], Items]]] = {"env": _variables, "ports": _ports}
_POD: Final[Mapping[str, Callable[[Items], Items]]] = {
    "imagePullSecrets": _pull_secrets,
    "hostAliases": _host_aliases,
}
