"""What runs today, as a candidate: the flags of the pod's llama-server container, whatever form they have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from slotune.api.kubernetes_types import EnvVar
from slotune.api.manifests import Manifests
from slotune.api.quantities import parse_quantity
from slotune.api.v1alpha1 import ModelVariant
from slotune.llama.candidate import Candidate
from slotune.llama.flag_reading import read
from slotune.llama.flags import ModelSource, from_args, model_source, to_args
from slotune.llama.model_facts import ModelFacts
from slotune.tuning.errors import InvalidInputError

__all__ = ["Baseline", "baseline_of"]

FLAG_VARIABLES = ("LLAMA_ARG_", "LLAMA_OFFLINE", "LLAMA_CACHE")
"""Variables that are flags of llama-server; an API key is none that changes a measurement."""

REDACTED = "REDACTED"

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
"""A variable in a container's arguments."""

PROGRAMS = frozenset({"llama-server", "llama-server.exe"})

SHELLS = frozenset({"sh", "bash", "ash", "dash", "zsh"})


@dataclass(frozen=True, slots=True)
class Baseline:
    """What runs today."""

    candidate: Candidate
    host: str | None
    """None when it is left to the image, which may well say it in a variable of its own."""
    port: int | None
    alias: str | None
    paths: Mapping[str, str]
    """Path inside the container of each variant, as the manifest has it."""
    secrets: tuple[str, ...] = ()
    """Flags that hold a key or token, each with a placeholder: never measured with, never shown, and still needed."""
    threads: int | None = None
    """The container's CPU limit where no ``-t`` is stated: what a trial gets, and what the answer states.

    Without both llama-server takes all cores of the host that it happens to run on (ollama#17916)."""
    notes: tuple[str, ...] = ()

    def flags_for(self, candidate: Candidate) -> list[str]:
        """``candidate`` as arguments of this server: its own path, address and name, and no measuring log level."""
        args = to_args(
            replace(candidate, extra_args=()),
            model_path=self.paths[candidate.variant],
            host=self.host or "",
            port=self.port or 0,
            alias=self.alias or "",
            threads=self.threads,
        )
        unstated = {
            "--host": self.host is None,
            "--port": self.port is None,
            "--alias": self.alias is None,
            "-lv": True,
        }
        kept, skip = [], False
        for argument in args:
            drop = not skip and unstated.get(argument, False)
            if not skip and not drop:
                kept.append(argument)
            skip = drop
        return [*kept, *candidate.extra_args, *self.secrets]


def baseline_of(manifests: Manifests, models: Mapping[str, ModelFacts], gpu_class: str) -> Baseline:
    """Read the server's own flags.

    Raises:
        InvalidInputError: a flag is unknown, removed or malformed, or the weights file is none of ``spec.models``.
    """
    spec = manifests.deployment.spec
    where = f"container {manifests.container.name}"
    environment = _environment(manifests, where)
    arguments = [_expanded(argument, environment) for argument in _arguments(manifests, where)]
    variant = _variant(manifests, where, model_source(arguments, environment))
    parsed = from_args(
        arguments,
        variant=variant.name,
        gpu_class=gpu_class,
        training_context=models[variant.name].context_length,
        env=environment,
    )
    if parsed.errors:
        raise InvalidInputError(f"{where} args", None, "; ".join(str(problem) for problem in parsed.errors))
    stated = {setting.flag.name for setting in read(arguments, environment).settings}
    return Baseline(
        parsed.baseline,
        parsed.host if "--host" in stated else None,
        parsed.port if "--port" in stated else None,
        parsed.alias,
        {model.name: model.path for model in spec.models},
        _without_values(parsed.secret_args),
        None if parsed.baseline.threads is not None else _cpu_limit(manifests, where),
        (*parsed.notes, *_secret_notes(parsed.secret_args)),
    )


def _without_values(words: Sequence[str]) -> tuple[str, ...]:
    """Secret flags, each with its value, which stays only where it is a reference such as ``$(API_KEY)``."""
    shown = []
    for flag, value in zip(words[::2], words[1::2], strict=True):
        shown += [flag, value if REFERENCE.fullmatch(value) else REDACTED]
    return tuple(shown)


