"""Whoever mistypes a value is told so: the schema, the defaults and the templates name the same values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import slotune
from tests.chart.reading import CHART, CONFIG, schema, values

OPEN = {"global", "affinity.nodeAffinity", "affinity.podAffinity", "affinity.podAntiAffinity"}
"""Values that Kubernetes' API server checks better than a schema could, or that are Helm's."""


def described(node: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value that the schema knows, by its path."""
    for name, child in node.get("properties", {}).items():
        path = f"{at}.{name}".lstrip(".")
        yield path, child
        yield from described(child, path)


def given(node: Any, at: str = "") -> Iterator[str]:
    """Every value that has a default, by its path."""
    for name, child in node.items() if isinstance(node, dict) else ():
        path = f"{at}.{name}".lstrip(".")
        yield path
        yield from given(child, path)


KNOWN = dict(described(schema()))


def test_the_schema_knows_every_default() -> None:
    free = ("resources.requests.", "resources.limits.")
    assert {path for path in given(values()) if not path.startswith(free)} - set(KNOWN) == set()


def test_every_value_has_a_default_and_is_shown_to_the_reader() -> None:
    below = ("affinity.",)
    assert set(KNOWN) - set(given(values())) == {path for path in KNOWN if path.startswith(below) or path == "global"}


def test_no_misspelled_value_gets_through() -> None:
    assert schema()["additionalProperties"] is False
    closed = {
        path
        for path, node in KNOWN.items()
        if node.get("type") == "object" and node.get("additionalProperties") is False
    }
    objects = {path for path, node in KNOWN.items() if node.get("type") == "object"}
    assert objects - closed == OPEN


def test_every_value_is_read_by_a_template() -> None:
    text = "\n".join(path.read_text() for path in (CHART / "templates").iterdir())
    # A part of a value may be read through a name: {{ $policy := .Values.networkPolicy }} … $policy.servers.ports
    read = set(re.findall(r"\.Values\.([A-Za-z.]+)", text)) | {
        f"networkPolicy.{path}" for path in re.findall(r"\$policy\.([A-Za-z.]+)", text)
    }
    whole = {path for path in KNOWN if any(path == name or path.startswith(f"{name}.") for name in read)}
    above = {path for path in KNOWN if any(name.startswith(f"{path}.") for name in read)}
    assert set(KNOWN) - whole - above == {"global"}
    assert {name for name in read if name not in KNOWN} == set()


@pytest.mark.parametrize("path", [path for path, node in KNOWN.items() if node.get("type") == "array"])
def test_every_list_has_a_bound(path: str) -> None:
    assert KNOWN[path].get("maxItems", 0) > 0 or path.endswith((".ports", ".to"))


def test_chart_base_and_program_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    base = yaml.safe_load((CONFIG / "kustomization.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == slotune.__version__
    assert base["labels"][0]["pairs"]["app.kubernetes.io/version"] == slotune.__version__
    assert f"registry.invalid/slotune:{slotune.__version__}" in (CONFIG / "deployment.yaml").read_text()
