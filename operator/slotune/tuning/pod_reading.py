"""The command line and the variables that a container's process gets, and where in the manifest each of them stands.

The rules are kubelet's. Variables: all of ``envFrom`` first, a later source over an earlier one, then ``env`` in its
order; the last of a name wins. ``$(NAME)`` is replaced in ``env`` by what was defined before it and in ``command`` and
``args`` by what is defined at all; ``$$(NAME)`` is an escaped ``$(NAME)``, and an unknown name stays as it is written.
After kubelet comes ``env``, where it stands before the program: it unsets and sets variables last.

A value of a Secret is never read. Text here keeps the form in which it can be written back into ``args``: escapes stay
escaped, and a reference whose value is not known stays a reference.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Literal

from slotune.api.env_words import EnvWords, env_words
from slotune.api.kubernetes_types import Container, EnvVar, PodTemplate
from slotune.api.quantities import QuantityError, parse_quantity
from slotune.api.server_container import program_at, tool_words

__all__ = ["REFERENCE", "Origin", "PodReading", "Variable", "Word", "escaped", "expanded", "read_pod", "references_in"]

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
"""A variable in a container's arguments."""

_LABEL = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_ESCAPABLE = re.compile(r"\$(?=[$(]|\Z)")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something is written."""

    place: Literal["command", "args", "env", "ConfigMap", "Secret", "pod"]
    """``env`` is a value in the container itself, ``pod`` is what only a running pod knows."""
    index: int | None = None
    """Of the word in ``command`` or ``args``."""
    variable: str | None = None
    source: str | None = None
    """Name of the ConfigMap or Secret."""
    key: str | None = None
    """Its key; None for a whole Secret."""

    def __str__(self) -> str:
        if self.place in {"command", "args"}:
            return self.place
        behind = "" if self.key is None else f", key {self.key}"
        source = "" if self.source is None else f" ({self.place} {self.source}{behind})"
        return f"env {self.variable}{source}"


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable."""

    name: str
    value: str | None = field(repr=False)
    """In the form of ``args``; None when it is not known."""
    origin: Origin
    unknown: str = ""
    """Why the value is not known, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the command line."""

    text: str = field(repr=False)
    """With every reference replaced whose value is known."""
    written: str = field(repr=False)
    origin: Origin


@dataclass(frozen=True, slots=True)
class PodReading:
    """What llama-server's process gets."""

    words: tuple[Word, ...]
    """Behind the program's name: its flags."""
    launch: tuple[Word, ...]
    """Up to the program's name: supervisors, the program itself, or nothing when it is the image's entry point."""
    variables: Mapping[str, Variable]
    uses: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How often the command line and other variables refer to each variable."""
    missing: tuple[str, ...] = ()
    """ConfigMaps that all of the variables are taken from and that are not there: no such pod starts."""
    notes: tuple[str, ...] = ()
    directory: str | None = None
    """Where the process starts; None: where its image says."""

    def path(self, text: str) -> PurePosixPath:
        """A path as the process takes it."""
        return PurePosixPath(posixpath.normpath(posixpath.join(self.directory or "", text)))

    @property
    def arguments(self) -> list[str]:
        """The flags as words."""
        return [word.text for word in self.words]

    @property
    def environment(self) -> dict[str, str]:
        """The variables whose values are known."""
        return {name: variable.value for name, variable in self.variables.items() if variable.value is not None}

    def why_unknown(self, text: str) -> str:
        """Why a value that still has references is not known, as the end of a sentence."""
        names = references_in(text)
        reasons = [self.variables[name].unknown for name in names if name in self.variables]
        return next(filter(None, reasons), f"there is no variable {', '.join(names)}")


def read_pod(template: PodTemplate, container: Container, config_maps: Mapping[str, Mapping[str, str]]) -> PodReading:
    """Read the container that is llama-server.

    Args:
        template: the pod, for labels and annotations that a variable may take.
        container: one of it.
        config_maps: text by key, by name; those that the container refers to and that exist.
    """
    sources = _dicts((container.model_extra or {}).get("envFrom"))
    variables: dict[str, Variable] = {}
    for variable in _all_variables(template, container, config_maps, variables):
        variables[variable.name] = variable
    command = [_word(text, Origin("command", index), variables) for index, text in enumerate(container.command or ())]
    args = [_word(text, Origin("args", index), variables) for index, text in enumerate(container.args or ())]
    here = program_at(container)
    start = here + 1 if here is not None else min(len(command), 1) + tool_words(container)
    words = [*command, *args]
    written = [word.written for word in words] + [entry.value or "" for entry in container.env or ()]
    said = env_words([word.text for word in words[:start]])
    working = _path(container.model_extra, "workingDir")
    return PodReading(
        tuple(words[start:]),
        tuple(words[:start]),
        _with_env_words(variables, words, said),
        Counter(name for text in written for name in references_in(text)),
        tuple(_missing(sources, config_maps)),
        _notes(sources),
        working if said.directory is None else posixpath.join(working or "", said.directory),
    )


def _with_env_words(variables: Mapping[str, Variable], words: Sequence[Word], said: EnvWords) -> dict[str, Variable]:
    kept = {} if said.clears else {name: one for name, one in variables.items() if name not in said.unset}
    for place, name in said.assigned:
        word = words[place]
        origin = replace(word.origin, variable=name)
        text = word.text.partition("=")[2]
        unknown = next((variables[one].unknown for one in references_in(text) if one in variables), "")
        kept[name] = Variable(name, None if unknown else text, origin, unknown)
    return kept


def expanded(text: str, variables: Mapping[str, Variable]) -> str:
    """``text`` with every known reference replaced; escapes and unknown names stay as they are written."""
    parts = []
    for part, name in _parts(text):
        variable = variables.get(name) if name is not None else None
        parts.append(part if variable is None or variable.value is None else variable.value)
    return "".join(parts)


def references_in(text: str) -> tuple[str, ...]:
    """Names of the variables that ``text`` refers to; an escaped one is none."""
    return tuple(name for _, name in _parts(text) if name is not None)


def escaped(text: str) -> str:
    """A plain value in the form of ``args``."""
    return _ESCAPABLE.sub("$$", text)


def _parts(text: str) -> Iterator[tuple[str, str | None]]:
    """``text`` in pieces, with the name where a piece is a reference. A dollar sign takes the next one with it."""
    start = place = 0
    while (place := text.find("$", place)) >= 0:
        end = text.find(")", place)
        if text.startswith("$(", place) and end > 0:
            yield text[start:place], None
            yield text[place : end + 1], text[place + 2 : end]
            start = place = end + 1
        else:
            place += 2
    yield text[start:], None


def _word(text: str, origin: Origin, variables: Mapping[str, Variable]) -> Word:
    return Word(expanded(text, variables), text, origin)


def _all_variables(
    template: PodTemplate,
    container: Container,
    config_maps: Mapping[str, Mapping[str, str]],
    defined: Mapping[str, Variable],
) -> Iterator[Variable]:
    """In kubelet's order. ``defined`` grows while this goes on."""
    for whole in _dicts((container.model_extra or {}).get("envFrom")):
        name, prefix = _named(whole, "configMapRef"), str(whole.get("prefix") or "")
        for key, text in config_maps.get(name or "", {}).items():
            origin = Origin("ConfigMap", variable=prefix + key, source=name, key=key)
            yield Variable(prefix + key, escaped(text), origin)
    for entry in container.env or ():
        source = (entry.model_extra or {}).get("valueFrom")
        if not isinstance(source, dict):
            text = expanded(entry.value or "", defined)
            yield Variable(entry.name, text, Origin("env", variable=entry.name))
        else:
            yield from _from_elsewhere(template, container, entry, source, config_maps)


