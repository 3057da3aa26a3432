"""What helm and kustomize make of the chart and the base, as objects that can be compared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.node.places import CHECKOUT

__all__ = ["NAMESPACE", "Object", "Refused", "Rendering", "by_name", "comparable", "rules_of"]

NAMESPACE = "slotune-system"

Object = dict[str, Any]

_HELMS_OWN = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_KUBERNETES = "1.34.4"
"""Helm without a cluster takes its own age for the cluster's."""


class Refused(Exception):  # noqa: N818  # it is an answer that tests ask for
    """Helm refused the values; its words are the message."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The two programs that render, neither of which talks to a cluster here."""

    helm: str
    kubectl: str

    def chart(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        capabilities: Sequence[str] = (),
        namespace: str = NAMESPACE,
    ) -> list[Object]:
        """Objects of the chart, its definitions left out unless ``values`` ask for them.

        Raises:
            Refused: the schema or a template does.
        """
        text = self.chart_text(values, capabilities=capabilities, namespace=namespace)
        return [document for document in yaml.safe_load_all(text) if document]

    def chart_text(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        capabilities: Sequence[str] = (),
        namespace: str = NAMESPACE,
    ) -> str:
        """The same as helm prints it."""
        given = {"image": {"repository": "registry.invalid/slotune"}, "crds": {"install": False}, **(values or {})}
        command = [self.helm, "template", "slotune", str(CHECKOUT / "charts" / "slotune"), "--namespace", namespace]
        command += ["--kube-version", _KUBERNETES, "--values", "-"]
        command += [word for name in capabilities for word in ("--api-versions", name)]
        ran = subprocess.run(command, input=yaml.safe_dump(given), capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise Refused(ran.stderr)
        return ran.stdout

    def lint(self, values: Mapping[str, Any]) -> str:
        """What helm says about the chart; its warnings are errors.

        Raises:
            Refused: it found something.
        """
        command = [self.helm, "lint", "--strict", str(CHECKOUT / "charts" / "slotune"), "--values", "-"]
        ran = subprocess.run(command, input=yaml.safe_dump(dict(values)), capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise Refused(ran.stdout + ran.stderr)
        return ran.stdout

    def base(self, folder: Path) -> list[Object]:
        """Objects of a folder with a kustomization."""
        command = [self.kubectl, "kustomize", str(folder)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return [document for document in yaml.safe_load_all(ran.stdout) if document]


def by_name(objects: Sequence[Object]) -> dict[tuple[str, str, str], Object]:
    """Objects by kind, namespace (empty for those without) and name."""
    named = {(it["kind"], it["metadata"].get("namespace", ""), it["metadata"]["name"]): it for it in objects}
    assert len(named) == len(objects), "two objects have one name"
    return named


def comparable(item: Object) -> Object:
    """The object without what only Helm writes."""
    labels = {key: value for key, value in item["metadata"].get("labels", {}).items() if key not in _HELMS_OWN}
    return {**item, "metadata": {**item["metadata"], "labels": labels}}


def rules_of(objects: Sequence[Object], *kinds: str) -> list[dict[str, list[str]]]:
    """Every rule of roles of those kinds that are bound to the operator, in an order of their own."""
    bindings = [it for it in objects if it["kind"].endswith("RoleBinding")]
    bound = {(it["roleRef"]["kind"], it["metadata"].get("namespace", ""), it["roleRef"]["name"]) for it in bindings}
    roles = [it for key, it in by_name(objects).items() if key in bound and it["kind"] in kinds]
    return sorted((rule for role in roles for rule in role["rules"]), key=json.dumps)
