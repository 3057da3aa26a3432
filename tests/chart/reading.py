"""The chart and the Kustomize base as data. Rules of roles are plain YAML in the chart too, between two directives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHART", "CONFIG", "ROOT", "chart_rules", "documents", "one", "rights", "schema", "values"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "slotune"
CONFIG = ROOT / "config"

Rule = Mapping[str, Any]


def values() -> dict[str, Any]:
    """Defaults of the chart."""
    loaded: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


def schema() -> dict[str, Any]:
    """What the chart takes."""
    loaded: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return loaded


def documents(path: Path) -> list[dict[str, Any]]:
    """Objects of a manifest."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def one(path: Path, kind: str, name: str) -> dict[str, Any]:
    """The object of that kind and name."""
    return next(it for it in documents(path) if it["kind"] == kind and it["metadata"]["name"] == name)


def chart_rules(name: str) -> list[Rule]:
    """Rules of ``slotune.rules.NAME``. Directives inside become strings, which say that they were there."""
    text = (CHART / "templates" / "_rules.tpl").read_text()
    block = re.search(rf'define "slotune\.rules\.{name}" -\}}\}}\n(.*?)\{{\{{- end \}}\}}', text, re.DOTALL)
    assert block is not None, f"there are no rules called {name}"
    loaded: list[Rule] = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "[FROM-VALUES]", block[1]))
    return loaded


def rights(rules: list[Rule]) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb of everything that rules allow."""
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])
