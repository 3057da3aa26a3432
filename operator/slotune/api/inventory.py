"""What lies in a pile of documents: slotune's own kinds checked, others kept for when something refers to them.

A GitOps folder holds Services, Kustomizations and other people's ConfigMaps. They are none of our business, so they are
noted and left alone; a document that was meant for slotune and misses it (another version, a misspelled kind) is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from slotune.api.documents import Document, without_lists
from slotune.api.model import Model
from slotune.api.problems import Location, Problem, closest, explain, field_path, owner_of
from slotune.api.v1alpha1 import KINDS
from slotune.api.v1alpha1.meta import API_VERSION, GROUP

__all__ = ["Entry", "Inventory", "check", "problem_at", "take_stock"]

_OWN_KINDS: Final[dict[str, type[Model]]] = {kind.INFO.kind: kind for kind in KINDS}
_Checked = TypeVar("_Checked", bound=Model)
_REFERRED: Final = {("v1", "ConfigMap"), ("v1", "Secret"), ("apps/v1", "Deployment")}


@dataclass(frozen=True, slots=True)
class Entry:
    """A document with what it was found to be."""

    document: Document
    model: Model | None
    """None when it is somebody else's kind, or not valid."""

    @property
    def name(self) -> str:
        """As the document says it; empty when it does not."""
        return str(self._metadata().get("name") or "")

    @property
    def namespace(self) -> str | None:
        """As the document says it; None when that is left to whoever applies it."""
        written = self._metadata().get("namespace")
        return str(written) if written else None

    def _metadata(self) -> dict[str, Any]:
        metadata = self.document.data.get("metadata")
        return metadata if isinstance(metadata, dict) else {}


@dataclass(slots=True)
class Inventory:
    """Everything that was found, by kind."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[Entry]:
        """Entries of a kind, in the order of the files."""
        return self.entries.get(kind, [])

    def named(self, kind: str, name: str, namespace: str | None) -> Entry | None:
        """The entry of that name. A missing namespace, here or there, is any namespace."""
        return next(
            (entry for entry in self.of(kind) if entry.name == name and _same(entry.namespace, namespace)), None
        )


def take_stock(documents: Iterable[Document]) -> Inventory:
    """Sorts documents by kind and checks those of this group."""
    inventory = Inventory()
    for document in without_lists(documents):
        api_version, kind = document.data.get("apiVersion"), document.data.get("kind")
        own = isinstance(api_version, str) and api_version.partition("/")[0] == GROUP
        if own or (api_version is None and kind in _OWN_KINDS):
            _take_own(inventory, document)
        elif (api_version, kind) in _REFERRED:
            _put(inventory, str(kind), Entry(document, None))
        else:
            inventory.notes.append(_note(document))
    return inventory


def check(document: Document, kind: type[_Checked], problems: list[Problem]) -> _Checked | None:
    """The model of a document; its problems are added to ``problems``, and then there is none."""
    try:
        return kind.from_manifest(document.data)
    except ValidationError as error:
        problems += [problem_at(document, place, cure, value) for place, value, cure in explain(error, kind)]
        return None


def problem_at(document: Document, location: Location, cure: str, value: str | None = None) -> Problem:
    """A problem with its file, line and owner."""
    owner = owner_of(document.data)
    return Problem(cure, field_path(location), value, owner, document.file, document.line(location))


def _take_own(inventory: Inventory, document: Document) -> None:
    api_version, kind = document.data.get("apiVersion"), document.data.get("kind")
    if api_version != API_VERSION:
        cure = f"this slotune reads {API_VERSION}: write that, or use the slotune that the file was written for"
        shown = None if api_version is None else str(api_version)
        inventory.problems.append(problem_at(document, ("apiVersion",), cure, shown))
    elif not isinstance(kind, str) or kind not in _OWN_KINDS:
        meant = closest(str(kind), _OWN_KINDS)
        hint = f"did you mean {meant}?" if meant else f"the kinds are {', '.join(sorted(_OWN_KINDS))}"
        shown = str(kind) if isinstance(kind, str) else None
        inventory.problems.append(problem_at(document, ("kind",), f"is no kind of {GROUP}: {hint}", shown))
    else:
        model = check(document, _OWN_KINDS[kind], inventory.problems)
        _put(inventory, kind, Entry(document, model))


def _put(inventory: Inventory, kind: str, entry: Entry) -> None:
    earlier = inventory.named(kind, entry.name, entry.namespace)
    if earlier is not None and earlier.document.data == entry.document.data:
        inventory.notes.append(f"{entry.document.file}:{entry.document.line(())}: the same {kind} again, ignored")
        return
    if earlier is not None and entry.name:
        place = f"{earlier.document.file}:{earlier.document.line(('metadata', 'name'))}"
        cure = f"stands twice, here and at {place}: remove or rename one"
        inventory.problems.append(problem_at(entry.document, ("metadata", "name"), cure, entry.name))
    inventory.entries.setdefault(kind, []).append(entry)


def _note(document: Document) -> str:
    kind, api_version = document.data.get("kind"), document.data.get("apiVersion")
    known = isinstance(kind, str) and isinstance(api_version, str)
    what = f"{owner_of(document.data)} of {api_version}" if known else "a document without apiVersion and kind"
    hint = f" (slotune's own is {API_VERSION})" if kind in _OWN_KINDS else ""
    return f"{document.file}:{document.line(())}: ignored {what}{hint}"


def _same(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other
