"""Which GPUs with which drivers a search may run on, as the labels of the nodes name them. Pure.

The labels are those of NVIDIA's GPU feature discovery and of AMD's labeller; nodes without them say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from slotune.api.v1alpha1 import GPUClass

__all__ = ["MOST", "devices_of"]

MOST: Final = 16
"""Bound of ``status.progress.question.devices``."""

_PRODUCTS: Final = ("nvidia.com/gpu.product", "amd.com/gpu.product-name")
_DRIVERS: Final = ("nvidia.com/cuda.driver-version.full", "amd.com/gpu.driver-version")
_DRIVER_PARTS: Final = ("nvidia.com/cuda.driver.major", "nvidia.com/cuda.driver.minor", "nvidia.com/cuda.driver.rev")
"""What older versions of the feature discovery say instead."""


def devices_of(classes: Iterable[GPUClass], nodes: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """``NVIDIA-L4 580.65.06`` for each kind of GPU that the nodes of these classes have, sorted."""
    selectors = [one.spec.node_selector for one in classes if one.spec.resource_name is not None]
    found = set()
    for node in nodes:
        labels = (node.get("metadata") or {}).get("labels") or {}
        if any(all(labels.get(name) == value for name, value in selector.items()) for selector in selectors):
            found.add(_device(labels))
    return tuple(sorted(found - {""}))[:MOST]


def _device(labels: Mapping[str, str]) -> str:
    """Product and driver; empty where the driver is not known, since the product alone is in the class."""
    product = next((labels[name] for name in _PRODUCTS if labels.get(name)), "")
    parts = [labels[name] for name in _DRIVER_PARTS if labels.get(name)]
    driver = next((labels[name] for name in _DRIVERS if labels.get(name)), ".".join(parts))
    return f"{product} {driver}".strip() if driver else ""
