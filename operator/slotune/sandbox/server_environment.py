"""The environment that llama-server gets in a trial: the user's own, without flags and without secrets.

Every flag stands in the trial's arguments, so its variable would be a second opinion; an API key would lock the load
client out. What comes from a Secret is given only where ``sandbox.secretEnv`` names it. Variables that are no flag
stay, for ``CUDA_...`` and ``GGML_...`` change what is measured. So does a ``LLAMA_ARG_...`` that slotune does not know:
the image's build may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from slotune.api.env_words import env_words
from slotune.llama.flag_table import BY_ENV, ENV_PREFIX
from slotune.llama.variable_reading import is_flag_variable

__all__ = ["launch_words", "server_environment"]

Object = dict[str, Any]

_LEFT_OUT_PREFIXES: Final = ("LLAMA_LOG_", "LLAMA_API_KEY", "LLAMA_OFFLINE", "LLAMA_CACHE", "AIP_")
"""AIP_...: llama-server then listens elsewhere. What is left of its variables is HF_TOKEN, a secret."""


def server_environment(
    container: Mapping[str, Any],
    secret_env: Sequence[str] = (),
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Object]:
    """Entries for ``env``, in the order in which kubelet defines them.

    Args:
        container: llama-server's, as JSON has it.
        secret_env: names of variables that may come from a Secret.
        config_maps: data of the ConfigMaps of the namespace that ``envFrom`` names. Their keys are written out one by
            one, because flags among them must not come along.
    """
    entries = [
        *_from_config_maps(container, config_maps or {}),
        *_from_secrets(container, secret_env),
        *(dict(entry) for entry in _dicts(container.get("env"))),
    ]
    return [entry for entry in entries if _may_be_seen(entry, secret_env)]


def launch_words(words: Sequence[str]) -> list[str]:
    """The words before a program as a trial has them: ``env`` sets no flag and no key in them either."""
    flags = {place for place, name in env_words(words).assigned if _is_flag(name)}
    return [word for place, word in enumerate(words) if place not in flags]


def _is_flag(name: str) -> bool:
    return name.startswith(_LEFT_OUT_PREFIXES) or (name.startswith(ENV_PREFIX) and is_flag_variable(name))


def _may_be_seen(entry: Mapping[str, Any], secret_env: Sequence[str]) -> bool:
    name = str(entry.get("name"))
    # HF_TOKEN is the variable of a flag, and a secret that a person may give.
    if _is_flag(name):
        return False
    source = entry.get("valueFrom")
    secret = name in BY_ENV or (isinstance(source, dict) and "secretKeyRef" in source)
    return not secret or name in secret_env


def _from_config_maps(container: Mapping[str, Any], data: Mapping[str, Mapping[str, str]]) -> list[Object]:
    entries = []
    for source in _dicts(container.get("envFrom")):
        reference = source.get("configMapRef")
        if isinstance(reference, dict):
            name, prefix = str(reference.get("name")), str(source.get("prefix") or "")
            for key in data.get(name, {}):
                place = {"name": name, "key": key, "optional": True}
                entries.append({"name": prefix + key, "valueFrom": {"configMapKeyRef": place}})
    return entries


def _from_secrets(container: Mapping[str, Any], secret_env: Sequence[str]) -> list[Object]:
    """Each named variable out of the last Secret that may have it; which keys a Secret has is not looked up."""
    stated = {str(entry.get("name")) for entry in _dicts(container.get("env"))}
    sources: dict[str, Object] = {}
    for source in _dicts(container.get("envFrom")):
        reference = source.get("secretRef")
        prefix = str(source.get("prefix") or "")
        if isinstance(reference, dict):
            for name in secret_env:
                if name.startswith(prefix) and name not in stated:
                    sources[name] = {"name": reference.get("name"), "key": name.removeprefix(prefix), "optional": True}
    return [{"name": name, "valueFrom": {"secretKeyRef": place}} for name, place in sources.items()]


def _dicts(value: Any) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