def _secret_notes(words: Sequence[str]) -> tuple[str, ...]:
    flags = sorted(set(words[::2]))
    if not flags:
        return ()
    return (f"{', '.join(flags)}: measured without it; where the answer has {REDACTED}, put your own value back",)


def _variant(manifests: Manifests, where: str, source: ModelSource) -> ModelVariant:
    """The entry of ``spec.models`` that runs today: the one whose path ``-m`` names."""
    variants = manifests.deployment.spec.models
    if source.path is None:
        if len(variants) == 1:
            return variants[0]
        stated = source.hf_repo or source.url or source.docker_repo
        raise InvalidInputError(
            f"{where} args",
            stated,
            "does not say which of spec.models runs today: state the file with -m PATH, where PATH is that of a model",
        )
    here = PurePosixPath(source.path)
    for variant in variants:
        if PurePosixPath(variant.path) == here:
            return variant
    listed = ", ".join(variant.path for variant in variants)
    raise InvalidInputError(
        f"{where} args -m", source.path, f"is none of spec.models ({listed}): add it there, it is what runs today"
    )


def _arguments(manifests: Manifests, where: str) -> list[str]:
    """``args`` behind whatever flags ``command`` holds."""
    command = list(manifests.container.command or ())
    if command and PurePosixPath(command[0]).name in SHELLS:
        raise InvalidInputError(
            f"{where} command", command[0], "is a shell, which hides the flags: write llama-server's flags into args"
        )
    words = [*command, *(manifests.container.args or ())]
    programs = [place for place, word in enumerate(words) if PurePosixPath(word).name in PROGRAMS]
    if programs:  # behind a supervisor such as tini, too
        return words[programs[0] + 1 :]
    return words[1:] if command else words


def _environment(manifests: Manifests, where: str) -> dict[str, str]:
    """The container's variables, as far as the manifests say them: own values, and those of ConfigMaps in the files.

    Raises:
        InvalidInputError: a variable of llama-server's comes from a place that cannot be read here, so what runs today
            is not known.
    """
    found: dict[str, str] = {}
    for source in _dicts((manifests.container.model_extra or {}).get("envFrom")):
        reference = source.get("configMapRef")
        if isinstance(reference, dict):
            values = manifests.config_maps.get(str(reference.get("name")))
            if values is None and not reference.get("optional"):
                raise InvalidInputError(
                    f"{where} envFrom.configMapRef.name",
                    reference.get("name"),
                    "there is no such ConfigMap in the files: add it, llama-server may get flags from it",
                )
            found |= {str(source.get("prefix") or "") + key: value for key, value in (values or {}).items()}
    for entry in manifests.container.env or ():
        if entry.value is not None:
            found[entry.name] = _expanded(entry.value, found)
        elif entry.name.startswith(FLAG_VARIABLES):
            found[entry.name] = _from_elsewhere(manifests, where, entry)
    return found


def _expanded(argument: str, environment: Mapping[str, str]) -> str:
    """``$(NAME)`` as kubelet expands it, where the files say the value.

    Unknown names and escaped ones (``$$(NAME)``) stay as they are written: so the answer, which goes back into the
    same place, means the same there.
    """

    def value(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith("$$") else environment.get(found[1], found[0])

    return re.sub(r"\$?" + REFERENCE.pattern, value, argument)


def _from_elsewhere(manifests: Manifests, where: str, entry: EnvVar) -> str:
    """The value of a variable that is a flag of llama-server and is taken from a ConfigMap."""
    source = (entry.model_extra or {}).get("valueFrom")
    reference = source.get("configMapKeyRef") if isinstance(source, dict) else None
    value = None
    if isinstance(reference, dict):
        value = manifests.config_maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
    if value is None:
        raise InvalidInputError(
            f"{where} env {entry.name}",
            None,
            "its value is not in the files, and it is a flag of llama-server: add the ConfigMap that holds it, or "
            "state the flag in args",
        )
    return value


def _cpu_limit(manifests: Manifests, where: str) -> int | None:
    """Whole CPUs that the container may use; None when no limit is stated."""
    resources = (manifests.container.model_extra or {}).get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    stated = limits.get("cpu") if isinstance(limits, dict) else None
    if stated is None:
        return None
    return max(1, int(parse_quantity(str(stated), f"{where} resources.limits.cpu")))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
