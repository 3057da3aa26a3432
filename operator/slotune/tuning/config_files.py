"""llama-server's own settings file, where a volume of the pod may hold it.

It is looked for at two places and ranks below variables and arguments, so a setting that nobody states elsewhere comes
from it. What lies in a volume is not read: a file that is surely there is refused, one that may be there is told. One
that the image has is found by the first trial, whose log names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from slotune.api.kubernetes_types import Container, PodTemplate
from slotune.tuning.pod_reading import PodReading
from slotune.tuning.refusal import Refusal, ServerPod

__all__ = ["config_file", "config_file_notes"]

_FILE: Final = PurePosixPath("llama.cpp/config.ini")
_SYSTEM: Final = PurePosixPath("/etc") / _FILE
_USUAL: Final = ".config"
"""Folder for settings in a home that nobody names."""

_OF_KEYS: Final = ("configMap", "secret", "downwardAPI", "projected")
"""Volumes whose files are listed in the pod, or are keys."""


def config_file(pod: ServerPod) -> Iterator[Refusal]:
    """A file that is surely there."""
    if pod.container is None or pod.reading is None:
        return
    for mount, place, is_sure in _mounted(pod.template, pod.container, pod.reading, pod.config_maps):
        if is_sure:
            yield Refusal(
                "ConfigFile", f"{pod.where} volumeMounts {mount}", str(place),
                "holds settings of llama-server that slotune does not read: state them in args, and mount it elsewhere",
            )  # fmt: skip


def config_file_notes(
    template: PodTemplate, container: Container, reading: PodReading, config_maps: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """Sentences about files that may be there."""
    return tuple(
        f"volume {mount} may hold {place}, from which llama-server takes what is stated nowhere else: slotune does not "
        "read it, and a trial that finds it is void."
        for mount, place, is_sure in _mounted(template, container, reading, config_maps)
        if not is_sure
    )


def _mounted(
    template: PodTemplate, container: Container, reading: PodReading, config_maps: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, PurePosixPath, bool]]:
    """(volume, file, whether it is surely there) of each place that a volume covers."""
    volumes = {str(one.get("name")): one for one in _dicts((template.spec.model_extra or {}).get("volumes"))}
    mounts = _dicts((container.model_extra or {}).get("volumeMounts"))
    for place in _places(reading, mounts):
        covering = [mount for mount in mounts if place.is_relative_to(_at(mount))]
        if not covering:
            continue
        mount = max(covering, key=lambda one: len(_at(one).parts))
        rest = place.relative_to(_at(mount))
        name = str(mount.get("name"))
        inside = PurePosixPath(str(mount.get("subPath") or "")) / rest
        sure = _is_there(volumes.get(name, {}), inside, config_maps, is_near=len(rest.parts) <= 1)
        if sure or (sure is None and len(rest.parts) <= len(_FILE.parts)):
            yield name, place, sure is True


def _places(reading: PodReading, mounts: list[dict[str, Any]]) -> list[PurePosixPath]:
    known = reading.environment
    settings, home = known.get("XDG_CONFIG_HOME"), known.get("HOME")
    if settings:
        return [_SYSTEM, PurePosixPath(settings) / _FILE]
    if home:
        return [_SYSTEM, PurePosixPath(home) / _USUAL / _FILE]
    usual = [_at(mount) for mount in mounts if _USUAL in _at(mount).parts]
    folders = [PurePosixPath(*at.parts[: at.parts.index(_USUAL) + 1]) for at in usual]
    return [_SYSTEM, *dict.fromkeys(folder / _FILE for folder in folders)]


def _is_there(
    volume: Mapping[str, Any], inside: PurePosixPath, config_maps: Mapping[str, Mapping[str, str]], *, is_near: bool
) -> bool | None:
    """Whether a volume has a file; None: it may."""
    kind = next((name for name in volume if name != "name"), "emptyDir")
    if kind == "emptyDir":
        return False  # it begins empty, in a trial too
    if kind not in _OF_KEYS:
        return True if is_near else None
    source = volume[kind] if isinstance(volume[kind], dict) else {}
    sources = [part for one in _dicts(source.get("sources")) for part in one.values() if isinstance(part, dict)]
    for one in sources or [source]:
        files = [PurePosixPath(str(item.get("path"))) for item in _dicts(one.get("items"))]
        keys = config_maps.get(str(one.get("name"))) if kind == "configMap" else None
        if not files and keys is not None:
            files = [PurePosixPath(key) for key in keys]
        if inside in files or (not files and len(inside.parts) == 1):
            return True
    return False


def _at(mount: Mapping[str, Any]) -> PurePosixPath:
    return PurePosixPath(str(mount.get("mountPath")))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
