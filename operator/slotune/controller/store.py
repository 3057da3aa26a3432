"""What the watches have shown of the cluster so far, so that a reconcile that changes nothing asks nothing.

A cache is always a little behind. Three things make that harmless: every answer to a write goes into the store too, so
the operator reads its own writes; an older version never replaces a newer one, in whatever order they arrive; and what
is gone does not come back with news from before its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slotune.api.labels import CONTEXT_LABEL, DEPLOYMENT_LABEL
from slotune.controller.cluster import Object
from slotune.controller.kinds import DEPLOYMENT, WATCHED, Kind, kind_of

__all__ = ["Key", "Store", "key_of", "labels_of", "trimmed"]

Key = tuple[str, str]
"""Namespace (empty for kinds without one) and name."""

MOST_GONE = 10_000
"""Objects whose end is remembered; a watch that is further behind than that begins anew."""

_INDEXED = (DEPLOYMENT_LABEL, CONTEXT_LABEL)
_BULK = ("managedFields",)
"""Metadata that nothing here reads, and that is larger than all the rest."""


def key_of(manifest: Mapping[str, Any]) -> Key:
    """Namespace and name of an object."""
    metadata = manifest.get("metadata") or {}
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def labels_of(manifest: Mapping[str, Any]) -> Mapping[str, str]:
    """Labels of an object; empty when it has none."""
    return (manifest.get("metadata") or {}).get("labels") or {}


def trimmed(manifest: Object) -> Object:
    """The object without its bulk."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name not in _BULK}
    return {**manifest, "metadata": metadata}


@dataclass(slots=True)
class Store:
    """Objects by kind and key."""

    _objects: dict[str, dict[Key, Object]] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], dict[Key, set[Key]]] = field(default_factory=dict)
    """For each kind and indexed label: keys of objects by namespace and value."""
    hidden: set[str] = field(default_factory=set)
    """Kinds that the operator's role does not let it follow, by name: that nothing is here of them says nothing."""
    _gone: dict[str, None] = field(default_factory=dict)
    """Uids of objects that are gone, the oldest first."""

    def put(self, manifest: Object) -> bool:
        """Remember an object of a kind that is watched. False when it says nothing new."""
        kind, key = kind_of(manifest), key_of(manifest)
        if kind not in WATCHED or manifest["metadata"].get("uid") in self._gone:
            return False
        known = self.of(kind).get(key)
        if known is not None and not _is_newer(manifest, known):
            return False
        self._forget_labels(kind, key, known)
        kept = manifest if kind == DEPLOYMENT else trimmed(manifest)  # who owns a Deployment's fields is told to people
        _share(kept, known)
        self._objects.setdefault(kind.name, {})[key] = kept
        for label in _INDEXED:
            if value := labels_of(manifest).get(label):
                self._by_label.setdefault((kind.name, label), {}).setdefault((key[0], value), set()).add(key)
        return True

    def slim(self, kind: Kind, manifest: Object) -> None:
        """Drop from an object, in place, what nobody reads, and let it share with the known one what is equal in both:
        of a thousand objects a second copy counts."""
        if kind != DEPLOYMENT:
            for name in _BULK:
                manifest["metadata"].pop(name, None)
        _share(manifest, self.get(kind, *key_of(manifest)))

    def remove(self, manifest: Object) -> None:
        """Forget an object that is gone; another one that has its name by now stays."""
        uid = manifest["metadata"].get("uid")
        if uid is not None:
            self._gone[uid] = None
            while len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
        self.forget(manifest)

    def forget(self, manifest: Object) -> None:
        """Remember an object no longer, although it may well be there."""
        kind, key = kind_of(manifest), key_of(manifest)
        known = self.of(kind).get(key)
        if known is None or known["metadata"].get("uid") != manifest["metadata"].get("uid"):
            return
        self._forget_labels(kind, key, known)
        del self._objects[kind.name][key]

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object, or None when none was seen."""
        return self.of(kind).get((namespace or "", name))

    def of(self, kind: Kind) -> Mapping[Key, Object]:
        """Every object of a kind."""
        return self._objects.get(kind.name, {})

    def owned(self, kind: Kind, namespace: str, deployment: str) -> list[Object]:
        """Objects of a kind that carry the label of a LlamaDeployment, by name."""
        return self._labelled(kind, namespace, DEPLOYMENT_LABEL, deployment)

    def of_context(self, kind: Kind, namespace: str, context: str) -> list[Object]:
        """Objects of a kind that carry the label of a search's context, by name."""
        return self._labelled(kind, namespace, CONTEXT_LABEL, context)

    def within(self, kind: Kind, namespace: str) -> Iterator[Object]:
        """Objects of a kind in a namespace."""
        return (manifest for key, manifest in self.of(kind).items() if key[0] == namespace)

    def _labelled(self, kind: Kind, namespace: str, label: str, value: str) -> list[Object]:
        keys = self._by_label.get((kind.name, label), {}).get((namespace, value), ())
        objects = self.of(kind)
        return [objects[key] for key in sorted(keys)]

    def _forget_labels(self, kind: Kind, key: Key, known: Object | None) -> None:
        for label in _INDEXED:
            value = None if known is None else labels_of(known).get(label)
            if value:
                keys = self._by_label[kind.name, label][key[0], value]
                keys.discard(key)
                if not keys:
                    del self._by_label[kind.name, label][key[0], value]


def _share(manifest: Object, known: Object | None) -> None:
    for name, part in manifest.items():
        if known is not None and known.get(name) == part:
            manifest[name] = known[name]


def _is_newer(manifest: Object, known: Object) -> bool:
    """Whether a version follows the known one. Versions of one kind are numbers that grow (KEP-5504); where one is no
    number, or the object was made anew, what came last counts."""
    if manifest["metadata"].get("uid") != known["metadata"].get("uid"):
        return True
    new, old = manifest["metadata"].get("resourceVersion"), known["metadata"].get("resourceVersion")
    try:
        return int(str(new)) > int(str(old))
    except ValueError:
        return bool(new != old)
