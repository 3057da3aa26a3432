"""The corpus of manifests with a verdict each, as it is sent to an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slotune.api.documents import read_documents
from slotune.api.inventory import take_stock
from slotune.api.problems import Problem, explain, field_path
from slotune.api.v1alpha1 import KINDS, Resource

__all__ = ["CHECKOUT", "data_of", "files", "has_place", "is_slotune_only", "path_of", "problems_of", "refusals"]

CHECKOUT = Path(__file__).resolve().parent.parent
CORPUS = CHECKOUT / "tests" / "api" / "corpus"

_KINDS: dict[str, type[Resource]] = {kind.INFO.kind: kind for kind in KINDS}


def files(folder: str) -> list[Path]:
    """The files of ``good``, ``bad`` or ``unreadable``."""
    found = sorted((CORPUS / folder).glob("*.yaml"))
    assert found, folder
    return found


def is_slotune_only(path: Path) -> bool:
    """Whether a file is marked as bad to slotune alone."""
    return "# slotune only" in path.read_text()


def data_of(path: Path | str) -> dict[str, Any]:
    """The first document of a file; a relative path starts at the corpus."""
    documents, _ = read_documents(str(path), (CORPUS / path).read_bytes())
    return documents[0].data


def problems_of(path: Path) -> list[Problem]:
    """What slotune says of a file."""
    documents, found = read_documents(path.name, path.read_bytes())
    return found + take_stock(documents).problems


def refusals(manifest: dict[str, Any]) -> dict[str, str]:
    """What slotune says of a manifest: cure by field."""
    kind = _KINDS[manifest["kind"]]
    try:
        kind.from_manifest(manifest)
    except ValidationError as error:
        return {field_path(place): cure for place, _, cure in explain(error, kind)}
    return {}


def has_place(path: Path) -> bool:
    """Whether a file is of a kind of ours. kubectl finds no place to send it to otherwise."""
    data = data_of(path)
    return isinstance(data.get("apiVersion"), str) and data.get("kind") in _KINDS


def path_of(data: dict[str, Any], namespace: str = "default") -> str:
    """Where the object of a manifest is, as kubectl finds it from apiVersion, kind and name."""
    info = _KINDS[data["kind"]].INFO
    place = f"namespaces/{namespace}/" if info.namespaced else ""
    name = data.get("metadata", {}).get("name") or "nameless"
    return f"/apis/{data['apiVersion']}/{place}{info.plural}/{name}"
