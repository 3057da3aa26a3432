"""CustomResourceDefinitions from the models, so that a rule is stated once and a cluster and a laptop say the same.

Of all defaults, only ``spec.rollout.mode`` is in the CRD. A default that the API server knows is written into an object
when it is created, and stays; every other one is filled in by whoever reads, and a later slotune may know a better one.
How production may be changed is a permission that was given once, so it must not change with slotune's version (and the
column of ``kubectl get -o wide`` is never empty). Values that slotune chose are reported in ``status.defaults``.
"""

from __future__ import annotations

from typing import Any

from slotune.api.structural import structural_schema
from slotune.api.v1alpha1.meta import CATEGORY, GROUP, VERSION, KindInfo, PrinterColumn, Resource
from slotune.api.yaml_dialect import write_documents

__all__ = ["custom_resource_definition", "file_name", "write_crd"]


def custom_resource_definition(kind: type[Resource]) -> dict[str, Any]:
    """The ``apiextensions.k8s.io/v1`` object of a kind, as plain data ready for YAML."""
    info = kind.INFO
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": info.kind,
                "listKind": f"{info.kind}List",
                "plural": info.plural,
                "singular": info.singular,
                "shortNames": [info.short_name],
                "categories": [CATEGORY],
            },
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(column) for column in info.columns],
                    "schema": {"openAPIV3Schema": _schema(kind, info)},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def file_name(kind: type[Resource]) -> str:
    """Name of the file that holds the kind's CRD."""
    return f"{GROUP}_{kind.INFO.plural}.yaml"


def write_crd(kind: type[Resource]) -> str:
    """The CRD as a YAML document."""
    return write_documents(custom_resource_definition(kind))


def _column(column: PrinterColumn) -> dict[str, Any]:
    written = {"name": column.name, "type": column.type, "jsonPath": column.json_path}
    return written | ({"priority": column.priority} if column.priority else {})


def _schema(kind: type[Resource], info: KindInfo) -> dict[str, Any]:
    """The schema of a whole object. What the type and ``metadata`` may be, the API server knows by itself."""
    schema = structural_schema(kind, frozen=info.frozen, lenient=_of_status)
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"description": properties[name]["description"], "type": "string"}
    properties["metadata"] = {"type": "object"}
    if any(rule.at == "metadata.name" for rule in kind.RULES):  # a rule may only blame a field that is in the schema
        properties["metadata"]["properties"] = {"name": {"type": "string"}}
    return schema


def _of_status(path: str) -> bool:
    """Whether a field is slotune's own part of a status. The shape of conditions is Kubernetes' and does not change."""
    return path.startswith("status") and not path.startswith("status.conditions[]")