def _missing(sources: list[dict[str, Any]], config_maps: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for source in sources:
        name = _named(source, "configMapRef")
        if name is not None and name not in config_maps and not source["configMapRef"].get("optional"):
            yield name


def _notes(sources: list[dict[str, Any]]) -> tuple[str, ...]:
    """A Secret's keys are not read either, so a flag in one is not seen."""
    secrets = [name for source in sources if (name := _named(source, "secretRef")) is not None]
    return tuple(
        f"envFrom Secret {name} is not read: a flag of llama-server that it holds is neither seen nor tuned."
        for name in secrets
    )


def _named(source: Mapping[str, Any], kind: str) -> str | None:
    return _path(source.get(kind), "name")


def _from_elsewhere(
    template: PodTemplate,
    container: Container,
    entry: EnvVar,
    source: Mapping[str, Any],
    config_maps: Mapping[str, Mapping[str, str]],
) -> Iterator[Variable]:
    """A variable with ``valueFrom``. What is optional and not there is no variable at all."""
    config_map, secret = source.get("configMapKeyRef"), source.get("secretKeyRef")
    if isinstance(config_map, dict):
        name, key = str(config_map.get("name")), str(config_map.get("key"))
        value = config_maps.get(name, {}).get(key)
        if value is None and config_map.get("optional"):
            return
        origin = Origin("ConfigMap", variable=entry.name, source=name, key=key)
        missing = "" if value is not None else f"there is no ConfigMap {name} with a key {key}"
        yield Variable(entry.name, None if value is None else escaped(value), origin, missing)
    elif isinstance(secret, dict):
        origin = Origin("Secret", variable=entry.name, source=str(secret.get("name")), key=str(secret.get("key")))
        yield Variable(entry.name, None, origin, f"it comes from Secret {origin.source}, whose values are never read")
    else:
        origin = Origin("pod", variable=entry.name)
        value = _pod_value(template, container, source)
        field_path = _path(source.get("fieldRef"), "fieldPath") or _path(source.get("resourceFieldRef"), "resource")
        unknown = "" if value is not None else f"only a running pod knows its {field_path or 'source'}"
        yield Variable(entry.name, None if value is None else escaped(value), origin, unknown)


def _pod_value(template: PodTemplate, container: Container, source: Mapping[str, Any]) -> str | None:
    """What the template itself says about a field of the pod: labels, annotations, resources."""
    metadata = _LABEL.fullmatch(_path(source.get("fieldRef"), "fieldPath") or "")
    if metadata is not None:
        texts = (template.metadata or {}).get(metadata[1])
        found = texts.get(metadata[2]) if isinstance(texts, dict) else None
        return None if found is None else str(found)
    resource = source.get("resourceFieldRef")
    if not isinstance(resource, dict) or resource.get("containerName") not in {None, container.name}:
        return None
    kind, _, name = str(resource.get("resource")).partition(".")
    stated = _path(((container.model_extra or {}).get("resources") or {}).get(kind), name)
    if stated is None:
        return None  # the node's whole capacity, then
    try:
        divisor = parse_quantity(str(resource.get("divisor") or "1"), "divisor")
        amount = parse_quantity(stated, name)
    except QuantityError:
        return None
    return str(math.ceil(amount / (divisor or 1)))


def _path(holder: Any, key: str) -> str | None:
    found = holder.get(key) if isinstance(holder, dict) else None
    return None if found is None else str(found)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
