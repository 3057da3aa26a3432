"""What a manifest says about the server that is diagnosed: what is owed to its users, and what its GPU is and costs."""

from __future__ import annotations

from collections.abc import Sequence

from slotune.api.manifests import Manifests, load_manifests
from slotune.api.v1alpha1 import GPUClass
from slotune.diagnose.accelerators import known_accelerator
from slotune.diagnose.symptoms import GPUFacts
from slotune.tuning.errors import InvalidInputError
from slotune.tuning.reading import promise_of
from slotune.verdict.promise import Promise

__all__ = ["read_manifest"]


def read_manifest(
    files: Sequence[str], name: str | None, gpu_class: str | None
) -> tuple[Promise, GPUFacts | None, tuple[str, ...]]:
    """Return (what is owed, the GPUClass, what was left out in words).

    Raises:
        InvalidManifest: one of the files is wrong.
        InvalidInputError: it has no such GPUClass.
    """
    manifests = load_manifests(files, name)
    return promise_of(manifests), *_declared(manifests, gpu_class)


def _declared(manifests: Manifests, wanted: str | None) -> tuple[GPUFacts | None, tuple[str, ...]]:
    """The GPUClass of the manifest; none, with a note, where nothing says which of several it is."""
    classes = manifests.gpu_classes
    if wanted is not None and wanted not in classes and known_accelerator(wanted) is not None:
        return GPUFacts(wanted), (f"the manifest has no GPUClass {wanted}: what it can do is its data sheet's word",)
    if wanted is not None and wanted not in classes:
        raise InvalidInputError("--gpu-class", wanted, f"the manifest has {', '.join(classes)}: name one of them")
    if wanted is None and len(classes) > 1:
        return None, (f"bandwidth and price are left out: say with --gpu-class which of {', '.join(classes)} it is",)
    return _facts_of(classes[wanted or next(iter(classes))]), ()


def _facts_of(gpu_class: GPUClass) -> GPUFacts:
    spec = gpu_class.spec
    bandwidth = spec.bandwidth_bytes_per_second
    return GPUFacts(
        gpu_class.metadata.name,
        bandwidth_bytes_per_s=None if bandwidth is None else float(bandwidth),
        price_per_hour=float(spec.price),
        currency=spec.currency,
    )
