"""Where the weights files of a manifest lie on this machine, and what they say about themselves.

A manifest names paths inside the server's container. On this machine the same file is found below
a folder that the user names, through the pod's own hostPath volumes, or at the very path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from slotune.api.manifests import Manifests
from slotune.llama.file_digest import cache_folder
from slotune.llama.gguf_facts import read_facts
from slotune.llama.model_facts import ModelFacts
from slotune.tuning.errors import InvalidInputError

__all__ = ["facts_of", "locate"]


def locate(manifests: Manifests, models_dir: Path | None) -> dict[str, Path]:
    """The file of each model variant, by name.

    Raises:
        InvalidInputError: a file is not there; the message has every place that was looked at.
    """
    found: dict[str, Path] = {}
    for index, variant in enumerate(manifests.deployment.spec.models):
        places = list(dict.fromkeys(_places(manifests, PurePosixPath(variant.path), models_dir)))
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            looked = ", ".join(str(place) for place in places)
            raise InvalidInputError(
                f"spec.models[{index}].path",
                variant.path,
                f"there is no such file on this machine (looked at {looked}): put it there, or name the folder that "
                "holds it with --models-dir",
            )
        twin = next((name for name, other in found.items() if other.samefile(path)), None)
        if twin is not None:
            raise InvalidInputError(
                f"spec.models[{index}].path",
                variant.path,
                f"is the same file as that of {twin} on this machine ({path}): give each variant its own",
            )
        found[variant.name] = path
    return found


def facts_of(paths: Mapping[str, Path]) -> dict[str, ModelFacts]:
    """Facts of every variant; their identities are kept in the cache folder. Raises UnreadableModelError."""
    kept_in = cache_folder()
    return {name: read_facts(path, cache=kept_in) for name, path in paths.items()}


def _places(manifests: Manifests, path: PurePosixPath, models_dir: Path | None) -> Iterator[Path]:
    if models_dir is not None:
        for start in range(len(path.relative_to(path.anchor).parts)):  # the longest match first
            yield models_dir.joinpath(*path.relative_to(path.anchor).parts[start:])
        return
    for mount_path, host_path in _host_mounts(manifests):
        if path.is_relative_to(mount_path):
            yield Path(host_path) / path.relative_to(mount_path)
    yield manifests.directory / path


def _host_mounts(manifests: Manifests) -> Iterator[tuple[str, str]]:
    """(path in the container, path on the host) of the pod's hostPath volumes."""
    volumes = _dicts((manifests.template.spec.model_extra or {}).get("volumes"))
    hosts = {v.get("name"): (v.get("hostPath") or {}).get("path") for v in volumes}
    for mount in _dicts((manifests.container.model_extra or {}).get("volumeMounts")):
        host = hosts.get(mount.get("name"))
        if isinstance(host, str) and isinstance(mount.get("mountPath"), str):
            yield mount["mountPath"], str(PurePosixPath(host) / str(mount.get("subPath") or ""))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
